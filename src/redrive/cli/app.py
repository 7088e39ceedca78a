"""The application and its commands."""

import os
from typing import Annotated

import typer

from redrive.cli.environment import redact_as_told
from redrive.cli.lazy_group import CommandEntry, lazy_group
from redrive.cli.output import NO_PROGRESS

_HELP = """
Retry topology for RabbitMQ: publish, retry after a delay, give up into a failed queue, and requeue
after the fix.

Every command connects to the broker given by --url or the environment variable REDRIVE_URL, and
prints a table or, with --output json, JSON. It exits with 0 when it succeeded, with 1 when it found
a problem, and with 2 when it could not run.

\b
Start with:
  redrive demo
  redrive declare --queue ucenter@user --routing-key 'user.*'
  redrive status ucenter@user
"""

app = lazy_group(
    _HELP,
    {
        "declare": CommandEntry(
            "redrive.cli.declare:declare", "Create the queues of a subscription."
        ),
        "status": CommandEntry(
            "redrive.cli.status:status", "Show how many messages are in the queues."
        ),
        "pause": CommandEntry(
            "redrive.cli.pause:pause", "Stop a subscription's workers from taking messages."
        ),
        "resume": CommandEntry("redrive.cli.pause:resume", "Let a paused subscription go on."),
        "scheduled": CommandEntry(
            "redrive.cli.scheduled:scheduled",
            "Show how many messages wait for their time, and until when.",
        ),
        "top": CommandEntry("redrive.cli.top:top", "Watch all subscriptions live."),
        "doctor": CommandEntry("redrive.cli.doctor:doctor", "Find problems and print their fixes."),
        "publish": CommandEntry("redrive.cli.publish:publish", "Publish one message."),
        "run": CommandEntry("redrive.cli.run:run", "Run an app, or the subscribers of a program."),
        "exporter": CommandEntry(
            "redrive.cli.exporter:exporter",
            "Serve queue metrics to Prometheus, without any worker.",
        ),
        "failed": CommandEntry(
            "redrive.cli.failed:app", "Look at failed messages, requeue them, or delete them."
        ),
        "causes": CommandEntry(
            "redrive.cli.causes:app", "Track causes: set their states, merge duplicates."
        ),
        "dlq": CommandEntry(
            "redrive.cli.dlq:app", "Find dead-letter queues that redrive did not make."
        ),
        "jobs": CommandEntry(
            "redrive.cli.jobs:app", "See what was done with failed messages, and resume a job."
        ),
        "web": CommandEntry(
            "redrive.cli.web:web",
            "Open the console: failed messages, their causes and jobs, in a browser.",
        ),
        "watch": CommandEntry("redrive.cli.watch:watch", "Alert when failed queues grow."),
        "spark": CommandEntry("redrive.cli.spark:app", "Requeue failed messages by the million."),
        "topology": CommandEntry(
            "redrive.cli.topology_app:app", "Keep the topology in a file: plan, apply, check."
        ),
        "demo": CommandEntry("redrive.cli.demo:demo", "Watch messages fail and come back."),
    },
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"redrive {version('redrive')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _redrive(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    no_progress: Annotated[
        bool,
        typer.Option(
            "--no-progress",
            envvar=NO_PROGRESS,
            show_envvar=True,
            help="Show no progress bars.",
        ),
    ] = False,
) -> None:
    redact_as_told()
    if no_progress:
        os.environ[NO_PROGRESS] = "1"
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
