"""Bodies as others write them: compressed, in another charset, with a byte order mark."""

import contextlib
import gzip
import json
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp.properties import Properties
from redrive.errors import InvalidMessage
from redrive.failures.message.cause import masked
from redrive.pubsub import body as bodies
from redrive.pubsub.body import (
    MOST_BYTES,
    TooLarge,
    Unreadable,
    uncompressed,
    utf8_of,
    with_body,
)
from redrive.pubsub.message import Message
from redrive.topology.headers import Delivery


class Item(msgspec.Struct):
    """A struct."""


ZSTD: Any = bodies._zstd()
JSON = '{"name":"Köln"}'


def deflated(body: bytes) -> bytes:
    """Deflate without zlib's head."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


def read(body: bytes, encoding: str | None = None, content_type: str | None = None) -> str:
    return utf8_of(body, Properties(content_type=content_type, content_encoding=encoding)).decode()


COMPRESSED = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", deflated),
    ("zstd", lambda body: ZSTD.compress(body)),
]


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSED)
def test_compression_is_undone(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert read(compress(JSON.encode()), encoding) == JSON


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSED)
@given(body=st.binary())
def test_any_bytes_come_out_as_they_went_in(
    encoding: str, compress: Callable[[bytes], bytes], body: bytes
) -> None:
    assert uncompressed(compress(body), Properties(content_encoding=encoding)) == body


@pytest.mark.parametrize("encoding", ["GZIP", " gzip ", "gzip,", "identity, gzip", "utf-8, gzip"])
def test_the_name_of_an_encoding_is_read_as_clients_write_it(encoding: str) -> None:
    assert read(gzip.compress(JSON.encode()), encoding) == JSON


@pytest.mark.parametrize(
    "encoding", ["identity", "", "binary", "utf-8", "UTF8", "us-ascii", "8bit", None]
)
def test_an_encoding_that_changes_nothing_is_none(encoding: str | None) -> None:
    assert read(JSON.encode(), encoding) == JSON


def test_of_several_encodings_the_last_is_undone_first() -> None:
    assert read(gzip.compress(zlib.compress(JSON.encode())), "deflate, gzip") == JSON


def test_more_encodings_than_anybody_uses_are_not_undone() -> None:
    with pytest.raises(Unreadable, match="more than 3 content encodings"):
        read(b"x", "gzip, gzip, gzip, gzip")


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(Unreadable, match="the content encoding 'br' is not known; known are gzip"):
        read(b"x", "BR")


def test_nothing_is_nothing_whatever_its_encoding() -> None:
    assert read(b"", "gzip") == ""


def test_several_gzips_behind_each_other_are_one_body() -> None:
    assert read(gzip.compress(b"[1,") + gzip.compress(b"2]") + b"\0\0", "gzip") == "[1,2]"


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSED)
def test_a_bomb_is_not_undone(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    with pytest.raises(TooLarge, match=f"expands to more than {MOST_BYTES} bytes"):
        read(compress(bytes(MOST_BYTES + 1)), encoding)


def test_as_much_as_a_reader_takes_is_undone() -> None:
    assert len(read(gzip.compress(bytes(MOST_BYTES)), "gzip")) == MOST_BYTES


def test_a_bomb_within_another_is_not_undone() -> None:
    bomb = gzip.compress(gzip.compress(bytes(4 * MOST_BYTES)))
    with pytest.raises(TooLarge):
        read(bomb, "gzip, gzip")


def test_a_zstd_that_asks_for_more_memory_than_a_body_may_have_is_not_undone() -> None:
    level = {
        ZSTD.CompressionParameter.window_log: 27,
        ZSTD.CompressionParameter.content_size_flag: 0,
    }
    compressor = ZSTD.ZstdCompressor(options=level)
    frame = compressor.compress(b"{}") + compressor.flush()
    with pytest.raises(Unreadable, match="is not zstd"):
        read(frame, "zstd")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_thousands_of_empty_streams_take_no_time(encoding: str) -> None:
    empty = gzip.compress(b"") if encoding == "gzip" else ZSTD.compress(b"")
    began = time.process_time()
    with pytest.raises(Unreadable, match="more than 1000 parts"):
        read(empty * 200_000, encoding)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSED)
@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"x" + b, lambda b: b + b"x"])
def test_what_is_not_what_its_encoding_says_is_unreadable(
    encoding: str, compress: Callable[[bytes], bytes], damage: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(Unreadable):
        read(damage(compress(JSON.encode())), encoding)


def test_without_the_library_a_zstd_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_zstd", lambda: None)
    with pytest.raises(Unreadable, match=r"pip install 'redrive\[zstd\]'"):
        read(ZSTD.compress(b"{}"), "zstd")


def test_where_there_is_no_zstd_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    assert bodies._zstd.__wrapped__() is None


# --- charsets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "charset",
    [
        "utf-8",
        "utf-8-sig",
        "utf-16",
        "utf-16le",
        "utf-16be",
        "utf-32",
        "utf-32-be",
        "iso-8859-1",
        "ISO-8859-15",
        "windows-1252",
        "latin1",
    ],
)
def test_a_charset_of_the_content_type_is_read(charset: str) -> None:
    assert read(JSON.encode(charset), None, f"application/json; charset={charset}") == JSON


@pytest.mark.parametrize(
    "content_type",
    ['application/json;charset="utf-16"', "application/json; v=1; CHARSET = utf-16 ; q=2"],
)
def test_a_charset_is_read_as_clients_write_it(content_type: str) -> None:
    assert read(JSON.encode("utf-16"), None, content_type) == JSON


@pytest.mark.parametrize(
    "content_type", ["text/plain; charset=binary", "text/plain; charset=", "a;"]
)
def test_a_content_type_without_a_charset_means_utf_8(content_type: str) -> None:
    assert read(JSON.encode(), None, content_type) == JSON


@pytest.mark.parametrize("order", ["le", "be"])
@pytest.mark.parametrize("width", [16, 32])
def test_utf_16_without_a_mark_is_read_in_either_order(width: int, order: str) -> None:
    content_type = f"application/json; charset=utf-{width}"
    assert read(JSON.encode(f"utf-{width}-{order}"), None, content_type) == JSON


def test_a_charset_may_stand_in_the_content_encoding() -> None:
    assert read(JSON.encode("utf-16"), "utf-16") == JSON


def test_a_charset_of_the_content_type_holds_before_one_of_the_encoding() -> None:
    assert read(JSON.encode("latin-1"), "utf-8", "application/json; charset=latin-1") == JSON


def test_a_compressed_body_may_have_a_charset() -> None:
    body = gzip.compress(JSON.encode("utf-16"))
    assert read(body, "gzip", "application/json; charset=utf-16") == JSON


@pytest.mark.parametrize("charset", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_is_ignored_and_says_more_than_the_charset(charset: str) -> None:
    marked = ("\ufeff" if charset == "utf-8" else "") + JSON
    assert read(marked.encode(charset), None, "application/json; charset=utf-8") == JSON


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_ignored_where_nothing_is_said(mark: str) -> None:
    assert read(JSON.encode(mark)) == JSON


@pytest.mark.parametrize(
    "charset", ["klingon", "idna", "punycode", "unicode_escape", "hex", "utf-7"]
)
def test_an_unknown_charset_is_named(charset: str) -> None:
    with pytest.raises(Unreadable, match=f"the charset '{charset}' is not known"):
        read(b"{}", None, f"application/json; charset={charset}")


def test_what_is_not_in_its_charset_is_unreadable() -> None:
    with pytest.raises(Unreadable, match=r"the body is not utf-16-le: .* at byte"):
        read(b"{}}", None, "application/json; charset=utf-16")


@given(st.text())
def test_any_text_is_read_in_any_charset_that_has_it(text: str) -> None:
    for charset in ("utf-16-be", "utf-32-le", "utf-8"):
        content_type = f"text/plain; charset={charset}"
        assert read(text.encode(charset), None, content_type) == text.removeprefix("\ufeff")


@given(st.binary(max_size=300), st.text(max_size=80), st.text(max_size=80))
def test_whatever_comes_is_read_or_unreadable(body: bytes, encoding: str, type_: str) -> None:
    for one in (encoding, "gzip", "deflate", "zstd", "utf-32", None):
        properties = Properties(content_encoding=one, content_type=f"a/b; charset={type_}")
        with contextlib.suppress(Unreadable):
            assert isinstance(utf8_of(body, properties), bytes)


# --- what an error says ---------------------------------------------------------------------------


def error_of(
    body: bytes, encoding: str | None = None, content_type: str | None = None
) -> InvalidMessage:
    properties = Properties(content_type=content_type, content_encoding=encoding)
    with pytest.raises(InvalidMessage) as raised:
        Message(Delivery("q", "", "k", properties, body)).json()
    return raised.value


def test_an_unreadable_body_is_told_with_its_type_its_encoding_its_size_and_its_beginning() -> None:
    told = str(error_of(b"\x81\xa2id\x07", "utf-8", "application/msgpack"))
    assert "the body is not UTF-8: invalid start byte at byte 0" in told
    assert "content type 'application/msgpack', content encoding 'utf-8', 5 bytes" in told
    assert r'begin with "\x81\xa2id"' in told
    assert "Read it with a decoder: decoders={'application/msgpack': …}" in told


def test_what_a_message_does_not_say_is_told_as_that() -> None:
    assert "(no content type, no content encoding, 0 bytes)" in str(error_of(b""))
    assert '1 byte that begin with "x"' in str(error_of(b"x"))


@pytest.mark.parametrize(
    ("body", "kind"),
    [(gzip.compress(b"{}"), "gzip"), (ZSTD.compress(b"{}"), "zstd")],
    ids=["gzip", "zstd"],
)
def test_what_looks_compressed_and_does_not_say_so_is_told(body: bytes, kind: str) -> None:
    assert f"It looks like {kind}: have its publisher say so" in str(error_of(body))


@pytest.mark.parametrize("content_type", [None, "application/json", "application/vnd.a+json"])
def test_what_should_be_json_needs_no_decoder(content_type: str | None) -> None:
    assert "decoder" not in str(error_of(b"{", None, content_type))


def test_what_a_hostile_message_says_is_bounded_and_escaped() -> None:
    told = str(error_of(b"\x1b[31m\n" * 1000, "\x1b" * 200, "\n" * 200))
    assert len(told) < 1000
    assert told.replace("\n", "").isprintable()


def test_a_secret_at_the_beginning_is_not_told() -> None:
    assert "hunter2" not in str(error_of(b"pwd=hunter2"))


def test_unreadable_bodies_of_one_kind_are_one_cause() -> None:
    told = {masked(str(error_of(body, "gzip"))) for body in (b"'\"x", b"\x1f\x8c" * 9, b"12345")}
    assert len(told) == 1


@pytest.mark.parametrize("kind", [str, dict, Item, bool])
def test_whatever_a_handler_asks_for_the_error_says_what_the_body_is(kind: type) -> None:
    message = Message(Delivery("q", "", "k", Properties(), b"\xff{"))
    with pytest.raises(InvalidMessage, match="no content type, no content encoding, 2 bytes"):
        message.parse(kind)


def test_neither_cause_nor_context_holds_the_body() -> None:
    for error in (error_of(b"\xff"), error_of(b"x", "gzip"), error_of(b"{}}", "utf-16")):
        assert error.__context__ is None


# --- another body in its place --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "plain"),
    [
        ("application/json; charset=utf-16", "application/json"),
        ("application/json;charset=utf-16; v=2", "application/json; v=2"),
        ("application/json", "application/json"),
        (None, None),
    ],
)
def test_another_body_is_plain(content_type: str | None, plain: str | None) -> None:
    properties = Properties(content_type, "gzip", message_id="m")
    assert with_body(b"{}", properties) == Properties(plain, message_id="m")


def test_another_body_that_is_compressed_as_before_keeps_its_properties() -> None:
    properties = Properties("application/json; charset=utf-16", "gzip")
    assert with_body(gzip.compress(JSON.encode("utf-16")), properties) == properties


@pytest.mark.parametrize("encoding", ["utf-16", "br", "identity"])
def test_another_body_is_in_no_encoding_that_was_not_undone(encoding: str) -> None:
    assert with_body(b"{}", Properties(content_encoding=encoding)) == Properties()


def test_what_is_read_as_json_is_json() -> None:
    body = gzip.compress(json.dumps({"id": 7}).encode("utf-16"))
    properties = Properties("application/json; charset=utf-16", "gzip")
    assert Message(Delivery("q", "", "k", properties, body)).json() == {"id": 7}
