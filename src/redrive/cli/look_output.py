"""What a command prints while it reads a failed queue: progress, who it waits for, and what it
could not see."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from redrive.cli.message_lookup import NothingFound
from redrive.cli.output import Printer, ProgressBar, count_of
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.reports import LookProgress, LookStage

T = TypeVar("T")

_WORTH_A_WORD = 2.0
"""Seconds of waiting for somebody else after which a note says for whom, if no bar says it."""

Begun = Callable[[LookProgress], None]


def held_by_others(name: str, held: int | None, consequence: str) -> str:
    """Return a sentence about the messages of a queue that somebody else holds; empty if there are
    none."""
    if held == 0:
        return ""
    many = "an unknown number of messages" if held is None else count_of(held, "message")
    verb = "is" if held is None or held == 1 else "are"
    return f"Somebody else is reading {name}: {many} {verb} {consequence}."


class Look:
    """One look at a failed queue or a file, and what is known of it afterwards.

    Args:
        printer: where it is shown.
        name: the failed queue, or the file.
        bar: shows how far it is.
        begun: called once it is known how much is there; may raise.
    """

    def __init__(self, printer: Printer, name: str, bar: ProgressBar, begun: Begun) -> None:
        self._printer = printer
        self._name = name
        self._bar = bar
        self._begun = begun
        self._began = time.monotonic()
        self._said_that_it_waits = False
        self._said_the_price = False
        self._most_held = 0
        self.total = 0
        self.looked_at = 0
        self.missing: int | None = 0
        self.answered_from = "queue"
        self.as_of: datetime | None = None
        """When a look at a queue ended that this is the answer of."""
        self.depth_now: int | None = None
        """What is in the queue now, if an earlier look answers and that is known."""
        self._has_ended = False

    @property
    def is_whole(self) -> bool:
        """Whether all that is in the queue was looked at, to the end."""
        return self._has_ended and self.missing == 0 and self.looked_at == self.total

    @property
    def is_partial(self) -> bool:
        """Whether messages that are there were not looked at, because that was not asked for."""
        return self.looked_at < self.total and self.missing == 0

    @property
    def is_seen(self) -> bool:
        """Whether people are shown how far it is."""
        return self._bar.is_seen

    def show_lines(self, lines: Sequence[str]) -> None:
        """Show what was found so far, in place of what was shown before, until the look ends."""
        self._bar.show_lines(lines)

    @property
    def what_is_missing(self) -> str:
        """A sentence about messages that somebody else holds; empty if there are none."""
        return held_by_others(self._name, self.missing, "missing from this answer")

    def of_queue(
        self, failed: FailedQueue, limit: int | None, patience: float | None
    ) -> Generator[FailedMessage, None, None]:
        """The messages of a failed queue."""
        for message in failed.browse(limit, on_progress=self._told, patience=patience):
            self.looked_at += 1
            yield message

    def of_file(self, file: Snapshot, limit: int | None) -> Generator[FailedMessage, None, None]:
        """The messages of a file."""
        self.answered_from = "file"
        self.total = file.depth()
        wanted = self.total if limit is None else min(limit, self.total)
        self._begun(LookProgress(LookStage.LOOKING, self.total, wanted))
        for message in file.browse(limit):
            self.looked_at += 1
            self._bar.show("reading", self.looked_at, wanted)
            yield message

    def _told(self, progress: LookProgress) -> None:
        self.missing = progress.missing
        match progress.stage:
            case LookStage.WAITING:
                self._wait_for(progress.holder)
            case LookStage.LOOKING:
                if not progress.looked_at:
                    self.total = progress.total
                    self._begun(progress)
                    self._tell_price(progress.returns)
                self._bar.explain(
                    f"{count_of(progress.wanted, 'message')} of {self._name} are held while this "
                    "command reads them; other consumers of the queue wait."
                )
                self._bar.show("reading", progress.looked_at, progress.wanted)
            case LookStage.RETURNING:
                self._most_held = max(self._most_held, progress.held)
                if progress.held < self._most_held or self._most_held <= self.looked_at:
                    self._bar.show(
                        "returning messages", self._most_held - progress.held, self._most_held
                    )
                else:
                    self._bar.show(
                        "holding all messages, to keep their order", progress.held, progress.total
                    )
            case LookStage.ENDED:
                self._has_ended = True

    def _tell_price(self, returns: int | None) -> None:
        if returns is not None and not self._said_the_price:
            self._said_the_price = True
            self._printer.note(
                f"{self._name} has a delivery limit: each look uses up one of the {returns:,} "
                "returns that each of its messages has."
            )

    def _wait_for(self, holder: str) -> None:
        words = f"waiting: {holder or 'somebody else'} is reading {self._name}"
        if (
            not self._bar.show(words, 0, None)
            and not self._said_that_it_waits
            and time.monotonic() - self._began > _WORTH_A_WORD
        ):
            self._said_that_it_waits = True
            self._printer.note(f"{words[0].upper()}{words[1:]}.")


@contextlib.contextmanager
def looking(
    printer: Printer,
    source: FailedQueue | Snapshot,
    name: str,
    limit: int | None = None,
    begun: Begun = lambda _: None,
    *,
    patience: float | None = None,
) -> Iterator[tuple[Generator[FailedMessage, None, None], Look]]:
    """Give the messages of a failed queue or a file, and the look at them, which has a bar if it
    takes longer than a moment.

    It ends the look: all messages are back in their queue then. What could not be seen is said.

    Args:
        printer: where it is shown.
        source: what is looked at.
        name: what people call that.
        limit: how many messages at most.
        begun: called once it is known how much is there; may raise.
        patience: seconds that somebody else's look is waited for; as long as usual by default.
    """
    with printer.bar() as bar:
        look = Look(printer, name, bar, begun)
        messages = (
            look.of_queue(source, limit, patience)
            if isinstance(source, FailedQueue)
            else look.of_file(source, limit)
        )
        try:
            yield messages, look
        except (KeyboardInterrupt, SystemExit) as interrupt:
            # Who interrupts wants to leave at once.
            with contextlib.suppress(StopIteration, type(interrupt)):
                messages.throw(interrupt)
            raise
        finally:
            messages.close()
    if look.what_is_missing:
        printer.note(look.what_is_missing)


def looked_at(
    printer: Printer,
    failed: FailedQueue,
    name: str,
    ask: Callable[[Iterable[FailedMessage]], T],
    *,
    chosen: Callable[[T], int] | None = None,
) -> T:
    """Return what `ask` finds in the messages of a failed queue, for a command that acts on it.

    Args:
        printer: where the look is shown.
        failed: what is looked at.
        name: what people call that.
        ask: what is asked of its messages.
        chosen: how many messages an answer is about; None where one about none is an answer, too.

    Raises:
        NothingFound: somebody else holds all of its messages, or all that `ask` might have chosen.
    """
    with looking(printer, failed, name) as (messages, look):
        answer = ask(messages)
    if look.missing == 0:
        return answer
    if not look.total:
        raise NothingFound(f"no message of {name!r} could be read\nTry again when that has ended.")
    if chosen is not None and not chosen(answer):
        raise NothingFound(
            f"none of the {look.looked_at:,} messages of {name!r} that could be read was chosen\n"
            "Try again when that has ended."
        )
    return answer
