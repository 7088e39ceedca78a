"""Logging options of commands that run until they are stopped."""

import logging
import sys
from enum import StrEnum
from typing import Annotated

import typer

from redrive.pubsub.logs import JsonFormatter, TextFormatter

_CLIENTS = frozenset({"pika", "httpx", "httpcore"})


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """The least severe level that is logged."""

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
    # pika logs dozens of debug lines for each message and httpx one for each request, and redrive
    # reports errors itself.
    handler.addFilter(lambda record: record.name.partition(".")[0] not in _CLIENTS)
    logging.basicConfig(level=level.name, handlers=[handler])
