"""The page of a message: its way, its headers, its body."""

from starlette.responses import Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.cause import cause_of, parts_of
from redrive.failures.failed_message import FailedMessage
from redrive.failures.kept_messages import Neighbours
from redrive.failures.look import Look
from redrive.failures.readable_values import body_text_of, value_of
from redrive.failures.way import way_of
from redrive.redaction import printable_json, text_of
from redrive.web.body_view import VIEWS, viewed
from redrive.web.command_lines import show_command
from redrive.web.context import ConsoleContext, LookStatus
from redrive.web.page_request import PageRequest, QueuePlace

_TYPES = {
    b"S": "text",
    b"x": "bytes",
    b"t": "boolean",
    b"b": "int8",
    b"B": "uint8",
    b"s": "int16",
    b"U": "int16",
    b"u": "uint16",
    b"I": "int32",
    b"i": "uint32",
    b"l": "int64",
    b"L": "int64",
    b"f": "float",
    b"d": "double",
    b"D": "decimal",
    b"T": "timestamp",
    b"V": "nothing",
    b"A": "list",
    b"F": "table",
}
"""The types of AMQP's fields, by their tags. Source: AMQP 0-9-1, 4.2.1, as RabbitMQ reads them,
https://www.rabbitmq.com/amqp-0-9-1-errata#section_3"""


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """A message in full."""
    message, look = _message(context, request)
    view = request.text("view") or VIEWS[0]
    hidden = context.settings.hide_bodies
    return context.page(
        "message",
        request,
        f"Message {message.failure_id[:8]}",
        {
            "place": request.place,
            "standing": LookStatus.of(context, request.place, look),
            "message": message,
            "cause": cause_of(message),
            "way": way_of(message),
            "headers": _typed(message),
            "neighbours": _neighbours(context, request.place, message),
            "may_edit": not hidden
            and message.has_body
            and context.settings.mask is None
            and body_text_of(message) is not None,
            "properties": _properties(message),
            "parts": parts_of(message.traceback or ""),
            "body": None if hidden or not message.has_body else viewed(message, view),
            "views": VIEWS,
            "command": show_command(request.place, message.failure_id),
        },
    )


def download(context: ConsoleContext, request: PageRequest) -> Response:
    """The body, byte for byte, as something that no browser opens.

    Raises:
        ConfigurationError: bodies are hidden.
    """
    if context.settings.hide_bodies:
        raise ConfigurationError(
            "this console hides bodies",
            "Start it without --hide-bodies to read them.",
        )
    message, _ = _message(context, request)
    name = "".join(one for one in message.failure_id if one.isascii() and one.isalnum())[:40]
    return Response(
        message.body,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name or "body"}.bin"'},
    )


def _message(context: ConsoleContext, request: PageRequest) -> tuple[FailedMessage, Look]:
    """The message that is meant, and the look that it was seen in.

    Raises:
        NothingFound: there is none.
        ConfigurationError: it stands for several.
    """
    id_ = request.text("id")
    return context.looks.ask(request.place, lambda look: look.named(id_))


def _typed(message: FailedMessage) -> list[tuple[str, str, str]]:
    """The headers with the types that they came with, by name."""
    raw = message.properties.headers.raw_by_name()
    return sorted(
        (text_of(name), _type_of(raw.get(name, b"")), _words_of(value))
        for name, value in message.headers.items()
    )


def _type_of(raw: bytes) -> str:
    """What a field is, by the tag that it came with."""
    return _TYPES.get(raw[:1], "unknown")


def _neighbours(context: ConsoleContext, place: QueuePlace, message: FailedMessage) -> Neighbours:
    """The messages next to one, among those of its cause."""
    group = cause_of(message).group_id
    try:
        found, _ = context.looks.ask(
            place, lambda look: look.kept.around(message.failure_id, group)
        )
    except RedriveError:
        return Neighbours()
    return found


def _words_of(value: object) -> str:
    shown = value_of(value)
    return shown if isinstance(shown, str) else printable_json(shown, indent=2)


def _properties(message: FailedMessage) -> list[tuple[str, str]]:
    return [
        (name, _words_of(value))
        for name, value in message.properties._asdict().items()
        if name != "headers" and value is not None
    ]
