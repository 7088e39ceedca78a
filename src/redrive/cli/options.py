"""Options that commands share: the broker, the exchange family, and the output format."""

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, get_type_hints

import typer

from redrive.cli import completion, environment
from redrive.cli.output import OutputFormat, RowsFormat
from redrive.errors import ConfigurationError
from redrive.pubsub.blocking.connection_pool import ConnectionPool
from redrive.topology.names import ExchangeFamily

DEFAULT_URL, URL_VARIABLE = environment.DEFAULT_URL, environment.URL_VARIABLE
_FAMILY = ExchangeFamily()
DEFAULT_EXCHANGE, DEFAULT_RETRY_SUFFIX, DEFAULT_FAILED_SUFFIX = (
    _FAMILY.main,
    _FAMILY.retry_suffix,
    _FAMILY.failed_suffix,
)


def _management_url(context: typer.Context, given: str | None) -> str | None:
    # Options on the command line are processed before those from the environment.
    source = context.get_parameter_source("management_url")
    from_environment = source is not None and source.name == "ENVIRONMENT"
    url = context.params.get("url")
    if url is None:
        return given
    return environment.management_url_for(url, given, from_environment=from_environment)


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        metavar="URL",
        show_default=False,
        help="The broker's address, amqp://user:password@host:5672/virtual-host. Default: guest at "
        "localhost.",
    ),
]
Exchange = Annotated[
    str,
    typer.Option(
        "--exchange",
        envvar=environment.EXCHANGE_VARIABLE,
        metavar="NAME",
        help="The main exchange of the exchange family.",
    ),
]
RetrySuffix = Annotated[
    str,
    typer.Option("--retry-suffix", metavar="TEXT", help="The suffix of the retry exchange's name."),
]
FailedSuffix = Annotated[
    str,
    typer.Option(
        "--failed-suffix", metavar="TEXT", help="The suffix of the failed exchange's name."
    ),
]
ManagementUrl = Annotated[
    str | None,
    typer.Option(
        "--management-url",
        envvar=environment.MANAGEMENT_VARIABLE,
        metavar="URL",
        show_default=False,
        callback=_management_url,
        help="The management API's address, for what AMQP can't tell. Default: port 15672 of the "
        "broker's host. Append ?cacertfile=FILE to name the CA of an https address.",
    ),
]
Output = Annotated[
    OutputFormat,
    typer.Option("--output", metavar="table|json", help="Print tables, or JSON."),
]
RowsOutput = Annotated[
    RowsFormat,
    typer.Option("--output", metavar="table|json|csv", help="Print a table, JSON, or CSV."),
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="N/s",
        help="The most messages to send per second, minute or hour: 200/s, 30/m, 500/h.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Queue = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="The main queue's name, such as ucenter@user.",
        autocompletion=completion.queues,
    ),
]
FailedQueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="The main queue's name, such as ucenter@user, or any dead-letter queue's.",
        autocompletion=completion.queues,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="QUEUE",
        help="The queue to send them to, instead of the one that each failed in.",
        autocompletion=completion.queues,
        show_default=False,
    ),
]
Via = Annotated[
    bool,
    typer.Option(
        "--via",
        help="Send each to the exchange, and with the routing key, that it was first published "
        "with. Every queue bound there gets a copy.",
    ),
]
Literal = Annotated[
    bool,
    typer.Option(
        "--literal",
        help="Read the queue QUEUE itself, even if there is a subscription of this name.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Options that say where the broker is."""

    management_url: ManagementUrl = None
    url: Url = DEFAULT_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyOptions(BrokerOptions):
    """Options that say where the broker is, and which exchange family to use there."""

    exchange: Exchange = DEFAULT_EXCHANGE
    retry_suffix: RetrySuffix = DEFAULT_RETRY_SUFFIX
    failed_suffix: FailedSuffix = DEFAULT_FAILED_SUFFIX

    @property
    def family(self) -> ExchangeFamily:
        """Exchange family that these options name."""
        return ExchangeFamily(self.exchange, self.retry_suffix, self.failed_suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(FamilyOptions):
    """Options that say where the broker is, and which of its queues a name refers to."""

    literal: Literal = False


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the single options of each parameter that is an object of options, and a
    pool of connections that its steps share.

    typer only knows single parameters, so each field of the object becomes one, at the object's
    place in the help. The command itself still gets the object, such as `BrokerOptions`.
    """
    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    objects: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        kind = hints[parameter.name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(
                parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            )
            continue
        objects[parameter.name] = kind
        of_fields = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=one.default,
                annotation=of_fields[one.name],
            )
            for one in fields(kind)
            if one.init
        ]

    @functools.wraps(command)
    def call(**given: object) -> None:
        for name, kind in objects.items():
            values = {one.name: given.pop(one.name) for one in fields(kind) if one.init}
            given[name] = kind(**values)
        with ConnectionPool.opened():
            command(**given)

    vars(call)["__signature__"] = signature.replace(parameters=parameters)
    call.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return call


def share_of(text: str) -> float:
    """Return the share in a text such as `5%`: 0.05."""
    number = text.removesuffix("%")
    if (
        not text.endswith("%")
        or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number)
        or float(number) > 100
    ):
        raise ConfigurationError(
            f"the share {text!r} can't be read", "Give a percentage from 0% to 100%, such as 5%."
        )
    return float(number) / 100
