"""Hide values in message bodies, at JSON paths such as `$.card.number`."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import plain_of

HIDDEN: Final = "***"
"""Replaces a hidden value."""
_STEP: Final = re.compile(
    r"\.\.(?P<deep>[A-Za-z_][\w-]*)"
    r"|\.(?P<name>[A-Za-z_][\w-]*|\*)"
    r"|\[(?P<number>\d+|\*)\]"
    r"|\['(?P<quoted>[^']+)'\]"
)
_EXAMPLE: Final = "Give one such as $.card.number, $.items[*].iban, $['card no'] or $..password."
_DEEPEST: Final = 100


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    is_deep: bool = False

    def means(self, key: str) -> bool:
        return self.name in ("*", key)


Path = tuple[_Step, ...]


@dataclass(frozen=True, slots=True)
class Mask:
    """A set of JSON paths to hide.

    Args:
        paths: the paths.
    """

    paths: tuple[Path, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Mask | None":
        """Return a mask for these paths, or None if there are none."""
        paths = tuple(_path_of(text) for text in texts)
        return cls(paths) if paths else None

    def body(self, body: bytes) -> bytes:
        """Return a UTF-8 body with its secrets hidden.

        A body that is not JSON is hidden completely: it may contain such values in an unknown
        place.
        """
        twice: list[str] = []

        def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
            found = dict(pairs)
            if len(found) < len(pairs):
                twice.append("")
            return found

        try:
            value = json.loads(body, object_pairs_hook=members)
            masked = self.value(value)
        except (ValueError, RecursionError):
            return HIDDEN.encode() if body else body
        if masked == value and not twice:
            return body
        # If a name occurs twice, only the last member is read; the others must not be shown either.
        return json.dumps(masked, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def value(self, value: object) -> object:
        """Return a JSON value with its secrets hidden."""
        return _masked(value, self.paths, 0)

    def touches(self, pointer: str) -> bool:
        """Check whether a JSON pointer leads to a hidden value, to a part of one, or to a parent of
        one."""
        keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
        return any(_meets(path, keys) for path in self.paths)


class MaskedMessage(FailedMessage):
    """A failed message whose body is shown with its secrets hidden. Its ids are those of the
    original."""

    __slots__ = ("_shown",)

    def __init__(self, message: FailedMessage, mask: Mask) -> None:
        super().__init__(message.delivery, message._told)
        self._failure_id, self._digest = message._failure_id, message._digest
        self._known_id, self._size = message._known_id, message._size
        self._shown = mask.body(plain_of(message)) if message.has_body else b""

    @property
    def body(self) -> bytes:
        """The body as its handler reads it, with its secrets hidden."""
        return self._shown if self.has_body else super().body

    def _utf8(self) -> bytes:
        """Return the masked body, which is always UTF-8."""
        return self.body


def _path_of(text: str) -> Path:
    rest, steps = text.strip(), []
    if rest.startswith("$") and len(rest) > 1:
        rest = rest[1:]
        while found := _STEP.match(rest):
            name = found["deep"] or found["name"] or found["number"] or found["quoted"]
            steps.append(_Step(name, found["deep"] is not None))
            rest = rest[found.end() :]
    if rest or not steps:
        raise ConfigurationError(f"{text!r} is not a path to mask", _EXAMPLE)
    return tuple(steps)


def _masked(value: object, paths: Sequence[Path], depth: int) -> object:
    if not paths:
        return value
    if depth > _DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _member(member, str(key), paths, depth) for key, member in value.items()}
    if isinstance(value, list):
        return [_member(one, str(number), paths, depth) for number, one in enumerate(value)]
    return value


def _member(value: object, key: str, paths: Sequence[Path], depth: int) -> object:
    left = [path for one in paths for path in _after(one, key)]
    return HIDDEN if () in left else _masked(value, left, depth + 1)


def _after(path: Path, key: str) -> list[Path]:
    """Return what is left of a path after a member; a recursive path is also kept as it is."""
    first = path[0]
    left = [path[1:]] if first.means(key) else []
    return [*left, path] if first.is_deep else left


def _meets(path: Path, keys: Sequence[str]) -> bool:
    left: list[Path] = [path]
    for key in keys:
        # An element added at the end of a list may have any index.
        left = [more for one in left for more in _after_any(one, key)]
        if () in left:
            return True
    return bool(left)


def _after_any(path: Path, key: str) -> list[Path]:
    if key == "-" and path[0].name.isdecimal():
        return [path[1:]]
    return _after(path, key)


def check_patch(mask: Mask, patch: str) -> None:
    """Check that a patch doesn't reveal hidden values.

    A JSON patch can probe a value with `test`, and put it elsewhere with `move` and `copy`.
    """
    try:
        operations: Any = json.loads(patch)
    except (ValueError, RecursionError):
        return  # it is refused later, as an invalid patch
    if not isinstance(operations, list):
        return  # a merge patch only sets values
    for one in operations:
        pointers = [one.get(name) for name in ("path", "from")] if isinstance(one, Mapping) else []
        for pointer in pointers:
            if isinstance(pointer, str) and mask.touches(pointer):
                raise ConfigurationError(
                    f"the patch touches {pointer[:80]!r}, where something is masked",
                    "Change other members, set it by a merge patch, or use the command line.",
                )
