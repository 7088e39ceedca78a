"""What guards a requeue, on one machine and on Spark alike: its options, and what is said and asked before anything is sent."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from redrive.cli.output import Printer, count_of
from redrive.failures.canary import Unknown
from redrive.pubsub.blocking.watching import Whereabouts
from redrive.topology.durations import duration_of
from redrive.topology.moves import MOST_REDRIVES

Canary = Annotated[
    int | None,
    typer.Option(
        "--canary",
        metavar="N",
        min=1,
        show_default=False,
        help="Send so many first; go on only when each of them has succeeded, and stop at the first that fails or is retried.",
    ),
]
Watch = Annotated[
    str | None,
    typer.Option(
        "--watch",
        metavar="DURATION",
        show_default=False,
        help="How long the canary is watched at most; without it, as long as its retries would take.",
    ),
]
StopAt = Annotated[
    str | None,
    typer.Option(
        "--stop-at",
        metavar="PERCENT",
        show_default=False,
        help="Stop when more than this share of what was sent is retried or has failed again: 5%.",
    ),
]
OnUnknown = Annotated[
    Unknown,
    typer.Option(
        "--unknown",
        help="What to do when nothing is known of some of the canary at the end of the watch: go-on is for consumers that tell nothing.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help=f"Also what was sent back {MOST_REDRIVES} times already.")]


def seconds_of(watch: str | None) -> float | None:
    """The seconds of a `--watch`; None where none was given.

    Raises:
        ConfigurationError: it can't be read.
    """
    return None if watch is None else duration_of(watch) / timedelta(seconds=1)


def tell(printer: Printer, places: Sequence[Whereabouts]) -> None:
    """Says who consumes the queues that messages go to, and how many messages wait there."""
    for place in places:
        if place.main is not None:
            printer.say(f"{place.queue} has {place.main}.", "yellow" if place.is_unconsumed else "")


def ask(printer: Printer, count: int, places: Sequence[Whereabouts], *, guarded: bool, yes: bool) -> bool:
    """Asks whether messages are to be sent; False where they are not.

    Args:
        printer: who asks.
        count: how many.
        places: the queues that they go to.
        guarded: whether a canary or a share has to be heard of: where nobody consumes, nothing would be.
        yes: whether the answer was given beforehand. It does not stand for what a guard can't see.

    Raises:
        ConfigurationError: there is nobody to ask.
    """
    question = f"Send {count_of(count, 'message')} back?"
    nobody = _nobody_consumes(places)
    if not nobody:
        return printer.confirm(question, yes=yes)
    if refused(printer, places, guarded=guarded, yes=yes):
        return False
    if yes:
        printer.say(f"{nobody}: what is sent waits there until somebody does.", "yellow")
        return True
    return printer.confirm(f"{nobody}. {question}", yes=False)


def refused(printer: Printer, places: Sequence[Whereabouts], *, guarded: bool, yes: bool) -> bool:
    """Whether nothing is to be sent, since nobody consumes and nobody is asked; it says so."""
    nobody = _nobody_consumes(places)
    if not (nobody and guarded and yes):
        return False
    printer.say(f"{nobody}, so nobody could tell what becomes of a message. Start its consumers, or leave out the guards.", "red")
    return True


def _nobody_consumes(places: Sequence[Whereabouts]) -> str:
    """That nobody consumes some queues; nothing where all are consumed."""
    unconsumed = [place.queue for place in places if place.is_unconsumed]
    return f"Nobody consumes {', '.join(unconsumed)}" if unconsumed else ""
