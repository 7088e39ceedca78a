"""A message's body as people read it: as a tree, as text, or byte for byte."""

from collections.abc import Mapping
from typing import NamedTuple

from redrive.failures.failed_message import FailedMessage
from redrive.failures.readable_values import body_of, body_text_of
from redrive.redaction import printable_json

VIEWS = ("tree", "text", "hex")
_MOST_CHARACTERS = 256 * 1024
_MOST_BYTES = 8 * 1024
_MOST_LINES = 2000
_DEEPEST = 40
_WIDTH = 16


class TreeLine(NamedTuple):
    """A line of a tree.

    Args:
        depth: how far it is indented.
        name: the member's name, or its number in a list; empty at the root.
        value: its value; of a list or an object how many members it has.
        kind: the type of JSON.
    """

    depth: int
    name: str
    value: str
    kind: str


class BodyView(NamedTuple):
    """A body, as one of `VIEWS`.

    Args:
        view: which.
        tree: its lines, where it is a tree.
        text: it, where it is text or bytes.
        note: what is not shown of it; empty where all is.
        is_json: whether there is a tree of it.
    """

    view: str
    tree: list[TreeLine]
    text: str
    note: str
    is_json: bool


def viewed(message: FailedMessage, wanted: str) -> BodyView:
    """A body as it was asked for, or as it can be shown: as a tree where it is JSON, as text where
    it is that, else byte for byte. Tree and text are what its handler reads."""
    value, encoding = body_of(message)
    is_json = encoding == "json"
    if wanted == "tree" and is_json:
        tree = _branches(value)
        note = ""
        if len(tree) > _MOST_LINES:
            note = f"Only the first {_MOST_LINES:,} lines are shown."
        return BodyView("tree", tree[:_MOST_LINES], "", note, is_json)
    text = body_text_of(message)
    if wanted != "hex" and text is not None:
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
    """The lines of a tree, in order. What is nested too deep stands in one line."""
    found: list[TreeLine] = []
    to_do: list[tuple[int, str, object]] = [(0, "", root)]
    while to_do and len(found) <= _MOST_LINES:
        depth, name, value = to_do.pop()
        members = _members(value) if depth < _DEEPEST else []
        found.append(TreeLine(depth, name, _words(value), _kind(value)))
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


def _kind(value: object) -> str:
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
