"""Output of `redrive spark`: the plan, and the end of a job."""

from collections import Counter
from typing import TYPE_CHECKING

import typer

from redrive.cli import guards
from redrive.cli.messages import tell_shared_ids
from redrive.cli.output import Cell, Printer, TableColumn
from redrive.failures import wording
from redrive.failures.message.route import Route, Verdict, WayBack
from redrive.number_text import count_of, size_in_words
from redrive.redaction import in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.spark_reprocess.archive import Archive
    from redrive.spark_reprocess.reconciliation import Reconciliation
    from redrive.spark_reprocess.run_plan import RunPlan

_FEW_GROUPS = 10


def tell_plan(
    printer: Printer,
    planned: "RunPlan",
    verb: str = "would be sent",
    *,
    place: str = "in the archive",
    page: str | None = None,
) -> None:
    """Print what is there, by cause, and how much of it would be sent."""
    printer.say(
        f"{count_of(planned.count, 'message')} ({size_in_words(planned.size)}) {place}; "
        f"{planned.chosen:,} ({size_in_words(planned.chosen_size)}) {verb}."
    )
    if planned.done_before:
        printer.say(
            f"{count_of(planned.done_before, 'message')} of this run were sent, restored or "
            "discarded before."
        )
    guards.tell_too_often(printer, planned.too_often)
    _tell_left(printer, planned)
    _tell_ways(printer, planned)
    if not planned.groups:
        return
    shown = planned.groups[:_FEW_GROUPS]
    printer.table(
        (
            TableColumn("messages", "right"),
            TableColumn("chosen", "right"),
            TableColumn("queue"),
            TableColumn("error", give=True),
            TableColumn("text of one", give=True),
            TableColumn("last failed"),
            TableColumn("group"),
        ),
        [
            (
                f"{group.count:,}",
                f"{group.chosen:,}",
                group.queue,
                Cell(group.error_type or "not known", "red" if group.error_type else "dim"),
                group.error_message or "–",
                f"{group.last:%Y-%m-%d %H:%M}" if group.last else "–",
                group.id,
            )
            for group in shown
        ],
    )
    if len(planned.groups) > len(shown):
        where = "--output json has all of them" if page is None else f"all are on the page {page}"
        printer.say(f"and {count_of(len(planned.groups) - len(shown), 'further cause')}: {where}")


def _tell_ways(printer: Printer, planned: "RunPlan") -> None:
    """Print how many messages go where, if that differs or if other queues get copies."""
    if len(planned.ways) > 1:
        columns = (TableColumn("to", give=True), TableColumn("count", "right"))
        ways = list(planned.ways.items())[:_FEW_GROUPS]
        printer.table(columns, [(in_one_line(way), f"{count:,}") for way, count in ways])
        if len(planned.ways) > len(ways):
            printer.say(f"… and {count_of(len(planned.ways) - len(ways), 'more queue')}.")
    if len(planned.queues) < len(planned.ways):
        printer.say(
            "Every queue that is bound to such an exchange with a matching key gets a copy.",
            "yellow",
        )


def _tell_left(printer: Printer, found: "RunPlan | Reconciliation") -> None:
    """Print how many messages have no certain way back, why, and some of them."""
    left: Counter[Route] = Counter()
    for one in found.left:
        way, verdict = one["way"], one["verdict"]
        route = Route(
            None if way is None else WayBack("", str(way)),
            Verdict.UNKNOWN if verdict is None else Verdict(str(verdict)),
            str(one["reason"] or ""),
        )
        left[route] += int(str(one["count"]))
    guards.tell_left(printer, left)
    _tell_without_way(printer, found.without_way_back, left.total())


def _tell_without_way(
    printer: Printer, some: "Sequence[Mapping[str, str | None]]", count: int
) -> None:
    """Print some of the messages without a known way back."""
    shown = some[:_FEW_GROUPS]
    if not shown:
        return
    printer.table(
        (
            TableColumn("id"),
            TableColumn("in", give=True),
            TableColumn("error", give=True),
            TableColumn("text", give=True),
        ),
        [
            (
                one["id"] or "",
                in_one_line(one["queue"] or ""),
                one["error_type"] or "not known",
                one["error_message"] or "–",
            )
            for one in shown
        ],
    )
    if count > len(shown):
        printer.say(f"and {count_of(count - len(shown), 'further message')}.")


def end(printer: Printer, archive: "Archive", identity: "Reconciliation") -> None:
    """Print the last lines of a job; exit with 1 if the numbers don't add up or a message could not
    be sent."""
    printer.result(identity.to_dict())
    if identity.possible_duplicates:
        told = wording.possible_duplicates(identity.possible_duplicates, "a task or a connection")
        printer.say(told, "yellow")
    tell_shared_ids(printer, identity.shared_ids)
    if identity.refused:
        printer.say(
            f"{count_of(identity.refused, 'message')} could not be sent, and stay in the archive:",
            "red",
        )
        printer.table(
            (TableColumn("id"), TableColumn("error", give=True, wrap=True)),
            [(one["id"][:12], one["error"]) for one in identity.refusals[:_FEW_GROUPS]],
        )
    if identity.in_doubt:
        stay = "stays" if identity.in_doubt == 1 else "stay"
        printer.say(
            f"{count_of(identity.in_doubt, 'message')} {stay} in the archive. Send them with "
            "redrive spark send --to QUEUE, or restore them:",
            "yellow",
        )
        _tell_left(printer, identity)
    printer.say(f"The page: {archive.page_of(identity.run)}")
    printer.say(f"The report: {archive.report_of(identity.run)}")
    printer.say(
        str(identity) if identity.holds else f"It does not add up: {identity}",
        "" if identity.holds else "red",
    )
    if not identity.holds or identity.refused:
        raise typer.Exit(1)
