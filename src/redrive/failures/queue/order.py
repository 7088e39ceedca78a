"""Orders to requeue failed messages: which, how many, how fast, and when to stop."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, cast

from redrive.duration_text import format_duration
from redrive.errors import ConfigurationError
from redrive.failures.message.direction import Direction
from redrive.failures.message.edit import Edit, calling, edited, patching
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.canary import Guards, Unknown
from redrive.failures.store.filter import Filter
from redrive.failures.store.stored_message import text_of
from redrive.topology.rates import rate_of
from redrive.topology.rewrite import MOST_REDRIVES

_OF_PROGRAM = "of_program"


@dataclass(frozen=True, slots=True)
class Order:
    """An order to requeue messages.

    Args:
        filter: which messages.
        limit: how many messages at most; None for all.
        to: the queue to send them to; None for the queue that each failed in.
        rate: how many messages a second at most; None for no limit.
        guards: what stops the requeue: a canary, or a share of failures.
        force: whether to send messages that were requeued too often already.
        patch: the text of a JSON patch or merge patch to apply to the bodies.
        function: `module:function` that returns a new body for a message.
        edits: bodies edited by people, in base64, by the digests of their messages.
        via: whether to send messages by the exchange and key that they were first published with.
        pace_by_depth: send only while the destination queue has fewer ready messages than this;
            None for no limit.
        transform: a function of the calling program that returns a new body for a message.
        unchecked: whether to send messages whose route the broker could not confirm.

    Raises:
        ConfigurationError: the rate is not a positive number.
    """

    filter: Filter = field(default_factory=Filter)
    limit: int | None = None
    to: str | None = None
    rate: float | None = None
    guards: Guards = field(default_factory=Guards)
    force: bool = False
    patch: str | None = None
    function: str | None = None
    edits: dict[str, str] = field(default_factory=dict)
    via: bool = False
    pace_by_depth: int | None = None
    transform: Edit | None = None
    unchecked: bool = False

    def __post_init__(self) -> None:
        if self.rate is not None:
            object.__setattr__(self, "rate", rate_of(self.rate))

    @property
    def direction(self) -> Direction:
        """Where the messages go.

        Raises:
            ConfigurationError: two destinations are given, or a pace by the depth of unknown
                queues.
        """
        check_pace(self.pace_by_depth, via=self.via)
        return Direction(self.to, self.via, self.unchecked)

    @property
    def most_redrives(self) -> int | None:
        """Number of earlier requeues from which a message stays; None for no limit."""
        return None if self.force else MOST_REDRIVES

    def may_go(self, message: FailedMessage) -> bool:
        """Check whether a message may be requeued once more."""
        return self.most_redrives is None or message.redrive_count < self.most_redrives

    @property
    def changes_bodies(self) -> bool:
        """Whether messages are sent with other bodies."""
        return bool(self.patch is not None or self.function or self.edits or self.transform)

    @property
    def takes_the_first(self) -> bool:
        """Whether the oldest messages are sent as they are, by number alone, without a filter or
        edit."""
        return self.limit is not None and self.filter.is_all and self.edit() is None

    def edit(self) -> Edit | None:
        """Return the function that makes new bodies; None if bodies don't change.

        Raises:
            ConfigurationError: the patch or the function can't be used.
        """
        if self.transform is not None:
            return self.transform
        if self.patch is not None:
            return patching(self.patch)
        if self.function is not None:
            return calling(self.function)
        return edited(self.edits) if self.edits else None

    def as_json(self) -> dict[str, object]:
        """Return the order as JSON values. Functions of a program are only marked as present."""
        others = (n for n in self.__slots__ if n not in ("guards", "filter", "transform"))
        of_program = self.transform is not None or callable(self.filter.where)
        return {
            **({_OF_PROGRAM: True} if of_program else {}),
            **{name: getattr(self, name) for name in others},
            **self.guards.as_json(),
            # The name that redrive 0.1 used, whose jobs may be resumed.
            "selection": self.filter.as_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """Read the result of `as_json`.

        Raises:
            ConfigurationError: the order includes a function of a program, or ids from redrive 0.1.
        """
        if values.get(_OF_PROGRAM):
            raise ConfigurationError(
                "its messages were chosen, or changed, by a function of the program that began it",
                "Run that program again: messages that were sent are no longer in their queue.",
            )
        known: dict[str, Any] = {
            name: value for name, value in values.items() if name in cls.__slots__
        }
        known |= {
            "filter": Filter.from_json(cast("Mapping[str, object]", values["selection"])),
            "guards": Guards.from_json(values),
        }
        return cls(**known)


def check_pace(most: int | None, *, via: bool) -> None:
    """Check that sending can be limited by queue depth."""
    if most is not None and most < 1:
        raise ConfigurationError(
            f"no message can be sent while a queue has fewer than {most:,}",
            "Give 1 or more to `pace_by_depth`.",
        )
    if most is not None and via:
        raise ConfigurationError(
            "messages that go by their first exchange can't be paced by a queue's depth: the "
            "queues that get them are not known",
            "Leave out `via` or `pace_by_depth`; a rate can be given with both.",
        )


class Fact(NamedTuple):
    """One fact about an order or a job.

    Args:
        name: the name of the fact; empty for a further line of the one before.
        text: the fact itself; may have several lines, and contain control characters.
    """

    name: str
    text: str


def filter_facts(filter_: Filter) -> list[Fact]:
    """Return facts about which messages a filter of the journal chooses."""
    where = filter_.where if isinstance(filter_.where, str) else ""
    facts = [Fact("where", where)] if where else []
    facts += [Fact("group", group) for group in filter_.groups]
    count = len(filter_.digests)
    facts += [Fact("messages", f"{count:,} by {'its id' if count == 1 else 'their ids'}")] * (
        count > 0
    )
    return facts


def order_facts(order: Order) -> list[Fact]:
    """Return all facts about an order, without its filter and default values."""
    guards = order.guards
    canary = ""
    if guards.canary:
        watch = (
            "" if guards.watch is None else f", watched for {format_duration(guards.watch)} at most"
        )
        unknown = ", going on when unknown" if guards.unknown is Unknown.GO_ON else ""
        canary = f"{guards.canary:,}{watch}{unknown}"
    pace = order.pace_by_depth
    facts = (
        ("limit", "" if order.limit is None else f"{order.limit:,}"),
        ("to", order.to or ""),
        ("via", "the exchange that each was first published to" if order.via else ""),
        ("unchecked", "includes what the broker could not confirm" if order.unchecked else ""),
        ("rate", "" if order.rate is None else f"{order.rate:g}/s"),
        (
            "pace",
            "" if pace is None else f"while fewer than {pace:,} messages are ready in their queue",
        ),
        ("canary", canary),
        ("stop at", "" if guards.stop_at is None else f"{guards.stop_at:.1%}"),
        ("patch", order.patch or ""),
        ("transform", order.function or ""),
        *(
            (f"edited {digest[:12]}", text_of(base64.b64decode(body)))
            for digest, body in sorted(order.edits.items())
        ),
        ("force", "includes what was requeued too often" if order.force else ""),
    )
    return [Fact(name, text) for name, text in facts if text]
