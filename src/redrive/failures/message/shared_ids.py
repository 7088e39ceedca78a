"""Failure ids shared by different messages.

A failure id is a header, and anybody who may write into the queue can copy one.
"""

from collections.abc import Iterable, Iterator

from redrive.failures.message.failed_message import FailedMessage


class SharedIds:
    """Counts the failure ids that are shared by different messages. Exact copies don't count."""

    def __init__(self) -> None:
        # Store hashes instead of texts: there may be millions of them.
        self._digests: dict[int, int] = {}
        self._shared: set[int] = set()

    def add(self, message: FailedMessage) -> None:
        """Add a message."""
        own_id = message.own_failure_id
        if own_id is None:
            return
        name, digest = hash(own_id), hash(message.digest)
        if self._digests.setdefault(name, digest) != digest:
            self._shared.add(name)

    def noted(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """Add each message while iterating."""
        for message in messages:
            self.add(message)
            yield message

    def __len__(self) -> int:
        return len(self._shared)
