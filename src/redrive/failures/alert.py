"""When a failed queue has grown so much that somebody should know: once for each time it does."""

_CALM = 0.9
"""The share of the bound at which a queue is calm again: one that goes up and down around its bound
is one crossing."""


class ThresholdAlarm:
    """Notices that a queue grows above a bound; again only after it was well below it.

    Args:
        above: the bound, in messages.
    """

    def __init__(self, above: int) -> None:
        self._above = above
        self._told: set[str] = set()

    def crosses(self, queue: str, depth: int, *, is_all: bool = True) -> bool:
        """Whether to tell of it now: it is above the bound, and nobody was told since it was calm.

        Args:
            queue: the queue.
            depth: the messages that are known to be in it.
            is_all: whether these are all; else there may be more, and it is not known to be calm.
        """
        if is_all and depth <= self._above * _CALM:
            self._told.discard(queue)
        return depth > self._above and queue not in self._told

    def told(self, queue: str) -> None:
        """Somebody was told."""
        self._told.add(queue)
