"""Guards of a requeue, on one machine and on Spark: their options, and what is printed and asked
before anything is sent."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import Printer, TableColumn
from redrive.failures import wording
from redrive.failures.message.route import NO_WAY, Route, Verdict
from redrive.failures.queue.canary import Guards, Unknown
from redrive.failures.queue.outcome_watch import MessageCounts
from redrive.number_text import count_of
from redrive.redaction import in_one_line
from redrive.topology.durations import duration_of
from redrive.topology.rewrite import MOST_REDRIVES

Canary = Annotated[
    int | None,
    typer.Option(
        "--canary",
        metavar="N",
        min=1,
        show_default=False,
        help="Requeue N messages first; continue only once each of them has succeeded, and stop at "
        "the first one that fails or is retried.",
    ),
]
Watch = Annotated[
    str | None,
    typer.Option(
        "--watch",
        metavar="DURATION",
        show_default=False,
        help="How long to watch the canary at most: 60s, 5m. Default: as long as its retries would "
        "take.",
    ),
]
StopAt = Annotated[
    str | None,
    typer.Option(
        "--stop-at",
        metavar="PERCENT",
        show_default=False,
        help="Stop once more than this share of the requeued messages is retried or has failed "
        "again: 5%.",
    ),
]
OnUnknown = Annotated[
    Unknown,
    typer.Option(
        "--unknown",
        help="What to do if the outcome of some of the canary is unknown when the watch ends. "
        "go-on is for consumers without redrive, which report no outcomes.",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help=f"Include messages that were requeued {MOST_REDRIVES} times before."
    ),
]


Unchecked = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="Include messages of a dead-letter queue whose way back the broker can neither "
        "confirm nor contradict.",
    ),
]
_MOST_REASONS = 5
_REMEDIES = {
    Verdict.UNKNOWN: "--to names one for {them}.",
    Verdict.CONTRADICTED: "--to names a queue for {them}.",
    Verdict.UNCHECKED: "--unchecked includes {them}; --to names a queue.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """Options that stop a requeue if its messages fail again."""

    canary: Canary = None
    watch: Watch = None
    stop_at: StopAt = None
    unknown: OnUnknown = Unknown.STOP
    force: Force = False

    @property
    def guards(self) -> Guards:
        """Guards that these options ask for."""
        return Guards(
            self.canary or 0,
            None if self.watch is None else duration_of(self.watch),
            None if self.stop_at is None else options.share_of(self.stop_at),
            self.unknown,
        )


def tell_too_often(printer: Printer, count: int) -> None:
    """Print how many messages stay because they were requeued too often, if any."""
    if count:
        remedy = wording.pluralized("--force includes {them}.", count)
        printer.say(f"{wording.too_often(count)} {remedy}", "yellow")


def tell_left(printer: Printer, left: Mapping[Route, int]) -> None:
    """Print how many messages stay because their way back is not certain, why, and what helps."""
    for verdict, remedy in _REMEDIES.items():
        routes = Counter({one: count for one, count in left.items() if one.verdict is verdict})
        count = routes.total()
        if not count:
            continue
        what_helps = wording.pluralized(remedy, count)
        printer.say(f"{wording.not_included(verdict, count)} {what_helps}", "yellow")
        shown = [(one, count) for one, count in routes.most_common(_MOST_REASONS) if one.reason]
        if shown and shown != [(NO_WAY, count)]:
            columns = (
                TableColumn("count", "right"),
                TableColumn("to", give=True),
                TableColumn("why", give=True, wrap=True),
            )
            rows = [
                (f"{count:,}", "–" if one.way is None else in_one_line(str(one.way)), one.reason)
                for one, count in shown
            ]
            printer.table(columns, rows)
        if len(routes) > _MOST_REASONS:
            printer.say(f"… and {count_of(len(routes) - _MOST_REASONS, 'more reason')}.")


def ask_unchecked(printer: Printer, left: Mapping[Route, int], *, yes: bool) -> bool:
    """Ask whether to include messages whose way back the broker could not confirm; return False if
    there are none, or nobody can be asked."""
    unchecked = Counter({one: n for one, n in left.items() if one.verdict is Verdict.UNCHECKED})
    if not unchecked or yes or not sys.stdin.isatty():
        return False
    tell_left(printer, unchecked)
    return printer.confirm("Include what could not be confirmed?", yes=False)


def tell(printer: Printer, places: Sequence[MessageCounts]) -> None:
    """Print who consumes the queues that messages go to, and how many messages wait there."""
    for place in places:
        if place.main is not None:
            printer.say(f"{place.queue} has {place.main}.", "yellow" if place.is_unconsumed else "")


def ask(
    printer: Printer, count: int, places: Sequence[MessageCounts], *, guarded: bool, yes: bool
) -> bool:
    """Ask whether to requeue messages; return the answer."""
    question = f"Requeue {count_of(count, 'message')}?"
    nobody = _nobody_consumes(places)
    if not nobody:
        return printer.confirm(question, yes=yes)
    if refused(printer, places, guarded=guarded, yes=yes):
        return False
    onward = "".join(f" {place.queue}: {place.onward}." for place in places if place.onward)
    if yes:
        waits = "." if onward else ": messages wait there until somebody does."
        printer.say(f"{nobody}{waits}{onward}", "yellow")
        return True
    return printer.confirm(f"{nobody}.{onward} {question}", yes=False)


def refused(printer: Printer, places: Sequence[MessageCounts], *, guarded: bool, yes: bool) -> bool:
    """Return whether a guarded requeue is refused because nobody consumes its queues and --yes
    skips the question; print why."""
    nobody = _nobody_consumes(places)
    if not (nobody and guarded and yes):
        return False
    printer.say(
        f"{nobody}, so no outcome would be seen. Start the consumers, or leave out --canary and "
        "--stop-at.",
        "red",
    )
    return True


def _nobody_consumes(places: Sequence[MessageCounts]) -> str:
    """Return a sentence about the queues without consumers; empty if there are none."""
    unconsumed = [place.queue for place in places if place.is_unconsumed]
    return f"Nobody consumes {', '.join(unconsumed)}" if unconsumed else ""
