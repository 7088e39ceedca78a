"""Looks that the index has kept, for tests that ask it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.index import Index, StoredLook
from redrive.failures.store.index_reader import IndexedMessages
from redrive.failures.store.index_writer import IndexWriter
from redrive.pubsub.url import BrokerURL
from redrive.topology.headers import Delivery

URL = BrokerURL.parse("amqp://guest:secret@localhost/")
KEPT_QUEUE = "ucenter@user@failed"


def look_at(index: Index, count: int, queue: str = KEPT_QUEUE) -> StoredLook:
    """A whole look at so many messages, that has just ended."""
    return StoredLook(queue, index.broker, datetime.now(UTC), "ann@here as guest", count, count, 0)


def keep(
    index: Index,
    deliveries: Sequence[Delivery],
    queue: str = KEPT_QUEUE,
    *,
    former: StoredLook | None = None,
) -> IndexedMessages:
    """What the index gives of messages that were looked at, after a former look at them if any."""
    with IndexWriter(index, former=former) as writer:
        for delivery in deliveries:
            writer.note(FailedMessage(delivery))
        writer.keep(look_at(index, len(deliveries), queue))
        assert not writer.problem
    return kept(index, queue)


def kept(index: Index, queue: str = KEPT_QUEUE) -> IndexedMessages:
    """The messages that the index has of a queue."""
    look = index.find(queue)
    assert look is not None
    return IndexedMessages(index, look)


def index_in(folder: Path, most_bytes: int = 1024**3) -> Index:
    """An index of one broker, in a folder."""
    return Index(URL, folder / "index", most_bytes=most_bytes)
