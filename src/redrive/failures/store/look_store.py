"""Answer from earlier looks at a queue, and keep what new ones find."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.index import Index, StoredLook
from redrive.failures.store.kept_messages import IndexUnusable
from redrive.failures.store.look import CachePolicy, Look
from redrive.failures.store.operator_name import whoami
from redrive.pubsub.url import BrokerURL

if TYPE_CHECKING:
    from redrive.failures.store.index_writer import IndexWriter


class LookStore:
    """Finds a look at a queue that may answer, and keeps new ones.

    Does neither if the packages that the index needs are not installed.
    """

    def __init__(self, url: BrokerURL, queue: str, recall: CachePolicy) -> None:
        self._url = url
        self._queue = queue
        self._recall = recall
        self._began_at: datetime | None = None
        self._index = (
            None
            if find_spec("duckdb") is None or find_spec("platformdirs") is None
            else Index(url, most_bytes=recall.most_bytes, keeps_bodies=recall.keeps_bodies)
        )

    def answer(self, limit: int | None) -> Look | None:
        """Return a look that answers, with only the oldest messages if there is a limit.

        Returns None if the queue must be scanned.
        """
        found = self._young_enough()
        if self._index is None or found is None:
            return None
        from redrive.failures.store.index_changes import NONE, changes_since
        from redrive.failures.store.index_reader import IndexedMessages

        changes = changes_since(self._index, found)
        if changes != NONE and (limit is not None or self._recall.or_look):
            return None  # a fresh look is possible, and something has changed
        total = found.looked_at + changes.difference
        return Look(
            self._queue,
            "index",
            total,
            total if limit is None else min(limit, total),
            as_of=found.ended_at,
            came=changes.came,
            went=changes.went,
            has_ended=True,
            messages=IndexedMessages(
                self._index, found, limit, changes=changes, gives_bodiless=not self._recall.or_look
            ),
        )

    def _young_enough(self) -> StoredLook | None:
        if self._index is None or not self._recall.max_age:
            return None
        try:
            found = self._index.find(self._queue)
        except IndexUnusable as error:
            self._recall.on_notice(str(error))
            return None
        # The clock was set back since a look "in the future": its age is unknown.
        is_young = found is not None and (
            0 <= found.age_seconds <= self._recall.max_age.total_seconds()
        )
        return found if is_young else None

    @contextlib.contextmanager
    def keeping(self, look: Look) -> Iterator[None]:
        """Keep what the look in the block finds, if it is complete."""
        if self._index is None:
            yield
            return
        from redrive.failures.store.index_writer import IndexWriter

        self._began_at = datetime.now(UTC)
        with contextlib.ExitStack() as held:
            writer = held.enter_context(IndexWriter(self._index, former=self._former()))
            look.messages = _noted(look.messages, writer)
            yield
            if not look.is_whole:
                return
            finish = held.pop_all()
            found = self._found(look, self._index)

            def keep(on_progress: Callable[[int], object] = lambda _: None) -> str:
                with finish:
                    writer.on_progress = on_progress
                    writer.keep(found)
                    return writer.problem

            if self._recall.later is not None:
                self._recall.later(keep)
            elif problem := keep():
                self._recall.on_notice(f"nothing was kept for the next question: {problem}")

    def _former(self) -> StoredLook | None:
        """Return the look whose messages need not be written anew."""
        try:
            return None if self._index is None else self._index.find(self._queue)
        except IndexUnusable:
            return None

    def _found(self, look: Look, index: Index) -> StoredLook:
        assert look.as_of is not None
        return StoredLook(
            self._queue,
            index.broker,
            look.as_of,
            f"{whoami()} as {self._url.username}",
            look.total,
            look.looked_at,
            look.missing,
            began_at=self._began_at,
        )


def _noted(messages: Iterator[FailedMessage], writer: "IndexWriter") -> Iterator[FailedMessage]:
    """Pass each message to the writer while iterating."""
    for message in messages:
        writer.note(message)
        yield message


def anew(recall: CachePolicy) -> CachePolicy:
    """Return the policy changed so that the queue is scanned."""
    return replace(recall, max_age=type(recall.max_age)(0))
