"""Output of a command while it reads a failed queue: progress, who it waits for, and what it could
not read."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from redrive.cli.output import Printer, ProgressBar
from redrive.failures.failed_queue import FailedQueue, plan_order
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failed_queue_base import source_of
from redrive.failures.queue.message_source import MessageSource, answer_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan
from redrive.failures.store.look import CachePolicy, Look, NothingFound
from redrive.failures.store.look_reporter import OnLook
from redrive.number_text import age_in_words, count_of
from redrive.pubsub.reports import LookProgress, LookStage

T = TypeVar("T")

_WORTH_A_WORD = 2.0
"""Seconds of waiting for somebody else after which a note says for whom, unless a bar shows it."""

Begun = Callable[[LookProgress], None]


def held_by_others(name: str, held: int | None, consequence: str) -> str:
    """Return a sentence about the messages that somebody else holds; empty if there are none."""
    if held == 0:
        return ""
    many = "an unknown number of messages" if held is None else count_of(held, "message")
    verb = "is" if held is None or held == 1 else "are"
    return f"Somebody else is reading {name}: {many} {verb} {consequence}."


class LookOutput:
    """The progress display of a look."""

    def __init__(self, printer: Printer, name: str, bar: ProgressBar, begun: Begun) -> None:
        self._printer = printer
        self._name = name
        self._bar = bar
        self._begun = begun
        self._began = time.monotonic()
        self._said_that_it_waits = False
        self._said_the_price = False
        self._most_held = 0

    @property
    def is_seen(self) -> bool:
        """Whether the progress is visible."""
        return self._bar.is_seen

    def show_lines(self, lines: Sequence[str]) -> None:
        """Show what was found so far, in place of what was shown before, until the look ends."""
        self._bar.show_lines(lines)

    def told(self, progress: LookProgress) -> None:
        """Show the progress."""
        match progress.stage:
            case LookStage.WAITING:
                self._wait_for(progress.holder)
            case LookStage.LOOKING:
                self._begin(progress)
                self._bar.explain(
                    f"{count_of(progress.wanted, 'message')} of {self._name} are held while this "
                    "command reads them; other consumers of the queue wait."
                )
                self._bar.show("reading", progress.looked_at, progress.wanted)
            case LookStage.READING:
                self._begin(progress)
                self._bar.show("reading", progress.looked_at, progress.wanted)
            case LookStage.RETURNING:
                self._most_held = max(self._most_held, progress.held)
                if progress.held < self._most_held or self._most_held <= progress.looked_at:
                    self._bar.show(
                        "returning messages", self._most_held - progress.held, self._most_held
                    )
                else:
                    self._bar.show(
                        "holding all messages, to keep their order", progress.held, progress.total
                    )
            case LookStage.ENDED:
                pass

    def _begin(self, progress: LookProgress) -> None:
        if not progress.looked_at:
            self._begun(progress)
            self._tell_price(progress.returns)

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


OnShown = Callable[[LookOutput], None]


@contextlib.contextmanager
def showing(
    printer: Printer,
    name: str,
    begun: Begun = lambda _: None,
    on_shown: OnShown = lambda _: None,
) -> Iterator[OnLook]:
    """Yield a callback for the progress of a look; a bar appears if it takes longer than a
    moment."""
    with printer.bar() as bar:
        output = LookOutput(printer, name, bar, begun)
        on_shown(output)
        yield output.told


def asked(
    printer: Printer,
    source: MessageSource,
    name: str,
    question: Callable[[Look], T],
    look_at: int | None = None,
    *,
    begun: Begun = lambda _: None,
    recall: CachePolicy | None = None,
    patience: float | None = None,
    on_shown: OnShown = lambda _: None,
) -> tuple[T, Look]:
    """Return the answer to a question about a look at failed messages, and the look. Notes say what
    could not be read, and whether an earlier look has answered."""
    with showing(printer, name, begun, on_shown) as told:
        answer, look = answer_of(
            source, question, look_at, recall=recall, on_progress=told, patience=patience
        )
    if look.answered_from == "index":
        printer.note(in_words_of_before(look))
    tell_missing(printer, name, look.missing)
    return answer, look


def tell_missing(printer: Printer, name: str, missing: int | None) -> None:
    """Print how many messages of a queue somebody else holds, if any."""
    if missing != 0:
        printer.note(held_by_others(name, missing, "missing from this answer"))


def in_words_of_before(look: Look) -> str:
    """Return a sentence about the earlier look that has answered."""
    assert look.as_of is not None
    now = ""
    if look.depth_problem:
        now = f" How many are in it now is unknown: {look.depth_problem}"
    elif look.depth_now is not None and look.depth_now != look.total:
        change = look.depth_now - look.total
        now = f" The queue has {abs(change):,} {'more' if change > 0 else 'fewer'} now."
    age = age_in_words(look.as_of, datetime.now(UTC))
    return (
        f"From the look of {_when(look.as_of)} ({age}), "
        f"{count_of(look.total, 'message')}; --fresh looks again.{now}"
    )


def _when(moment: datetime) -> str:
    """Return a time as text, with the date unless it is today."""
    is_today = moment.astimezone(UTC).date() == datetime.now(UTC).date()
    return f"{moment.astimezone(UTC):{'%H:%M:%S' if is_today else '%Y-%m-%d %H:%M:%S'}} UTC"


def check_read(name: str, looked_at: int, missing: int | None, chosen: int | None = None) -> None:
    """Check that a command that changes something has read messages to act on."""
    if missing == 0:
        return
    if not looked_at:
        raise NothingFound(f"no message of {name!r} could be read\nTry again when that has ended.")
    if chosen == 0:
        raise NothingFound(
            f"none of the {looked_at:,} messages of {name!r} that could be read was chosen\n"
            "Try again when that has ended."
        )


def planned(printer: Printer, failed: FailedQueue, order: Order) -> Plan:
    """Return what an order would send; print what could not be read."""
    name = source_of(failed).queue
    with showing(printer, name) as told:
        plan = plan_order(failed, order, on_progress=told)
    tell_missing(printer, name, plan.missing)
    check_read(name, plan.looked_at, plan.missing, plan.matching)
    return plan


def chosen_by_id(printer: Printer, failed: FailedQueue, ids: list[str]) -> list[FailedMessage]:
    """Return the messages of a failed queue that have these ids, for a command that acts on
    them."""
    name = source_of(failed).queue
    found, look = asked(printer, failed, name, lambda look: look.all_named(ids))
    check_read(name, look.looked_at, look.missing)
    return found
