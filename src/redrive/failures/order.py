"""How failed messages are to be requeued: which, how many, how fast, and when to stop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

from redrive.errors import ConfigurationError
from redrive.failures.canary import Guards
from redrive.failures.direction import Direction
from redrive.failures.edit import Edit, calling, edited, patching
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter
from redrive.pubsub.transfer.pace import check_pace
from redrive.topology.rewrite import MOST_REDRIVES

_OF_PROGRAM = "of_program"


@dataclass(frozen=True, slots=True)
class Order:
    """An order to requeue messages.

    Args:
        filter: which messages.
        limit: how many at most; None for all of them.
        to: the queue that they go to; None for the one that each failed in.
        rate: how many a second at most; None for as many as there can be.
        guards: what stops it: a canary, a share of failures.
        force: whether messages go that were requeued too often already.
        patch: the text of a JSON patch or merge patch of the bodies.
        function: `module:function` that makes another body of a message.
        edits: bodies that people have edited, in base64, by the digests of their messages.
        via: whether they go by the exchange and the key that they were first published with.
        pace_by_depth: they go only while the queue that they go to has fewer ready messages; None
            for any number.
        transform: makes another body of a message: a function of the program that gives the order.
        unchecked: whether messages go whose way back the broker could not confirm.
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

    @property
    def direction(self) -> Direction:
        """Where they go.

        Raises:
            ConfigurationError: two ways are asked for, or a pace by the depth of unknown queues.
        """
        check_pace(self.pace_by_depth, via=self.via)
        return Direction(self.to, self.via, self.unchecked)

    @property
    def most_redrives(self) -> int | None:
        """What was requeued so often before stays; None for no limit."""
        return None if self.force else MOST_REDRIVES

    def may_go(self, message: FailedMessage) -> bool:
        """Whether a message may be requeued once more."""
        return self.most_redrives is None or message.redrive_count < self.most_redrives

    @property
    def changes_bodies(self) -> bool:
        """Whether messages go with other bodies."""
        return bool(self.patch is not None or self.function or self.edits or self.transform)

    @property
    def takes_the_first(self) -> bool:
        """Whether the oldest go as they are, whatever they are: a number of them that nothing is
        chosen from, nor changed."""
        return self.limit is not None and self.filter.is_all and self.edit() is None

    def edit(self) -> Edit | None:
        """What makes other bodies; None where messages go as they are.

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
        """It as JSON values; of a function of a program, that there is one."""
        others = (n for n in self.__slots__ if n not in ("guards", "filter", "transform"))
        of_program = self.transform is not None or callable(self.filter.where)
        return {
            **({_OF_PROGRAM: True} if of_program else {}),
            **{name: getattr(self, name) for name in others},
            **self.guards.as_json(),
            # As redrive 0.1 has called it, whose jobs may be resumed.
            "selection": self.filter.as_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """What `as_json` has written.

        Raises:
            ConfigurationError: a function of a program is a part of it, or redrive 0.1 has written
                it with ids.
        """
        if values.get(_OF_PROGRAM):
            raise ConfigurationError(
                "its messages were chosen, or changed, by a function of the program that began it",
                "Have that program requeue again: what was sent is not in its queue any more.",
            )
        known: dict[str, Any] = {
            name: value for name, value in values.items() if name in cls.__slots__
        }
        known |= {
            "filter": Filter.from_json(cast("Mapping[str, object]", values["selection"])),
            "guards": Guards.from_json(values),
        }
        return cls(**known)
