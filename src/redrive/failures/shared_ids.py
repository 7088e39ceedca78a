"""Failure ids that stand for messages that differ: a failure id is a header, and anybody who may
write into the queue can copy one."""

from collections.abc import Iterable, Iterator

from redrive.failures.failed_message import FailedMessage


class SharedIds:
    """Counts the failure ids that several messages have which differ. Copies of one message, byte
    for byte, do not count."""

    def __init__(self) -> None:
        # Hashes and not the texts: there may be millions of them.
        self._digests: dict[int, int] = {}
        self._shared: set[int] = set()

    def add(self, message: FailedMessage) -> None:
        """Looks at a message."""
        own_id = message.own_failure_id
        if own_id is None:
            return
        name, digest = hash(own_id), hash(message.digest)
        if self._digests.setdefault(name, digest) != digest:
            self._shared.add(name)

    def noted(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """The messages, each looked at."""
        for message in messages:
            self.add(message)
            yield message

    def __len__(self) -> int:
        return len(self._shared)
