"""Bodies that are compressed, in another charset or behind a byte order mark: whoever looks into a
failed queue sees what their handler sees."""

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from deliveries import failed
from kept_looks import index_in, keep
from redrive.amqp.properties import Properties
from redrive.failures.message.columns import BY_NAME, Row, row_of
from redrive.failures.message.edit import difference, patching, with_edited_body
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.mask import HIDDEN, Mask, MaskedMessage
from redrive.failures.message.readable_values import body_of
from redrive.failures.store.database import in_batches
from redrive.failures.store.facet import offered
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.index import MOST_OF_A_BODY
from redrive.failures.store.kept_messages import BodyNotKept
from redrive.topology.headers import Delivery
from redrive.web.message_page import viewed

TEXT = '{"country":"DE","card":{"number":"4111"},"city":"Köln"}'
UTF_16 = "application/json; charset=utf-16"
ENCODED = [
    (b"\xef\xbb\xbf" + TEXT.encode(), Properties()),
    (gzip.compress(TEXT.encode()), Properties(content_encoding="gzip")),
    (zlib.compress(TEXT.encode()), Properties("application/json", "deflate")),
    (TEXT.encode("utf-16"), Properties(UTF_16)),
    (gzip.compress(TEXT.encode("utf-16")), Properties(UTF_16, "gzip")),
]
BOMB = gzip.compress(bytes(2**25))
GZIP = Properties("application/json", "gzip")


def delivery_of(body: bytes, properties: Properties) -> Delivery:
    return replace(failed(body=body), properties=properties)


def message_of(body: bytes, properties: Properties) -> FailedMessage:
    return FailedMessage(delivery_of(body, properties))


encoded = pytest.mark.parametrize(
    ("body", "properties"), ENCODED, ids=["bom", "gzip", "deflate", "utf-16", "utf-16 in gzip"]
)


@encoded
def test_the_columns_have_what_the_handler_sees_and_the_bytes_that_came(
    body: bytes, properties: Properties
) -> None:
    row = row_of(delivery_of(body, properties))
    assert (row["body"], row["body_text"], row["body_bytes"]) == (TEXT, TEXT, body)
    assert row["size"] == len(body)


@pytest.mark.parametrize(
    ("body", "properties"),
    [(b"{}", GZIP), (b"{}", Properties(content_encoding="br")), (BOMB, GZIP)],
    ids=["no gzip", "unknown", "bomb"],
)
def test_what_no_handler_could_read_is_null(body: bytes, properties: Properties) -> None:
    row = row_of(delivery_of(body, properties))
    assert (row["body"], row["body_text"], row["body_bytes"]) == (None, None, body)
    assert body_of(message_of(body, properties))[1] == "base64"


@encoded
def test_a_filter_finds_a_message_by_its_body(body: bytes, properties: Properties) -> None:
    messages = [message_of(body, properties), message_of(b'{"country":"FR"}', Properties())]
    with OpenFilter(Filter("body->>'$.country' = 'DE'")) as chosen:
        assert chosen(messages) == [True, False]


@encoded
def test_what_is_kept_of_a_look_answers_the_same(
    tmp_path: Path, body: bytes, properties: Properties
) -> None:
    messages = keep(index_in(tmp_path), [delivery_of(body, properties), failed(body=b"{}")])
    found = messages.matching(Filter("body->>'$.city' = 'Köln' and body_text like '%DE%'"))
    assert [one.body for one in found.first(5, newest=False)] == [body]


def test_a_body_out_of_which_more_comes_than_is_kept_is_not_kept(tmp_path: Path) -> None:
    large = gzip.compress(json.dumps("x" * MOST_OF_A_BODY).encode())
    messages = keep(index_in(tmp_path), [delivery_of(large, GZIP)])
    with pytest.raises(BodyNotKept):
        messages.matching(Filter("body is not null")).count()


def test_unreadable_bodies_that_are_kept_are_null(tmp_path: Path) -> None:
    messages = keep(index_in(tmp_path), [delivery_of(b"{}", GZIP)])
    assert messages.matching(Filter("body is null and body_text is null")).count() == 1


def test_rows_that_are_large_go_a_few_at_a_time() -> None:
    rows: list[Row] = [{"body": "x" * 2**22} for _ in range(5)]
    assert [len(some) for some in in_batches(rows)] == [2, 2, 1]


@encoded
def test_facets_are_offered_of_what_the_handler_sees(body: bytes, properties: Properties) -> None:
    assert "$.country" in offered(message_of(body, properties))


# --- masks ----------------------------------------------------------------------------------------


def masked(message: FailedMessage) -> MaskedMessage:
    mask = Mask.of(["$.card.number"])
    assert mask is not None
    return MaskedMessage(message, mask)


@encoded
def test_a_mask_hides_what_the_handler_sees(body: bytes, properties: Properties) -> None:
    message = masked(message_of(body, properties))
    shown = [str(BY_NAME[name].read(message)) for name in ("body", "body_text", "body_bytes")]
    assert all("4111" not in one for one in shown)
    assert json.loads(shown[0])["card"] == {"number": HIDDEN}
    assert "4111" not in viewed(message, "text").text


@pytest.mark.parametrize("body", [b"number 4111", b"{}", BOMB], ids=["text", "json", "bomb"])
def test_a_body_that_can_not_be_read_is_masked_whole(body: bytes) -> None:
    message = masked(message_of(body, Properties(content_encoding="br")))
    assert message.body == (b"{}" if body == b"{}" else HIDDEN.encode())


# --- edits ----------------------------------------------------------------------------------------


@encoded
def test_a_patch_changes_what_the_handler_sees(body: bytes, properties: Properties) -> None:
    message = message_of(body, properties)
    after = patching('{"country":"FR"}')(message)
    assert json.loads(after) == {**json.loads(TEXT), "country": "FR"}
    assert {'-  "country": "DE",', '+  "country": "FR",'} <= set(difference(message, after))


@encoded
def test_an_edited_body_travels_plainly(body: bytes, properties: Properties) -> None:
    edited = with_edited_body(delivery_of(body, properties), b'{"a":1}')
    assert FailedMessage(edited).json() == {"a": 1}
    assert edited.properties.content_encoding is None
    assert "charset" not in (edited.properties.content_type or "")


@encoded
def test_a_body_that_is_not_changed_keeps_its_bytes_and_its_encoding(
    body: bytes, properties: Properties
) -> None:
    delivery = delivery_of(body, properties)
    assert with_edited_body(delivery, body) is delivery


def test_a_difference_tells_of_an_encoding_that_goes() -> None:
    message = message_of(gzip.compress(b'{"a":1}'), GZIP)
    lines = difference(message, b'{"a":2}')
    assert "-content_encoding: gzip" in lines


# --- the console ----------------------------------------------------------------------------------


def names_of(branches: Sequence[object]) -> list[str]:
    return [getattr(branch, "name") for branch in branches]  # noqa: B009 - a branch of any view


@encoded
def test_the_console_shows_what_the_handler_sees_and_the_bytes_that_came(
    body: bytes, properties: Properties
) -> None:
    message = message_of(body, properties)
    assert "country" in names_of(viewed(message, "tree").tree)
    assert "Köln" in viewed(message, "text").text
    assert viewed(message, "hex").text.startswith("000000  " + body[:4].hex(" "))
