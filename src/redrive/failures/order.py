"""How failed messages are to be sent back: which, how many, how fast, and when to stop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from redrive.failures.canary import Unknown
from redrive.failures.edit import Edit, calling, edited, patching
from redrive.failures.selection import Selection
from redrive.pubsub.message import FailedMessage
from redrive.topology.moves import MOST_REDRIVES


@dataclass(frozen=True, slots=True)
class Order:
    """An order to send messages back.

    Args:
        selection: which messages.
        limit: how many at most; None for all of them.
        to: the queue that they go to; None for their own main queue.
        rate: how many a second at most; None for as many as there can be.
        canary: how many are sent first, to see whether they fail again; 0 for none.
        watch: for how many seconds the canary is watched at most; None for as long as its retries would take.
        stop_at: the share of what was sent that may be failing; None for any.
        force: whether messages go that were sent back too often already.
        patch: the text of a JSON patch or merge patch of the bodies.
        function: `module:function` that makes another body of a message.
        edits: bodies that people have edited, in base64, by the digests of their messages.
        unknown: what happens when nothing is known of some of the canary at the end of its watch: `stop`, or `go-on`.
    """

    selection: Selection = field(default_factory=Selection)
    limit: int | None = None
    to: str | None = None
    rate: float | None = None
    canary: int = 0
    watch: float | None = None
    stop_at: float | None = None
    force: bool = False
    patch: str | None = None
    function: str | None = None
    edits: dict[str, str] = field(default_factory=dict)
    unknown: str = Unknown.STOP.value

    @property
    def most_redrives(self) -> int | None:
        """What was sent back so often before stays; None for no limit."""
        return None if self.force else MOST_REDRIVES

    def may_go(self, message: FailedMessage) -> bool:
        """Whether a message may be sent back once more."""
        return self.most_redrives is None or message.redrive_count < self.most_redrives

    @property
    def takes_the_first(self) -> bool:
        """Whether the oldest go as they are, whatever they are: a number of them that nothing is chosen from, nor changed."""
        return self.limit is not None and self.selection.is_all and self.edit() is None

    @property
    def is_watched(self) -> bool:
        """Whether it has to be seen what becomes of messages while they are sent."""
        return bool(self.canary) or self.stop_at is not None

    def edit(self) -> Edit | None:
        """What makes other bodies; None where messages go as they are.

        Raises:
            ConfigurationError: the patch or the function can't be used.
        """
        if self.patch is not None:
            return patching(self.patch)
        if self.function is not None:
            return calling(self.function)
        return edited(self.edits) if self.edits else None

    def as_json(self) -> dict[str, object]:
        """It as JSON values."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "selection": self.selection.as_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """What `as_json` has written."""
        known: dict[str, Any] = {name: value for name, value in values.items() if name in cls.__slots__}
        return cls(**{**known, "selection": Selection.from_json(known["selection"])})
