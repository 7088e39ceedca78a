"""What `redrive spark` says of a plan, and at its end."""

from typing import TYPE_CHECKING

import typer

from redrive.cli.messages import tell_shared_ids
from redrive.cli.output import Cell, Column, Printer, count_of
from redrive.topology.moves import MOST_REDRIVES

if TYPE_CHECKING:
    from redrive.spark_reprocess.archive import Run
    from redrive.spark_reprocess.identity import Identity
    from redrive.spark_reprocess.job import Reprocess
    from redrive.spark_reprocess.planning import Plan

_FEW_GROUPS = 10


def tell_plan(printer: Printer, planned: "Plan", verb: str = "would be sent") -> None:
    """What is there by cause, and what of it would be sent."""
    from redrive.spark_reprocess.page import size_in_words

    printer.say(
        f"{count_of(planned.count, 'message')} ({size_in_words(planned.size)}) in the archive; "
        f"{planned.picked:,} ({size_in_words(planned.picked_size)}) {verb}."
    )
    if planned.too_often:
        printer.say(f"{count_of(planned.too_often, 'message')} stay: sent back {MOST_REDRIVES} times already; see --force.", "yellow")
    if not planned.groups:
        return
    shown = planned.groups[:_FEW_GROUPS]
    printer.table(
        (
            Column("messages", "right"),
            Column("picked", "right"),
            Column("queue"),
            Column("error", give=True),
            Column("text of one", give=True),
            Column("last failed"),
            Column("group"),
        ),
        [
            (
                f"{group.count:,}",
                f"{group.picked:,}",
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
        printer.say(f"and {count_of(len(planned.groups) - len(shown), 'further cause')}: see the page")


def end(printer: Printer, job: "Reprocess", run: "Run", identity: "Identity") -> None:
    """The job's last lines, and its exit code."""
    printer.result(identity.to_dict())
    if identity.possible_duplicates:
        printer.say(
            f"{count_of(identity.possible_duplicates, 'message')} may be there twice: "
            "a task or a connection ended while they were on their way.",
            "yellow",
        )
    tell_shared_ids(printer, identity.shared_ids)
    if identity.refused:
        printer.say(f"{count_of(identity.refused, 'message')} could not be sent, and stay in the archive:", "red")
        printer.table(
            (Column("id"), Column("error", give=True, wrap=True)),
            [(one["id"][:12], one["error"]) for one in identity.refusals[:_FEW_GROUPS]],
        )
    printer.say(f"The report: {job.archive.storage.uri}/reports/{run.id}.json")
    printer.say(str(identity) if identity.holds else f"It does not add up: {identity}", "" if identity.holds else "red")
    if not identity.holds or identity.refused:
        raise typer.Exit(1)
