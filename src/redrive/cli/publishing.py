"""`redrive publish`: one message, by hand."""

import json
import os
import sys
from typing import Annotated, cast

import typer

from redrive.cli import options
from redrive.cli.output import Form, Printer
from redrive.errors import ConfigurationError, Unroutable
from redrive.pubsub.blocking.publisher import Publisher
from redrive.pubsub.codec import BINARY, JSON, TEXT, Codec
from redrive.pubsub.envelope import Extras


def publish(
    routing_key: Annotated[str, typer.Argument(metavar="KEY", help="The routing key, such as user.create.")],
    body: Annotated[str, typer.Argument(metavar="BODY", help="The body, sent as it is; - reads it from standard input.")],
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header. May be given several times.", show_default=False),
    ] = None,
    content_type: Annotated[
        str | None,
        typer.Option(
            "--content-type",
            metavar="TYPE",
            help="The body's MIME type; without one, JSON, text or binary by a look at the body.",
            show_default=False,
        ),
    ] = None,
    codec: Annotated[
        str,
        typer.Option("--codec", metavar="json|php-envelope", help="How the body is written: as it is, or, being JSON, in PHP's envelope."),
    ] = "json",
    mandatory: Annotated[
        bool, typer.Option("--mandatory/--no-mandatory", help="Whether it is an error that no queue is bound for the key.")
    ] = True,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Publish one message, and print its id once the broker has confirmed it.

    It exits with 1 where no queue is bound for the key, so that a typo is seen.

    \b
    Examples:
      redrive publish user.create '{"id": 121}'
      redrive publish user.create - < user.json
    """
    printer = Printer(output)
    content = sys.stdin.buffer.read() if body == "-" else os.fsencode(body)
    extras = Extras(content_type=content_type or _type_of(content))
    value = _json_in(content) if codec == "php-envelope" else content
    # The publisher checks the codec itself, and says which there are.
    with Publisher(url, exchange, declare=False, codec=cast(Codec, codec)) as publisher:
        routed = True
        try:
            message_id = publisher.publish(value, routing_key, headers=_headers_of(headers or []), mandatory=True, extras=extras)
        except Unroutable as unroutable:
            if mandatory:
                raise
            message_id, routed = unroutable.message_id, False
    printer.result({"message_id": message_id, "routing_key": routing_key, "exchange": exchange, "routed": routed})
    if not printer.as_json:
        printer.say(message_id)
    if not routed:
        printer.note(f"No queue is bound to {exchange} for {routing_key}: the broker has dropped the message.")


def _headers_of(given: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"the header {text!r} is no NAME=VALUE", "Give one such as --header tenant=acme.")
        headers[name] = value
    return headers


def _json_in(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the body is not JSON, which PHP's envelope takes: {error}", "Give JSON, or leave --codec out."
        ) from error


def _type_of(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return BINARY
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return TEXT
    return JSON
