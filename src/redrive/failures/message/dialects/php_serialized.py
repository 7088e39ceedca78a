"""A scanner for values written by PHP's `serialize`. It finds boundaries and never unserializes.

Source: php-src 8.2, ext/standard/var_unserializer.re
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SCALAR = re.compile(rb"N;|[bi]:-?\d{1,20};|d:[-+.\dEINFA]{1,40};")
_REFERENCE = re.compile(rb"[rR]:\d{1,20};")
_LENGTH = re.compile(rb"[sE]:(\d{1,10}):\"")
_ARRAY = re.compile(rb"a:(\d{1,10}):\{")
_OBJECT = re.compile(rb"O:(\d{1,10}):\"")
_MEMBERS = re.compile(rb"\":(\d{1,10}):\{")
_DEEPEST = 100


class NotSerialized(ValueError):
    """The bytes are not in the format of `serialize`, or use an unsupported part of it."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an array or an object. All offsets are in bytes.

    Args:
        key: its serialized key.
        start: where the key begins.
        value: where the value begins.
        end: where the value ends.
        has_reference: whether the value refers to another value by number.
    """

    key: bytes
    start: int
    value: int
    end: int
    has_reference: bool


class Serialized:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def members(self, start: int = 0, depth: int = 0) -> Iterator[Member]:
        """Iterate over the members of the array or object that begins at `start`."""
        count, position = self._opened(start)
        for _ in range(count):
            value, is_reference = self._end(position, depth + 1)
            end, has_reference = self._end(value, depth + 1)
            key = self._data[position:value]
            yield Member(key, position, value, end, is_reference or has_reference)
            position = end
        if self._data[position : position + 1] != b"}":
            raise NotSerialized("an array that does not end")

    def count_at(self, start: int) -> tuple[int, int]:
        """Return the span of the digits that give an array's number of members."""
        found = _ARRAY.match(self._data, start)
        if found is None:
            raise NotSerialized("not an array")
        return found.span(1)

    def _opened(self, start: int) -> tuple[int, int]:
        """Return how many members the array or object at `start` has, and where they begin."""
        found = _ARRAY.match(self._data, start)
        if found is None:
            named = _OBJECT.match(self._data, start)
            if named is None:
                raise NotSerialized("neither an array nor an object")
            found = _MEMBERS.match(self._data, named.end() + int(named[1]))
        if found is None or int(found[1]) > len(self._data):
            raise NotSerialized("an object that does not begin")
        return int(found[1]), found.end()

    def _end(self, start: int, depth: int) -> tuple[int, bool]:
        """Return where the value at `start` ends, and whether it contains a reference."""
        if depth > _DEEPEST:
            raise NotSerialized("too deep")
        scalar = _SCALAR.match(self._data, start)
        if scalar is not None:
            return scalar.end(), False
        reference = _REFERENCE.match(self._data, start)
        if reference is not None:
            return reference.end(), True
        text = _LENGTH.match(self._data, start)
        if text is not None:
            end = text.end() + int(text[1])
            if self._data[end : end + 2] != b'";':
                raise NotSerialized("a text that does not end")
            return end + 2, False
        _, end = self._opened(start)
        has_reference = False
        for member in self.members(start, depth):
            end, has_reference = member.end, has_reference or member.has_reference
        return end + 1, has_reference
