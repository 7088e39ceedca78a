"""Decodes message bodies: decompresses them and converts them to UTF-8.

Handlers, filters, masks and edits all read a body through `utf8_of`, so they all see the same text.
What is sent on is always the body as received. Bodies come from untrusted sources, so both the
decompressed size and the time that decoding takes are bounded.
"""

import contextlib
import importlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from encodings.aliases import aliases
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol

from redrive.amqp.properties import Properties
from redrive.errors import InvalidMessage
from redrive.pubsub import php_envelope
from redrive.redaction import redact

MOST_BYTES: Final = 16 * 1024 * 1024
"""Limit on the size of a decompressed body: the size that RabbitMQ accepts for one message by
default, from 4.0 on, so that a compressed body costs its reader no more than an uncompressed one.
Source: measured on 4.0.5 and 4.3.6, see `BrokerVersion`"""

_MOST_ENCODINGS = 3
_MOST_MEMBERS = 1000
"""Compressed streams in one body, one after the other, as pigz and bgzip write them."""
_PIECE = 16 * 1024
"""Bytes passed to a decompressor at a time. It copies the input that it does not use."""

_UNCOMPRESSED = frozenset({"identity", "none", "binary", "8bit", "7bit"})
"""Content encodings that change nothing: HTTP's, and those of mail, which kombu and PHP use."""
_MARKS = (
    (b"\xef\xbb\xbf", "utf_8"),
    (b"\xff\xfe\0\0", "utf_32_le"),
    (b"\0\0\xfe\xff", "utf_32_be"),
    (b"\xff\xfe", "utf_16_le"),
    (b"\xfe\xff", "utf_16_be"),
)
"""Byte order marks, each with the charset that it stands for."""
_FIRST_OF_A_MARK = b"\xef"
_CHARSET = re.compile(r";\s*charset\s*=\s*['\"]?\s*([^\s'\";,]*)", re.IGNORECASE)
_TEXT_CODEC = re.compile(
    r"utf_(?:8|16|32)(?:_[lb]e|_sig)?|ascii|latin_1|iso8859_\d+|cp\d+|koi8_[rtu]|mac_[a-z]+"
    r"|gb\w+|big5\w*|euc_\w+|shift_jis\w*"
)
"""Python codecs that are charsets and take time proportional to the length of the text. Codecs such
as `idna` and `punycode` are neither."""
_MAGICS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
_READ_AS_JSON = frozenset({"", "application/octet-stream", "text/plain", "application/json"})
_FIRST_SHOWN = 4
"""Bytes of a body shown in an error: enough to recognise its format, too few to reveal a value."""
_MOST_SHOWN = 80
"""Characters of a property shown in an error."""


class Unreadable(ValueError):
    """A body that can't be decoded: its encoding is unknown, or its bytes contradict its
    properties."""


class TooLarge(Unreadable):
    """A body that decompresses to more than its reader accepts."""


class HasBody(Protocol):
    """A message whose body can be read."""

    @property
    def body(self) -> bytes:
        """The body, as received."""

    @property
    def properties(self) -> Properties:
        """The message's properties."""

    @property
    def _decoders(self) -> "Mapping[str, Decoder]":
        """The subscriber's decoders, by content type."""

    def _utf8(self) -> bytes:
        """Return the body, decompressed and in UTF-8."""


Decoder = Callable[[bytes, Any], object]
"""Decodes a body, already decompressed, to a value; also gets the `Message`."""

NO_DECODERS: Mapping[str, Decoder] = MappingProxyType({})


def utf8_of(body: bytes, properties: Properties, most: int = MOST_BYTES) -> bytes:
    """Return a body decompressed, in UTF-8 and without a byte order mark.

    If nothing declares another charset, the result is not checked to be valid UTF-8; decoding it
    shows that.
    """
    content_type = properties.content_type
    if (
        properties.content_encoding is None
        and (content_type is None or ";" not in content_type)
        and body[:1] < _FIRST_OF_A_MARK
    ):
        return body
    compressions, charset = _form_of(content_type, properties.content_encoding)
    return _in_utf8(_undone(body, compressions, most), charset)


def uncompressed(body: bytes, properties: Properties) -> bytes:
    """Return a body decompressed, in its original charset."""
    if properties.content_encoding is None:
        return body
    return _undone(body, _form_of(None, properties.content_encoding)[0], MOST_BYTES)


def with_body(body: bytes, properties: Properties) -> Properties:
    """Return a message's properties for a new body.

    They stay the same if the new body is compressed as they say; otherwise content encoding and
    charset are removed.
    """
    encoding = properties.content_encoding
    with contextlib.suppress(Unreadable):
        if encoding is not None and _form_of(None, encoding)[0]:
            _undone(body, _form_of(None, encoding)[0], MOST_BYTES)
            return properties
    content_type = properties.content_type
    if content_type is not None:
        content_type = _CHARSET.sub("", content_type)
    return properties._replace(content_type=content_type, content_encoding=None)


def json_of(message: HasBody) -> object:
    """Return a body parsed as JSON; for PHP's envelope, the value inside it."""
    body = message._utf8()
    envelope = php_envelope.read(body)
    if envelope is not None:
        return envelope.body
    try:
        value: object = json.loads(body.decode())
        return value
    except UnicodeDecodeError as error:
        problem = f"the body is not UTF-8: {error.reason} at byte {error.start}"
    except (ValueError, RecursionError) as error:
        problem = f"the body is not JSON: {error}"
    raise unreadable(problem, message.body, message.properties)


# --- errors ---------------------------------------------------------------------------------------


def unreadable(problem: str, body: bytes, properties: Properties) -> InvalidMessage:
    """Return the error for a body that can't be read, with the problem and the properties that
    describe the body."""
    facts = ", ".join(
        (
            _property_in_words("content type", properties.content_type),
            _property_in_words("content encoding", properties.content_encoding),
            f"{len(body)} {'byte' if len(body) == 1 else 'bytes'}" + beginning_of(body),
        )
    )
    return InvalidMessage(f"{problem} ({facts}){_advice(body, properties)}")


def _property_in_words(name: str, value: str | None) -> str:
    return f"no {name}" if value is None else f"{name} {value[:_MOST_SHOWN]!r}"


def beginning_of(body: bytes) -> str:
    """Return the first bytes for an error message, without secrets.

    Quotes are escaped as hex codes, so that the quoted text ends where it seems to.
    """
    if not body:
        return ""
    shown = "".join(
        one if " " <= one <= "~" and one not in "\"'`\\" else f"\\x{ord(one):02x}"
        for one in redact(body[:_FIRST_SHOWN].decode("latin-1"))
    )
    return f' that begin with "{shown}"'


def _advice(body: bytes, properties: Properties) -> str:
    if properties.content_encoding is None:
        for magic, name in _MAGICS:
            if body.startswith(magic):
                return f"\nIt looks like {name}: have its publisher say so in content_encoding."
    type_ = media_type(properties.content_type)
    if type_ not in _READ_AS_JSON and not type_.endswith("+json"):
        return f"\nRead it with a decoder: decoders={{{type_[:_MOST_SHOWN]!r}: …}}."
    return ""


def media_type(content_type: str | None) -> str:
    """Return a content type without its parameters, in lower case; empty if there is none."""
    return "" if content_type is None else content_type.partition(";")[0].strip().lower()


# --- compression ----------------------------------------------------------------------------------


class _Decompressor(Protocol):
    """The interface that zlib and zstd share."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: memoryview, max_length: int = ..., /) -> bytes: ...


_Undo = Callable[[bytes, int], bytes]
"""Decompresses a body, up to a maximum number of bytes."""


@lru_cache(maxsize=256)
def _form_of(content_type: str | None, encoding: str | None) -> tuple[tuple[_Undo, ...], str]:
    """Return the functions that undo each compression of a body, the last one first, and its
    charset."""
    charset = None
    compressions: list[_Undo] = []
    names = [] if encoding is None else [one.strip().lower() for one in encoding.split(",")]
    for name in reversed(names):
        undo = _COMPRESSIONS.get(name)
        if undo is not None:
            compressions.append(undo)
        elif name and name not in _UNCOMPRESSED:
            charset = _codec_of(name)  # some clients put the charset there
            if charset is None:
                raise Unreadable(
                    f"the content encoding {name[:_MOST_SHOWN]!r} is not known; known are "
                    "gzip, deflate, zstd and identity"
                )
    if len(compressions) > _MOST_ENCODINGS:
        raise Unreadable(f"the body has more than {_MOST_ENCODINGS} content encodings")
    return tuple(compressions), _charset_of(content_type) or charset or "utf_8"


def _undone(body: bytes, compressions: Sequence[_Undo], most: int) -> bytes:
    for undo in compressions:
        if not body:
            break  # an empty body is empty, compressed or not
        body = undo(body, most)
    return body


def _gunzipped(body: bytes, most: int) -> bytes:
    return _decompressed("gzip", body, most, lambda: zlib.decompressobj(31))


def _inflated(body: bytes, most: int) -> bytes:
    """Inflate a body with a zlib header, as HTTP requires, or without one, as many programs write
    it."""
    try:
        return _decompressed("deflate", body, most, lambda: zlib.decompressobj(15), is_one=True)
    except TooLarge:
        raise
    except Unreadable as error:
        try:
            return _decompressed(
                "deflate", body, most, lambda: zlib.decompressobj(-15), is_one=True
            )
        except TooLarge:
            raise
        except Unreadable:
            raise error from None


def _unzstd(body: bytes, most: int) -> bytes:
    zstd = _zstd()
    if zstd is None:
        raise Unreadable(
            "the body is compressed with zstd, which this program can't read: "
            "pip install 'redrive[zstd]'"
        )
    limit = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    return _decompressed("zstd", body, most, lambda: zstd.ZstdDecompressor(options=limit))


_WINDOW_LOG = (MOST_BYTES - 1).bit_length()
"""Largest window that a zstd frame may require, as a power of two; larger ones are refused."""

_COMPRESSIONS: Mapping[str, _Undo] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "deflate": _inflated,
    "zstd": _unzstd,
}


@cache
def _zstd() -> Any:
    """Return Python's own zstd module, from 3.14 on, or its backport; None if neither is
    installed."""
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def _decompressed(
    kind: str,
    body: bytes,
    most: int,
    make: Callable[[], _Decompressor],
    *,
    is_one: bool = False,
) -> bytes:
    found: list[bytes] = []
    room, place = most, 0
    rest = memoryview(body)
    for _ in range(1 if is_one else _MOST_MEMBERS):
        stream = make()
        while not stream.eof:
            piece = rest[place : place + _PIECE]
            if not piece:
                raise Unreadable(f"the body is cut off: its {kind} data is incomplete")
            try:
                part = stream.decompress(piece, room + 1)
            except Exception as error:  # noqa: BLE001 - zlib.error, or an error of zstd, which may be missing
                raise Unreadable(
                    f"the body is not {kind}, although its content encoding says so: {error}"
                ) from None
            room -= len(part)
            if room < 0:
                raise TooLarge(f"the body's {kind} expands to more than {most} bytes")
            found.append(part)
            place += len(piece) - len(stream.unused_data)
        if place >= len(body) or (body[place] == 0 and not bytes(rest[place:]).strip(b"\0")):
            return b"".join(found)  # trailing zeros are padding
    raise Unreadable(
        f"there is extra data after the end of the body's {kind}"
        if is_one
        else f"the body's {kind} has more than {_MOST_MEMBERS} parts"
    )


# --- charsets -------------------------------------------------------------------------------------


def _charset_of(content_type: str | None) -> str | None:
    """Return Python's name for the charset in a content type; None if it has none."""
    found = None if content_type is None else _CHARSET.search(content_type)
    if found is None or not found[1] or found[1].lower() == "binary":  # PHP's name for no charset
        return None
    codec = _codec_of(found[1].lower())
    if codec is None:
        raise Unreadable(f"the charset {found[1][:_MOST_SHOWN]!r} is not known")
    return codec


def _codec_of(name: str) -> str | None:
    """Return Python's name for a charset; None if it is not one.

    Does not use `codecs.lookup`, which caches every unknown name for ever.
    """
    name = name.replace("-", "_").replace(" ", "_")
    codec = aliases.get(name, name)
    return codec if codec in _CODECS else None


_CODECS = frozenset(
    codec
    for codec in {*aliases.values(), "utf_8_sig", "koi8_u", "cp1006", "cp874", "cp875"}
    if _TEXT_CODEC.fullmatch(codec)
)


def _in_utf8(body: bytes, charset: str) -> bytes:
    if charset == "utf_8" and body[:1] < _FIRST_OF_A_MARK:
        return body
    for mark, marked in _MARKS:
        if body.startswith(mark):
            body, charset = body[len(mark) :], marked
            break
    match charset:
        case "utf_8" | "utf_8_sig" | "ascii":
            return body
        case "utf_16" | "utf_32":
            # .NET and others write UTF-16 and UTF-32 little-endian without a mark; texts begin with
            # ASCII.
            charset += "_be" if body[:1] == b"\0" else "_le"
    try:
        return body.decode(charset).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        place = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        problem = Unreadable(f"the body is not {charset.replace('_', '-')}: {error.reason}{place}")
    raise problem  # raised without a context, which would contain the body
