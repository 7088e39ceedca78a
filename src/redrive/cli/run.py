"""`redrive run`: runs the subscribers of a program."""

import asyncio
import contextlib
import importlib
import logging
import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeGuard

import typer

import redrive
from redrive.cli import options
from redrive.cli.metrics_server import place_of, serving
from redrive.cli.output import Form
from redrive.errors import ConfigurationError
from redrive.pubsub.logs import JsonFormatter, TextFormatter

if TYPE_CHECKING:
    from redrive.pubsub.aio.subscriber import AsyncSubscriber

_EXAMPLE = "Give module:name, such as shop.orders:subscriber."


class LogFormat(StrEnum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def run(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:SUBSCRIBER", help="A subscriber to run: shop.orders:subscriber."
        ),
    ],
    log_level: Annotated[
        Level, typer.Option("--log-level", help="How much to log, to standard error.")
    ] = Level.INFO,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format", metavar="text|json", help="Log text, or one JSON object per line."
        ),
    ] = LogFormat.TEXT,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            show_default=False,
            help="Serve /metrics for Prometheus, /health and /ready at this address. :9464 is that "
            "port on every interface; write an IPv6 address in brackets, [::1]:9464.",
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
    output: options.Output = Form.TABLE,
) -> None:
    """Run the subscribers of a program.

    They are of either shell: all of them Subscribers, or all AsyncSubscribers, which share one
    event loop. They run until SIGTERM or Ctrl-C; then the command waits for the handlers that are
    running and exits with 0. Modules are imported with the current directory on the path. Each
    subscriber connects to the broker that the program gave it.

    \b
    Example:
      redrive run shop.orders:subscriber shop.users:subscriber --metrics :9464
    """
    for name, value in (("--url", url), ("--exchange", exchange)):
        if value is not None:
            raise ConfigurationError(
                f"run takes no {name}: each subscriber has its own",
                f"Leave {name} out and set it in the program.",
            )
    if management_url is not None and metrics is None:
        raise ConfigurationError(
            "--management-url is for what --metrics serves", "Give --metrics, too."
        )
    _log_to_stderr(log_level, log_format)
    sys.path.insert(0, os.getcwd())
    place = None if metrics is None else place_of(metrics)
    subscribers = list(dict.fromkeys(map(subscriber_at, targets)))
    blocking = [one for one in subscribers if isinstance(one, redrive.Subscriber)]
    asynchronous = [one for one in subscribers if _is_async(one)]
    if blocking and asynchronous:
        raise ConfigurationError(
            f"queue {blocking[0].subscription.queue!r} has a Subscriber, and queue "
            f"{asynchronous[0].subscription.queue!r} an AsyncSubscriber",
            "Run them in two processes, each with a `redrive run` of its own.",
        )
    with contextlib.nullcontext() if place is None else serving(place, subscribers, management_url):
        if asynchronous:
            asyncio.run(redrive.run_async(*asynchronous))
        else:
            redrive.run(*blocking)


def subscriber_at(target: str) -> "redrive.Subscriber | AsyncSubscriber":
    """Return the subscriber that `module:name` names.

    Raises:
        ConfigurationError: there is none; the message says whether it is the module or the name.
    """
    module_name, separator, path = target.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(f"{target!r} does not name a subscriber", _EXAMPLE)
    found: object = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigurationError(
                f"the module {module_name!r} has no {path!r}", _subscribers_in(module_name)
            ) from error
    if not isinstance(found, redrive.Subscriber) and not _is_async(found):
        raise ConfigurationError(
            f"{target} is of type {type(found).__name__}, not a Subscriber",
            _subscribers_in(module_name),
        )
    return found


def _log_to_stderr(level: Level, form: LogFormat) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter())
    # Of pika's debug lines there are dozens for each message, and what goes wrong redrive says
    # itself.
    handler.addFilter(lambda record: record.name.partition(".")[0] != "pika")
    logging.basicConfig(level=level.name, handlers=[handler])


def _module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {name!r} in {os.getcwd()} or installed",
                "Check the name and the directory.",
            ) from error
        raise _broken(name, error) from error
    except redrive.RedriveError:
        raise
    except Exception as error:  # whatever a program raises while it is imported
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> ConfigurationError:
    place = ""
    trace = (
        None if isinstance(error, SyntaxError) else error.__traceback__
    )  # a SyntaxError says itself where it is
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith("<frozen"):
            place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return ConfigurationError(
        f"the module {name!r} can't be imported: {type(error).__name__}: "
        f"{' '.join(str(error).split())}{place}",
        "REDRIVE_DEBUG=1 shows the traceback.",
    )


def _is_async(value: object) -> "TypeGuard[AsyncSubscriber]":
    """Whether it is an AsyncSubscriber. Where the program has not imported them, nothing is, and
    their client may not be installed."""
    module = sys.modules.get("redrive.pubsub.aio.subscriber")
    return module is not None and isinstance(value, module.AsyncSubscriber)


def _subscribers_in(module_name: str) -> str:
    names = [
        name
        for name, value in vars(sys.modules[module_name]).items()
        if isinstance(value, redrive.Subscriber) or _is_async(value)
    ]
    if not names:
        return f"There is no Subscriber in {module_name}."
    return f"There is {' and '.join(f'{module_name}:{name}' for name in names)}."
