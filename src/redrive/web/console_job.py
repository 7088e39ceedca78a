"""A job that a console's worker runs, and the messages between the console and the worker."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Self

from redrive.web.page_request import QueuePlace

_MOST_NOTICES = 20


class TaskKind(StrEnum):
    """What a worker should do with a job."""

    BEGIN = "begin"
    RESUME = "resume"
    APPROVE = "approve"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An instruction for a worker.

    Args:
        kind: what to do.
        id: the job's id.
        url: the broker's address, with credentials: it is passed through a pipe only.
        queue: the queue's name, as users know it.
        literal: whether `queue` is the exact name of the failed queue.
        family: the exchange family, as JSON values.
        management_url: the address of the management API; None for the default.
        journal: the local journal file; None for the default.
        order: the order, as JSON values; empty if it is in the journal.
        reason: the reason for the job.
        digest: the digest of the journal's order that the user saw when resuming or approving.
        operator: the user that a proxy names; empty if none does.
    """

    kind: TaskKind
    id: str
    url: str = ""
    queue: str = ""
    literal: bool = False
    family: Mapping[str, object] = field(default_factory=dict)
    management_url: str | None = None
    journal: str | None = None
    order: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    digest: str = ""
    operator: str = ""

    @property
    def place(self) -> QueuePlace:
        """The queue."""
        return QueuePlace(self.queue, self.literal)

    def encode(self) -> bytes:
        """Return the task as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Parse a line written by `encode`."""
        values = json.loads(line)
        return cls(**{**values, "kind": TaskKind(values["kind"])})


@dataclass(slots=True)
class ConsoleJob:
    """A job that a console's worker runs or has run.

    Args:
        id: the job's id.
        place: the queue.
        planned: how many messages it should send; None until that is known.
        sent: how many it has sent in this run.
        looked_at: how many messages it has read.
        rate: its recent rate, in messages per second.
        succeeded: how many of this run are known to have succeeded at once.
        retrying: how many are known to be retrying.
        failed_again: how many are known to have failed again.
        causes: why they failed again: group id, description and count of each cause.
        notices: the latest notices for the user.
        problem: why it could not continue; empty otherwise.
        has_ended: whether this run is over.
    """

    id: str
    place: QueuePlace
    planned: int | None = None
    sent: int = 0
    looked_at: int = 0
    rate: float = 0.0
    succeeded: int = 0
    retrying: int = 0
    failed_again: int = 0
    causes: list[tuple[str, str, int]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    problem: str = ""
    has_ended: bool = False

    def tell(self, notice: str) -> None:
        """Add a notice for the user."""
        self.notices = [*self.notices, notice][-_MOST_NOTICES:]

    def encode(self) -> bytes:
        """Return the state as a line of JSON."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "place"}
        return json.dumps(values).encode() + b"\n"

    def take(self, told: Mapping[str, object]) -> None:
        """Update the state from decoded values."""
        for name in self.__slots__:
            if name in told:
                setattr(self, name, told[name])
