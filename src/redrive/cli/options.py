"""What the commands share: where the broker is, and how to print."""

import re
from typing import Annotated

import typer

from redrive.cli.output import Form
from redrive.errors import ConfigurationError
from redrive.topology.names import ExchangeFamily

DEFAULT_URL = "amqp://guest:guest@localhost:5672/"
_FAMILY = ExchangeFamily()
DEFAULT_EXCHANGE, DEFAULT_RETRY_SUFFIX, DEFAULT_FAILED_SUFFIX = _FAMILY.main, _FAMILY.retry_suffix, _FAMILY.failed_suffix

URL_VARIABLE = "REDRIVE_URL"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        metavar="URL",
        show_default=False,
        help="The broker's address, amqp://user:password@host:5672/virtual-host; without one, guest at localhost.",
    ),
]
Exchange = Annotated[str, typer.Option("--exchange", metavar="NAME", help="The main exchange of the family.")]
RetrySuffix = Annotated[str, typer.Option("--retry-suffix", metavar="TEXT", help="What makes the retry exchange's name of it.")]
FailedSuffix = Annotated[str, typer.Option("--failed-suffix", metavar="TEXT", help="What makes the failed exchange's name of it.")]
Output = Annotated[Form, typer.Option("--output", metavar="table|json", help="For people, or for programs.")]
ManagementUrl = Annotated[
    str | None,
    typer.Option(
        "--management-url",
        metavar="URL",
        show_default=False,
        help="Where the management API is, for what AMQP can't tell; without it, port 15672 of the broker's host. "
        "?cacertfile=FILE after it names the CA of an https one.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The main queue's name, such as ucenter@user.")]


_RATE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?:/(?P<unit>s|m|h))?")
_A_SECOND = {"s": 1.0, "m": 1 / 60, "h": 1 / 3600}


def rate_of(text: str) -> float:
    """The messages a second in a text such as `200/s` or `30/m`.

    Raises:
        ConfigurationError: it is none.
    """
    found = _RATE.fullmatch(text)
    rate = float(found["number"]) * _A_SECOND[found["unit"] or "s"] if found else 0.0
    if rate <= 0:
        raise ConfigurationError(f"the rate {text!r} can't be read", "Give messages a second, a minute or an hour: 200/s, 30/m, 500/h.")
    return rate


def share_of(text: str) -> float:
    """The share in a text such as `5%`: 0.05.

    Raises:
        ConfigurationError: it is none.
    """
    number = text.removesuffix("%")
    if not text.endswith("%") or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number) or float(number) > 100:
        raise ConfigurationError(f"the share {text!r} can't be read", "Give a percentage from 0% to 100%, such as 5%.")
    return float(number) / 100
