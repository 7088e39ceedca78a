"""What commands that run until they are stopped log, and how."""

import logging
import sys
from enum import StrEnum
from typing import Annotated

import typer

from redrive.pubsub.logs import JsonFormatter, TextFormatter

_CLIENTS = frozenset({"pika", "httpx", "httpcore"})


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


LogLevelOption = Annotated[
    Level, typer.Option("--log-level", help="How much to log, to standard error.")
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", metavar="text|json", help="Log text, or one JSON object per line."
    ),
]


def log_to_stderr(level: Level, form: LogFormat) -> None:
    """Log to standard error, without the lines of client libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter())
    # Of pika's debug lines there are dozens for each message, httpx has one for each request, and
    # what goes wrong redrive says itself.
    handler.addFilter(lambda record: record.name.partition(".")[0] not in _CLIENTS)
    logging.basicConfig(level=level.name, handlers=[handler])
