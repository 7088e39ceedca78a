"""A job that a console's worker runs, as its pages and the worker speak of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Self

from redrive.web.page_request import QueuePlace

_MOST_NOTICES = 20


class TaskKind(StrEnum):
    """What a worker is told to do with a job."""

    BEGIN = "begin"
    RESUME = "resume"
    APPROVE = "approve"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a worker is told.

    Args:
        kind: what to do.
        id: the job's id.
        url: the broker's address, with credentials: it goes through a pipe, and nowhere else.
        queue: the queue, as people call it.
        literal: whether the queue of this very name is meant.
        family: the exchange family, as JSON values.
        management_url: where the management API is; None for the usual place.
        journal: the local file of the journal; None for the usual one.
        order: what to do, as JSON values; empty where the journal has it.
        reason: why.
        digest: that of the journal's order, as whoever has it go on has seen it.
        operator: whom the console serves, where a proxy says it; empty for nobody.
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
        """It as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """What `encode` has made."""
        values = json.loads(line)
        return cls(**{**values, "kind": TaskKind(values["kind"])})


@dataclass(slots=True)
class ConsoleJob:
    """A job that a console's worker runs, or has run.

    Args:
        id: its id.
        place: the queue.
        planned: how many it is to send, as far as that is known.
        sent: how many it has sent in this run.
        looked_at: how many messages it has looked at.
        rate: how many it has sent a second, of late.
        succeeded: how many of this run are known to have succeeded at once.
        retrying: how many are known to be retried.
        failed_again: how many are known to have failed again.
        causes: for what they did: the group, the cause in words, and how many.
        notices: what people may want to know, the last ones.
        problem: why it could not go on; empty otherwise.
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
        """Keeps what people may want to know."""
        self.notices = [*self.notices, notice][-_MOST_NOTICES:]

    def encode(self) -> bytes:
        """How it stands, as a line."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "place"}
        return json.dumps(values).encode() + b"\n"

    def take(self, told: Mapping[str, object]) -> None:
        """Takes over how it stands."""
        for name in self.__slots__:
            if name in told:
                setattr(self, name, told[name])
