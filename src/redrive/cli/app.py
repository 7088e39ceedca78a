"""The application: what commands there are."""

import os
from typing import Annotated

import typer

from redrive.cli import declaring, demo, doctor, failed, jobs, publishing, running, spark, status, top, topologies, watching
from redrive.cli.output import NO_PROGRESS

_HELP = """
Retry topology for RabbitMQ: publish, retry after a delay, set aside what keeps failing, and send it back after the fix.

Every command finds the broker by --url or the environment variable REDRIVE_URL, and prints a table for people or, with --output json,
JSON for programs. It exits with 0 when it is done, with 1 when it found something wrong, and with 2 when it could not do it.

\b
Begin with:
  redrive demo
  redrive declare --queue ucenter@user --routing-key 'user.*'
  redrive status ucenter@user
"""

app = typer.Typer(
    name="redrive",
    help=_HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and leave.")
    ] = False,
    no_progress: Annotated[
        bool, typer.Option("--no-progress", envvar=NO_PROGRESS, show_envvar=True, help="Show no bars at a terminal.")
    ] = False,
) -> None:
    if no_progress:
        os.environ[NO_PROGRESS] = "1"
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("declare", short_help="Make the queues of a subscription.")(declaring.declare)
app.command("status", short_help="Show how much is in the queues.")(status.status)
app.command("top", short_help="Watch all subscriptions.")(top.top)
app.command("doctor", short_help="Say what will hurt, and how to mend it.")(doctor.doctor)
app.command("publish", short_help="Publish one message.")(publishing.publish)
app.command("run", short_help="Run the subscribers of a program.")(running.run)
app.add_typer(failed.app, name="failed", short_help="Understand failed messages, send them back, delete them.")
app.add_typer(jobs.app, name="jobs", short_help="See what was done with failed messages, and go on with it.")
app.command("watch", short_help="Tell when failed queues grow.")(watching.watch)
app.add_typer(spark.app, name="spark", short_help="Send failed messages back by the million.")
app.add_typer(topologies.app, name="topology", short_help="Keep the topology in a file: plan, apply, check.")
app.command("demo", short_help="Watch messages fail, and come back.")(demo.demo)
