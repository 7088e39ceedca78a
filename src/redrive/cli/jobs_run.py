"""`redrive jobs run`: runs a job that the journal has, as a console does."""

import json
import os
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from redrive.cli import job_options, job_run, jobs_show, options
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError
from redrive.failures.jobs.approval import approve
from redrive.failures.jobs.approval_rule import check_may_approve
from redrive.failures.jobs.job_record import State
from redrive.failures.jobs.job_stop import check_alone
from redrive.failures.jobs.run_reporter import RunReporter
from redrive.failures.queue.plan import Plan
from redrive.failures.store.operator_name import acting_for
from redrive.redaction import in_one_line

_MOST_BYTES = 64 * 1024


@options.expanded
def run(
    id_: job_options.JobId,
    journal: job_options.JournalFile = None,
    digest: job_options.Digest = None,
    yes: options.Yes = False,
    console: Annotated[
        int | None,
        typer.Option("--console", hidden=True, help="The pipe from the console that started this."),
    ] = None,
    *,
    broker: job_options.RecordedJobOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Run a job that was written down, as a console does.

    The job waits to be run, or was interrupted or stopped. If it waits for approval, this approves
    it, which whoever asked for it can't do. It runs no Python function: redrive jobs resume does.
    At a terminal, the whole order is shown first. A script names the order that it runs with
    --digest; a different order under the same id is refused.

    \b
    Example:
      redrive jobs run 3f2a9c1e
    """
    printer = Printer(output)
    with ExitStack() as stack:
        if console is not None:
            said = _said_by(console)
            url, management_url = said["url"] or "", said["management_url"]
            broker = replace(broker, url=url, management_url=management_url)
            stack.enter_context(acting_for(said["operator"] or ""))
        program = "command line" if console is None else "console"
        opened = stack.enter_context(
            job_options.opened_journal(printer, journal, broker.url, program)
        )
        record = opened.job(id_)
        if record.kind != "requeue" or record.state in (State.DONE, State.DECLINED):
            raise ConfigurationError(
                f"job {record.id} ({in_one_line(record.kind)}) is {record.state.value}",
                f"There is nothing to run. See: redrive jobs show {record.id}.",
            )
        if record.state is State.ASKED:
            check_may_approve(record, opened.signed(record))
        failed = job_run.failed_queue_of(printer, record, broker)
        job = failed.job(record.id, opened)
        order = job.order
        if order.function is not None:
            raise ConfigurationError(
                f"job {record.id} changes bodies by the function {in_one_line(order.function)}",
                f"Run it with redrive jobs resume {record.id}, which imports the function.",
            )
        jobs_show.check_shown(printer, record, digest, "Run it?", yes=yes)
        reporter = RunReporter(opened, record.id)
        if record.state is State.ASKED:
            plan = Plan(looked_at=record.planned, count=record.planned)
            carry_out = partial(approve, failed, opened, record)
        else:
            plan = job.left()
            if record.state is State.WAITING:
                # Another requeue may have started since it was written down.
                check_alone(opened, record.queue)
            carry_out = partial(job.resume, plan)
        reporter.planned(plan.count)
        job_run.run_job(printer, failed, order, plan, carry_out, reporter)


def _said_by(console: int) -> dict[str, str | None]:
    """Return what the console says in its first line, and end this process as Ctrl-C does once the
    console is gone. Its address has a password, which nobody else may read."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        some = os.read(console, 1)
        if not some:
            raise KeyboardInterrupt
        line += some
    threading.Thread(target=_end_with, args=(console,), daemon=True).start()
    said: dict[str, str | None] = json.loads(line)
    return said


def _end_with(console: int) -> None:
    while os.read(console, 1):
        pass
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # nobody reads what is printed any more
    os.kill(os.getpid(), signal.SIGINT)
