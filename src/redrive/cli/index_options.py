"""The options that say whether a command may answer from what the last look has found, and what is
said and kept because of them."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from redrive.cli import environment
from redrive.cli.look_output import Begun, Look
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.index import MOST_BYTES, FormerLook, Index, forget
from redrive.failures.kept_messages import IndexUnusable, KeptMessages
from redrive.pubsub.reports import LookProgress, LookStage
from redrive.pubsub.url import BrokerURL
from redrive.topology.durations import duration_of

if TYPE_CHECKING:
    from redrive.failures.index_writer import IndexWriter

_OFF = "off"
_MEBIBYTE = 1024 * 1024
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="Look at the queue itself, also where a look is young enough to answer."
    ),
]
Age = Annotated[
    str,
    typer.Option(
        "--index",
        envvar=environment.INDEX_VARIABLE,
        metavar="AGE|off",
        help="How old a look may be to answer from what it found: 15m, 2h. With off, nothing is "
        "answered from it, and nothing kept.",
    ),
]


class IndexedQueue(NamedTuple):
    """A queue that the index may know.

    Args:
        url: the broker.
        failed: what looks at it.
        name: the queue that is read.
    """

    url: BrokerURL
    failed: FailedQueue
    name: str


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """The options that say whether a command answers from the index."""

    fresh: Fresh = False
    index: Age = "15m"
    to_do: list[Callable[[], None]] = field(default_factory=list, init=False, compare=False)
    """What is done once the command has printed its answer."""

    @property
    def most_age(self) -> timedelta | None:
        """How old a look may be that answers; None where nothing is kept either.

        Raises:
            ConfigurationError: it can't be read.
        """
        if self.index.strip().lower() == _OFF:
            return None
        try:
            return duration_of(self.index)
        except (ConfigurationError, OverflowError) as error:
            raise ConfigurationError(
                f"the age {self.index!r} of --index or {environment.INDEX_VARIABLE} can't be read",
                "Give a duration, such as 15m or 2h, or off.",
            ) from error

    @contextlib.contextmanager
    def answering(
        self, printer: Printer, queue: IndexedQueue, limit: int | None, begun: Begun
    ) -> Iterator[tuple[KeptMessages, Look] | None]:
        """Give the messages of the last look at a queue, and what is known of it; None where it has
        to be looked at.

        Args:
            printer: where it is said that the answer is from the index.
            queue: the queue.
            limit: how many of its oldest messages are asked for.
            begun: told how much there is; may raise.
        """
        index = None if self.fresh or self.most_age is None else index_of(queue.url)
        found = None if index is None else self._young_enough(printer, index, queue.name)
        if index is None or found is None:
            yield None
            return
        try:
            depth = queue.failed.count()
        except BrokerUnavailable as error:
            now, said = None, f" How many are in it now is unknown: {error}".partition("\n")[0]
        else:
            if depth is None:
                # There is no such queue any more; to look at it says so.
                forget(queue.url, queue.name)
                yield None
                return
            now, said = depth.total, since_then(depth.total - found.total)
        from redrive.failures.index_reader import IndexedMessages

        wanted = found.total if limit is None else min(limit, found.total)
        with printer.bar() as bar:
            look = Look(printer, queue.name, bar, begun)
            look.total, look.looked_at = found.total, wanted
            look.as_of, look.depth_now, look.answered_from = found.ended_at, now, "index"
            begun(LookProgress(LookStage.LOOKING, found.total, wanted))
            printer.note(
                f"From the look of {when(found.ended_at)} ({ago(found.age_seconds)}), "
                f"{count_of(found.total, 'message')}; --fresh looks again.{said}"
            )
            yield IndexedMessages(index, found, limit), look

    def _young_enough(self, printer: Printer, index: Index, name: str) -> FormerLook | None:
        try:
            found = index.find(name)
        except IndexUnusable as error:
            printer.note(sentence_of(error))
            return None
        most_age = self.most_age
        assert most_age is not None
        # A look of the future is of a clock that was set back: nobody knows how old it is.
        if found is None or not 0 <= found.age_seconds <= most_age.total_seconds():
            return None
        return found

    @contextlib.contextmanager
    def keeping(
        self, printer: Printer, queue: IndexedQueue, limit: int | None
    ) -> Iterator["Keeping"]:
        """Give what notes the messages of a look, so that they are kept if it is a whole one.

        Args:
            printer: where it is said if they can't be kept.
            queue: the queue that is looked at.
            limit: how many messages are looked at; a look at some is not kept.
        """
        index = None if self.most_age is None or limit is not None else index_of(queue.url)
        with contextlib.ExitStack() as held:
            writer = None
            if index is not None:
                from redrive.failures.index_writer import IndexWriter

                writer = held.enter_context(IndexWriter(index))
            keeping = Keeping(printer, queue, writer)
            yield keeping
            if keeping.is_wanted:
                finish = held.pop_all()

                def keep() -> None:
                    with finish:
                        keeping.keep()

                self.to_do.append(keep)


class Keeping:
    """Keeps what a look finds, after the command has answered.

    Args:
        printer: where it is said if it can't be kept.
        queue: the queue that is looked at.
        writer: keeps it; None where nothing is to be kept.
    """

    def __init__(self, printer: Printer, queue: IndexedQueue, writer: "IndexWriter | None") -> None:
        self._printer = printer
        self._queue = queue
        self._writer = writer
        self._look: Look | None = None

    def noted(self, messages: Iterator[FailedMessage]) -> Iterator[FailedMessage]:
        """The messages, each of which is noted."""
        if self._writer is None:
            yield from messages
            return
        note = self._writer.note
        for message in messages:
            note(message)
            yield message

    def end(self, look: Look) -> None:
        """The look has ended."""
        look.as_of = datetime.now(UTC)
        self._look = look

    @property
    def is_wanted(self) -> bool:
        """Whether the look saw all, so that it is worth to be kept."""
        return self._writer is not None and self._look is not None and self._look.is_whole

    def keep(self) -> None:
        """Keeps it; says so if that can't be."""
        assert self._writer is not None
        assert self._look is not None
        assert self._look.as_of is not None
        from redrive.failures.local_journal import whoami

        url = self._queue.url
        found = FormerLook(
            self._queue.name,
            Index(url).broker,
            self._look.as_of,
            f"{whoami()} as {url.username}",
            self._look.total,
            self._look.looked_at,
            self._look.missing,
        )
        with self._printer.bar() as bar:
            self._writer.on_progress = lambda count: bar.show(
                "keeping them for the next question", count, found.total
            )
            try:
                self._writer.keep(found)
            except KeyboardInterrupt:
                self._printer.note("Interrupted: nothing was kept for the next question.")
                return
        if self._writer.problem:
            self._printer.note(f"Nothing was kept for the next question: {self._writer.problem}.")


def answered(command: Callable[..., None]) -> Callable[..., None]:
    """Have a command look at the queue where the index can't answer it, and keep what a look has
    found once the answer is printed. The command has an argument `index`."""

    @functools.wraps(command)
    def call(**given: object) -> None:
        index = given["index"]
        assert isinstance(index, IndexOptions)
        try:
            try:
                command(**given)
            except IndexUnusable as error:
                Printer(Form.TABLE).note(sentence_of(error))
                anew = replace(index, fresh=True)
                try:
                    command(**{**given, "index": anew})
                finally:
                    index.to_do.extend(anew.to_do)
        finally:
            sys.stdout.flush()
            for each in index.to_do:
                each()

    return call


def index_of(url: BrokerURL) -> Index | None:
    """Return the index of a broker; None where what it needs is not installed."""
    if find_spec("duckdb") is None or find_spec("platformdirs") is None:
        return None
    return Index(url, most_bytes=_most_bytes())


def _most_bytes() -> int:
    """How much may be kept, as the environment says it.

    Raises:
        ConfigurationError: it is no number.
    """
    text = os.environ.get(environment.INDEX_SIZE_VARIABLE)
    if not text:
        return MOST_BYTES
    if not text.isdecimal() or not text.isascii():
        raise ConfigurationError(
            f"{environment.INDEX_SIZE_VARIABLE} is {text!r}", "Give a whole number of MiB."
        )
    return int(text) * _MEBIBYTE


def when(moment: datetime) -> str:
    """Return a time in words, with the day if that is another one."""
    is_today = moment.astimezone(UTC).date() == datetime.now(UTC).date()
    return f"{moment.astimezone(UTC):{'%H:%M:%S' if is_today else '%Y-%m-%d %H:%M:%S'}} UTC"


def ago(seconds: float) -> str:
    """Return how long ago something was, in words."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return f"{count_of(int(seconds // size), unit)} ago"
    return f"{count_of(int(seconds), 'second')} ago"


def since_then(change: int) -> str:
    """Return a sentence about how many messages have come or gone since a look; empty if its number
    is the same."""
    if not change:
        return ""
    return f" The queue has {abs(change):,} {'more' if change > 0 else 'fewer'} now."


def sentence_of(error: IndexUnusable) -> str:
    """Return why the index is not used, as a sentence."""
    text = str(error)
    return f"{text[0].upper()}{text[1:]}."
