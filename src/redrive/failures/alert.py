"""When a failed queue has grown so much that somebody should know: once for each time it does."""


class Crossings:
    """Notices that a queue grows above a bound; again only after it was at or below it.

    Args:
        above: the bound, in messages.
    """

    def __init__(self, above: int) -> None:
        self._above = above
        self._told: set[str] = set()

    def crosses(self, queue: str, depth: int) -> bool:
        """Whether to tell of it now: it is above the bound, and nobody was told since it was not."""
        if depth <= self._above:
            self._told.discard(queue)
            return False
        return queue not in self._told

    def told(self, queue: str) -> None:
        """Somebody was told."""
        self._told.add(queue)
