"""The page of a message: its history, headers and body."""

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.message.cause import cause_of, parts_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import body_of, body_text_of, value_of
from redrive.failures.message.way import way_of
from redrive.failures.store.kept_messages import Neighbours
from redrive.failures.store.look import Look
from redrive.number_text import moment_in_words
from redrive.redaction import printable_json, text_of
from redrive.web.command_lines import show_command
from redrive.web.context import ConsoleContext
from redrive.web.page_request import PageRequest, QueuePlace

VIEWS = ("tree", "text", "hex")
_MOST_CHARACTERS = 256 * 1024
_MOST_BYTES = 8 * 1024
_MOST_LINES = 2000
_DEEPEST = 40
_WIDTH = 16


class TreeLine(NamedTuple):
    """A line of a tree.

    Args:
        depth: its nesting depth.
        name: the member's name, or its index in a list; empty at the root.
        value: its value; for a list or an object, the number of its members.
        kind: its JSON type.
    """

    depth: int
    name: str
    value: str
    kind: str


class BodyView(NamedTuple):
    """A body, shown as one of `VIEWS`.

    Args:
        view: which one.
        tree: the lines of the tree view.
        text: the text of the other views.
        note: what is not shown of it; empty if everything is.
        is_json: whether it has a tree view.
    """

    view: str
    tree: list[TreeLine]
    text: str
    note: str
    is_json: bool


def viewed(message: FailedMessage, wanted: str) -> BodyView:
    """Return a body in the wanted view, or the best possible one: a tree for JSON, text for text,
    else a hex dump. Tree and text show what a handler would receive."""
    value, encoding = body_of(message)
    is_json = encoding == "json"
    if wanted == "tree" and is_json:
        tree = _branches(value)
        note = ""
        if len(tree) > _MOST_LINES:
            note = f"Only the first {_MOST_LINES:,} lines are shown."
        return BodyView("tree", tree[:_MOST_LINES], "", note, is_json)
    text = body_text_of(message)
    if wanted != "hex" and text is not None and (text or not message.body):
        shown = printable_json(value, indent=2) if is_json else text
        note = ""
        if len(shown) > _MOST_CHARACTERS:
            shown, note = shown[:_MOST_CHARACTERS], "Only its beginning is shown."
        return BodyView("text", [], shown, note, is_json)
    note, body = "", message.body
    if len(body) > _MOST_BYTES:
        note = f"Only the first {_MOST_BYTES:,} bytes are shown."
    return BodyView("hex", [], _hexadecimal(body[:_MOST_BYTES]), note, is_json)


def _branches(root: object) -> list[TreeLine]:
    """Return the lines of a tree, in order; a value that is nested too deep gets one line."""
    found: list[TreeLine] = []
    to_do: list[tuple[int, str, object]] = [(0, "", root)]
    while to_do and len(found) <= _MOST_LINES:
        depth, name, value = to_do.pop()
        members = _members(value) if depth < _DEEPEST else []
        found.append(TreeLine(depth, name, _words(value), kind_of(value)))
        to_do += [(depth + 1, key, member) for key, member in reversed(members)]
    return found


def _members(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(str(name), member) for name, member in value.items()]
    if isinstance(value, list):
        return [(str(number), member) for number, member in enumerate(value)]
    return []


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{len(value):,}}}"
    if isinstance(value, list):
        return f"[{len(value):,}]"
    return printable_json(value)


def kind_of(value: object) -> str:
    """Return the JSON type of a value, in a word."""
    match value:
        case bool() | None:
            return "word"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "object"


def _hexadecimal(body: bytes) -> str:
    lines = []
    for start in range(0, len(body), _WIDTH):
        part = body[start : start + _WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<{3 * _WIDTH - 1}}  {text}")
    return "\n".join(lines)


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
"""The types of AMQP fields, by tag. Source: AMQP 0-9-1, 4.2.1, as RabbitMQ reads them,
https://www.rabbitmq.com/amqp-0-9-1-errata#section_3"""


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show a message in full."""
    message, look = _message(context, request)
    view = request.text("view") or VIEWS[0]
    hidden = context.settings.hide_bodies
    return context.page(
        "message",
        request,
        f"Message {message.failure_id[:8]}: {cause_of(message).what}",
        {
            "place": request.place,
            "standing": context.queue_states.state(request.place, look),
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
        summary=f"{request.place.name}, {moment_in_words(message.failed_at)}",
    )


def download(context: ConsoleContext, request: PageRequest) -> Response:
    """Return the body, byte for byte, as a download that no browser opens."""
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
    """Return the requested message, and the look that found it."""
    id_ = request.text("id")
    return context.looks.ask(request.place, lambda look: look.named(id_))


def _typed(message: FailedMessage) -> list[tuple[str, str, str]]:
    """Return the headers with their AMQP types, sorted by name."""
    raw = message.properties.headers.raw_by_name()
    return sorted(
        (text_of(name), _type_of(raw.get(name, b"")), _words_of(value))
        for name, value in message.headers.items()
    )


def _type_of(raw: bytes) -> str:
    """Return the type of a field, by its tag."""
    return _TYPES.get(raw[:1], "unknown")


def _neighbours(context: ConsoleContext, place: QueuePlace, message: FailedMessage) -> Neighbours:
    """Return the previous and next message of the same cause."""
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
