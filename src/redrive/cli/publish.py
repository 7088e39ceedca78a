"""`redrive publish`: publishes one message by hand."""

import os
import sys
from typing import Annotated, cast

import typer

from redrive import strict_json
from redrive.cli import environment, options
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError, Unroutable
from redrive.pubsub.blocking.publisher import Publisher
from redrive.pubsub.codec import BINARY, JSON, TEXT, Codec
from redrive.pubsub.publisher_base import Extras


def publish(
    routing_key: Annotated[
        str, typer.Argument(metavar="KEY", help="The routing key, such as user.create.")
    ],
    body: Annotated[
        str,
        typer.Argument(
            metavar="BODY", help="The body, sent as given; - reads it from standard input."
        ),
    ],
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=VALUE",
            help="A header. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    content_type: Annotated[
        str | None,
        typer.Option(
            "--content-type",
            metavar="TYPE",
            help="The body's MIME type. Default: JSON, text or binary, whichever the body is.",
            show_default=False,
        ),
    ] = None,
    codec: Annotated[
        str,
        typer.Option(
            "--codec",
            metavar="json|php-envelope",
            help="Send the body as given, or wrap a JSON body in the envelope of PHP services.",
        ),
    ] = "json",
    mandatory: Annotated[
        bool,
        typer.Option(
            "--mandatory/--no-mandatory",
            help="Fail if no queue is bound for the key, or only say so.",
        ),
    ] = True,
    url: options.Url = environment.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Publish one message.

    It prints the message's id once the broker has confirmed it. It exits with 1 if no queue is
    bound for the routing key.

    \b
    Examples:
      redrive publish user.create '{"id": 121}'
      redrive publish user.create - < user.json
    """
    printer = Printer(output)
    content = sys.stdin.buffer.read() if body == "-" else os.fsencode(body)
    extras = Extras(content_type=content_type or _type_of(content))
    value = _json_in(content) if codec == "php-envelope" else content
    # The publisher validates the codec itself; its error lists the valid ones.
    with Publisher(url, exchange, declare=False, codec=cast(Codec, codec)) as publisher:
        routed = True
        try:
            message_id = publisher.publish(
                value,
                routing_key,
                headers=_headers_of(headers or []),
                mandatory=True,
                extras=extras,
            )
        except Unroutable as unroutable:
            if mandatory:
                raise
            message_id, routed = unroutable.message_id, False
    printer.result(
        {
            "message_id": message_id,
            "routing_key": routing_key,
            "exchange": exchange,
            "routed": routed,
        }
    )
    if not printer.for_programs:
        printer.say(message_id)
    if not routed:
        printer.note(
            f"No queue is bound to {exchange} for {routing_key}: the broker dropped the message."
        )


def _headers_of(given: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigurationError(
                f"the header {text!r} is not NAME=VALUE", "Give one such as --header tenant=acme."
            )
        headers[name] = value
    return headers


def _json_in(content: bytes) -> object:
    try:
        return strict_json.read(content)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the body is not JSON, which the PHP envelope needs: {error}",
            "Give JSON, or leave --codec out.",
        ) from error


def _type_of(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return BINARY
    try:
        strict_json.read(text)
    except (ValueError, RecursionError):
        return TEXT
    return JSON
