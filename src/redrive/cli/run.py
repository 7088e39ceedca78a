"""`redrive run`: runs an app, or the subscribers of a program."""

import contextlib
import os
import sys
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.log_options import Level, LogFormat, LogFormatOption, LogLevelOption, log_to_stderr
from redrive.cli.metrics_server import MetricsAddress, place_of, serving
from redrive.cli.output import OutputFormat
from redrive.cli.program import program_at
from redrive.errors import ConfigurationError
from redrive.pubsub.url import Endpoint


def run(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:NAME",
            help="The app to run, or one subscriber or more: shop.service:app.",
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="QUEUE",
            show_default=False,
            help="Of an app, consume this queue alone; may be given several times.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=256,
            show_default=False,
            help="Run so many processes, each with all subscribers. One that dies is started "
            "again.",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="While you write the program: start over when a Python file below the current "
            "directory changes.",
        ),
    ] = False,
    log_level: LogLevelOption = Level.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            show_default=False,
            help="Serve /metrics for Prometheus, /health and /ready at this address. :9464 is that "
            "port on every interface; write an IPv6 address in brackets, [::1]:9464. With "
            "--workers, the second worker has the next port, and so on.",
        ),
    ] = None,
    management_url: Annotated[
        str | None,
        typer.Option(
            "--management-url",
            metavar="URL",
            show_default=False,
            help="With --metrics: the management API of the subscribers' broker, such as "
            "http://rabbit:15672, to measure how much is in their queues, too.",
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", hidden=True)] = None,
    exchange: Annotated[str | None, typer.Option("--exchange", hidden=True)] = None,
    worker: Annotated[int | None, typer.Option("--worker", hidden=True)] = None,
    output: options.Output = OutputFormat.TABLE,
) -> int:
    """Run an app, or the subscribers of a program.

    An App or an AsyncApp runs with all of its subscribers, or with those of the queues that --only
    names. Subscribers by themselves are of one shell: all of them Subscribers, or all
    AsyncSubscribers, which share one event loop. All run until SIGTERM or Ctrl-C; then the command
    waits for the handlers that are running and exits with 0; a second signal ends it at once.
    Modules are imported with the current directory on the path. Each connects to the broker that
    the program gave it, an app without a URL to the one of REDRIVE_URL.

    \b
    Examples:
      redrive run shop.service:app --workers 4 --metrics :9464
      redrive run shop.service:app --only ucenter@user --reload
      redrive run shop.orders:subscriber shop.users:subscriber
    """
    for name, value in (("--url", url), ("--exchange", exchange)):
        if value is not None:
            raise ConfigurationError(
                f"run takes no {name}: the program has its own",
                f"Leave {name} out and set it in the program.",
            )
    if management_url is not None and metrics is None:
        raise ConfigurationError(
            "--management-url is for what --metrics serves", "Give --metrics, too."
        )
    if reload and workers is not None:
        raise ConfigurationError(
            "--reload is for one process, and --workers for several", "Leave one of them out."
        )
    place = None if metrics is None else place_of(metrics)
    log_to_stderr(log_level, log_format)

    def words(number: int) -> list[str]:
        """What the worker with this number, from 1, is told."""
        told = ["run", *targets, "--log-level", log_level, "--log-format", log_format]
        for queue in only or ():
            told += ["--only", queue]
        if place is not None:
            told += ["--metrics", str(_next_place(place, number - 1))]
        if management_url is not None:
            told += ["--management-url", management_url]
        return [*told, "--output", output, "--worker", str(number)]

    if reload:
        from redrive.cli.reloader import Reloader

        Reloader(words(1)).run()
        return 0
    if worker is not None:
        from redrive.cli.worker_group import end_with_parent

        end_with_parent()
    sys.path.insert(0, os.getcwd())
    program = program_at(targets, only)
    if workers is not None:
        from redrive.cli.worker_group import WorkerGroup

        program.check_may_be_several()
        return WorkerGroup(workers, words).run()
    with (
        contextlib.nullcontext()
        if place is None
        else serving(place, program.subscribers, management_url)
    ):
        program.run()
    return 0


def _next_place(place: MetricsAddress, further: int) -> Endpoint:
    """So many ports further; port 0 is any that is free."""
    return Endpoint(place.host, place.port + further if place.port else 0)
