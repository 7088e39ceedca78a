"""Read and write AMQP 0-9-1 field tables byte for byte.

Neither pika nor aio-pika preserves the values that it receives: pika 1.4 turns a float into an int,
and aio-pika narrows integers. So redrive moves a message by editing the received bytes, and a field
that it doesn't touch leaves exactly as it came. Values are decoded into Python only for reading.

Source: AMQP 0-9-1 specification, 4.2.5; the tags as RabbitMQ reads them,
https://www.rabbitmq.com/amqp-0-9-1-errata#section_3
"""

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Self

from redrive.errors import ConfigurationError

FieldValue = (
    None
    | bool
    | int
    | float
    | Decimal
    | str
    | bytes
    | datetime
    | Sequence["FieldValue"]
    | Mapping[str, "FieldValue"]
)

MAX_SHORT_STRING = 255
MAX_DEPTH = 32
"""Levels of nesting that are decoded; a deeper value is returned as its bytes. Moving a message
keeps values of any depth."""

_FIXED_SIZE = {
    b"t": 1,
    b"b": 1,
    b"B": 1,
    b"s": 2,
    b"U": 2,
    b"u": 2,
    b"I": 4,
    b"i": 4,
    b"l": 8,
    b"L": 8,
    b"f": 4,
    b"d": 8,
    b"D": 5,
    b"T": 8,
    b"V": 0,
}
_SIZE_BY_CODE = {tag[0]: size for tag, size in _FIXED_SIZE.items()}
_LONG = frozenset(b"SAFx")
LONG_STRING = ord("S")
_LIST, _TABLE = ord("A"), ord("F")
_COMPOUND = frozenset({_LIST, _TABLE})

_NUMBERS = {
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("U"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): struct.Struct(">i"),
    ord("i"): struct.Struct(">I"),
    ord("l"): struct.Struct(">q"),
    ord("L"): struct.Struct(">q"),
    ord("f"): struct.Struct(">f"),
    ord("d"): struct.Struct(">d"),
}
_UINT32 = struct.Struct(">I")
_UINT64 = struct.Struct(">Q")
_DECIMAL = struct.Struct(">Bi")
_MOST_DECIMAL_DIGITS = 10
_ALL = 2**32  # more fields than any table has


def end_of_value(data: bytes, position: int, limit: int) -> int | None:
    """Return where the field value ends whose tag is at `position`; None if it is unreadable or
    extends past `limit`."""
    if position >= limit:
        return None
    code = data[position]
    size = _SIZE_BY_CODE.get(code)
    if size is not None:
        end = position + 1 + size
    elif code in _LONG and position + 5 <= limit:
        end = position + 5 + _UINT32.unpack_from(data, position + 1)[0]
    else:
        return None
    return end if end <= limit else None


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def decode_value(raw: bytes, depth: int = 0) -> FieldValue:
    """Decode one field value, which begins with its tag, into a Python value. Return the bytes of
    an unreadable value. Never raises."""
    code = raw[0]
    if code == LONG_STRING:
        return _text(raw[5:])
    payload = raw[1:]
    number = _NUMBERS.get(code)
    if number is not None:
        value: int | float = number.unpack(payload)[0]
        return value
    match chr(code):
        case "t":
            return payload != b"\0"
        case "x":
            return payload[4:]
        case "V":
            return None
        case "T":
            return _decode_timestamp(_UINT64.unpack(payload)[0])
        case "D":
            scale, unscaled = _DECIMAL.unpack(payload)
            # Build it from its digits: arithmetic would round to the thread's decimal context.
            return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
        case "A" if depth < MAX_DEPTH:
            return _decode_array(payload[4:], depth + 1)
        case "F" if depth < MAX_DEPTH:
            return Table.parse(payload[4:]).to_dict(depth + 1)
        case _:
            return raw


def decode_scalar(raw: bytes) -> FieldValue:
    """Decode one field value like `decode_value`; None for a list or a table, since a peer can send
    one with a hundred thousand items."""
    return None if raw[0] in _COMPOUND else decode_value(raw)


def items_of(raw: bytes, most: int) -> tuple[list[bytes], bool]:
    """Return the first `most` items of a list, each as its bytes, and whether they are the complete
    list. Never raises."""
    if raw[0] != _LIST:
        return [], False
    items: list[bytes] = []
    position = 5
    while position < len(raw) and len(items) < most:
        end = end_of_value(raw, position, len(raw))
        if end is None:
            break
        items.append(raw[position:end])
        position = end
    return items, position == len(raw)


def _decode_timestamp(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return seconds


def _decode_array(data: bytes, depth: int) -> list[FieldValue]:
    values: list[FieldValue] = []
    position = 0
    while position < len(data):
        end = end_of_value(data, position, len(data))
        if end is None:
            values.append(data[position:])
            break
        values.append(decode_value(data[position:end], depth))
        position = end
    return values


def encode_value(value: FieldValue, depth: int = 0) -> bytes:
    """Encode a Python value as a field value that begins with its tag."""
    if depth > MAX_DEPTH:
        raise ConfigurationError(
            f"a header is nested deeper than {MAX_DEPTH} levels", "Put it into the body."
        )
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\1" if value else b"t\0"
        case int():
            return _encode_int(value)
        case float():
            return b"d" + struct.pack(">d", value)
        case str():
            return _long(b"S", _utf8(value))  # bytes that are not UTF-8 leave as they came
        case bytes() | bytearray() | memoryview():
            return _long(b"x", bytes(value))
        case Decimal():
            return _encode_decimal(value)
        case datetime():
            return _encode_datetime(value)
        case Mapping():
            return _long(b"F", Table.of(value, depth + 1).encode())
        case list() | tuple():
            return _long(b"A", b"".join(encode_value(item, depth + 1) for item in value))
        case _:
            raise ConfigurationError(
                f"a header holds a {type(value).__name__}, which AMQP has no type for",
                "Use None, bool, int, float, Decimal, str, bytes, datetime, a list or a dict.",
            )


def _long(tag: bytes, payload: bytes) -> bytes:
    return tag + _UINT32.pack(len(payload)) + payload


def _encode_int(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"I" + struct.pack(">i", value)
    if -(2**63) <= value < 2**63:
        return b"l" + struct.pack(">q", value)
    raise ConfigurationError(
        f"a header holds {value}, which is more than 64 bits", "Send it as a string."
    )


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ConfigurationError(
            f"a header holds the decimal {value}, which AMQP can't carry", "Send it as a string."
        )
    scale = max(0, -exponent)
    if scale <= 255 and len(digits) + max(0, exponent) <= _MOST_DECIMAL_DIGITS:
        unscaled = int("".join(map(str, digits)) + "0" * max(0, exponent)) * (-1 if sign else 1)
        if -(2**31) <= unscaled < 2**31:
            return b"D" + _DECIMAL.pack(scale, unscaled)
    raise ConfigurationError(
        f"a header holds the decimal {value}, which is more than AMQP's 32 bits",
        "Send it as a string.",
    )


def _encode_datetime(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise ConfigurationError(
            f"a header holds the time {value.isoformat()} without a time zone",
            "Use an aware datetime.",
        )
    seconds = math.floor(value.timestamp())
    if seconds < 0:
        raise ConfigurationError(
            f"a header holds the time {value.isoformat()}; AMQP's begin at 1970",
            "Send it as a string.",
        )
    return b"T" + _UINT64.pack(seconds)


_Content = tuple[list[str], list[bytes], bytes]
"""Lists rather than pairs: a queue has millions of fields, and each pair is an object more."""


class Table(Mapping[str, FieldValue]):
    """A field table: names and values in order, each value kept as the bytes that came.

    Reading (`table["name"]`, `to_dict()`) decodes. If a name occurs twice, its first value counts,
    as it does for the broker. Unreadable bytes are kept after the fields and sent on unchanged.
    """

    __slots__ = ("_by_name", "_encoded", "_most", "_read")

    def __init__(
        self,
        fields: Iterable[tuple[str, bytes]] = (),
        tail: bytes = b"",
        encoded: bytes | None = None,
    ) -> None:
        names: list[str] = []
        values: list[bytes] = []
        for name, raw in fields:
            names.append(name)
            values.append(raw)
        self._read: _Content | None = (names, values, tail)
        self._encoded = encoded
        self._most = _ALL
        self._by_name: dict[str, bytes] | None = None

    @classmethod
    def of(cls, values: Mapping[str, FieldValue], depth: int = 0) -> Self:
        """Build a table from Python values."""
        return cls(
            (_checked_name(name), encode_value(value, depth)) for name, value in values.items()
        )

    @classmethod
    def parse(cls, data: bytes, most: int = _ALL) -> Self:
        """Build a table from bytes (without the length prefix). At most `most` fields are read, and
        only when a field is asked for, which never happens for most messages. Never raises."""
        table = cls.__new__(cls)
        table._read = table._by_name = None
        table._encoded = data
        table._most = most
        return table

    @property
    def _content(self) -> _Content:
        """The fields' names, their values, and the unreadable bytes after them."""
        if self._read is None:
            self._read = self._read_in(self.encode())
        return self._read

    def _read_in(self, data: bytes) -> _Content:
        names: list[str] = []
        values: list[bytes] = []
        position = 0
        size = len(data)
        while position < size and len(names) < self._most:
            value_at = position + 1 + data[position]
            if value_at + 5 <= size and data[value_at] == LONG_STRING:  # the most common type
                end: int | None = value_at + 5 + _UINT32.unpack_from(data, value_at + 1)[0]
            else:
                end = end_of_value(data, value_at, size)
            if end is None or end > size:
                break  # the rest is kept as the tail
            names.append(data[position + 1 : value_at].decode("utf-8", "surrogateescape"))
            values.append(data[value_at:end])
            position = end
        return names, values, data[position:]

    def encode(self) -> bytes:
        """Return the table's bytes (without the length prefix)."""
        if self._encoded is None:
            names, values, tail = self._content
            pieces: list[bytes] = []
            for name, raw in zip(names, values, strict=True):
                encoded = name.encode("utf-8", "surrogateescape")
                pieces += (bytes((len(encoded),)), encoded, raw)
            pieces.append(tail)
            self._encoded = b"".join(pieces)
        return self._encoded

    def raw_fields(self) -> tuple[tuple[str, bytes], ...]:
        """Return each field's name and the bytes of its value, tag first."""
        names, values, _ = self._content
        return tuple(zip(names, values, strict=True))

    def without(self, drop: Callable[[str], bool]) -> "Table":
        """Return the table without the fields whose name makes `drop` true."""
        fields = self.raw_fields()
        kept = [field for field in fields if not drop(field[0])]
        return self if len(kept) == len(fields) else Table(kept, self._content[2])

    def with_values(self, values: Mapping[str, FieldValue]) -> "Table":
        """Return the table with these values added, replacing fields of the same names."""
        return self.with_fields(
            [(_checked_name(name), encode_value(value)) for name, value in values.items()]
        )

    def with_fields(self, fields: Sequence[tuple[str, bytes]]) -> "Table":
        """Return the table with these encoded fields added, replacing fields of the same names."""
        names = {name for name, _ in fields}
        kept = self.without(names.__contains__)
        former, tail = kept.raw_fields(), kept._content[2]
        if tail:
            return Table((*former, *fields), tail)
        return Table((*former, *fields), b"", kept.encode() + Table(fields).encode())

    def to_dict(self, depth: int = 0) -> dict[str, FieldValue]:
        """Return the table as Python values."""
        return {name: decode_value(raw, depth) for name, raw in self.raw_by_name().items()}

    def raw_by_name(self) -> Mapping[str, bytes]:
        """Return the bytes of each name's value, tag first, in order."""
        if self._by_name is None:
            names, values, _ = self._content
            by_name = dict(zip(names, values, strict=True))
            if len(by_name) < len(names):
                for name, raw in reversed(self.raw_fields()):
                    by_name[name] = raw
            self._by_name = by_name
        return self._by_name

    def __getitem__(self, name: str) -> FieldValue:
        return decode_value(self.raw_by_name()[name])

    def get(self, name: str, default: FieldValue = None) -> FieldValue:  # type: ignore[override]
        """Return the value of a field. Overridden because the inherited method raises and catches
        an exception for each missing field."""
        raw = self.raw_by_name().get(name)
        return default if raw is None else decode_value(raw)

    def scalar(self, name: str) -> FieldValue:
        """Return the value of a field that is neither a list nor a table; None if there is no such
        field."""
        fields = self._by_name
        raw = (self.raw_by_name() if fields is None else fields).get(name)
        if raw is None:
            return None
        if raw[0] != LONG_STRING:
            return decode_scalar(raw)
        # Most values are long strings, and a function call would cost more than decoding one here.
        try:
            return raw[5:].decode()
        except UnicodeDecodeError:
            return raw[5:]

    def __contains__(self, name: object) -> bool:
        return name in self.raw_by_name()

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw_by_name())

    def __len__(self) -> int:
        return len(self.raw_by_name())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._content == other._content

    def __hash__(self) -> int:
        return hash((self.raw_fields(), self._content[2]))

    def __repr__(self) -> str:
        return f"Table({self.to_dict()!r})"


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"the text {text[:40]!r} is not valid Unicode", "Use characters that UTF-8 can encode."
        ) from error


def _checked_name(name: str) -> str:
    if len(_utf8(name)) > MAX_SHORT_STRING:
        raise ConfigurationError(
            f"the header name {name[:40]!r}… is over {MAX_SHORT_STRING} bytes", "Use a shorter one."
        )
    return name


EMPTY = Table()
