"""Bodies in an editor: JSON is laid out, and goes back as it was written."""

import base64
import gzip
import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp.properties import Properties
from redrive.cli.edit_options import EditOptions, Messages, changing
from redrive.failures.message.edit import as_before, laid_out
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import plan_of
from redrive.topology.headers import Delivery

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_json_has_a_line_for_each_value() -> None:
    assert laid_out('{"city":"Köln","n":[1]}'.encode()) == (
        '{\n  "city": "Köln",\n  "n": [\n    1\n  ]\n}\n'.encode()
    )


@pytest.mark.parametrize(
    "body",
    [b"hello", b"\xff", b"", b'{"a": 1,"b":2}', b'{"a":1.10}', b'{"a":1,"a":2}', b"[" * 9000],
    ids=["text", "binary", "empty", "own form", "trailing zero", "twice a name", "deep"],
)
def test_what_could_not_be_written_again_byte_for_byte_is_left_as_it_is(body: bytes) -> None:
    assert laid_out(body) is None


@given(VALUES, st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
def test_what_nobody_changes_comes_back_byte_for_byte(
    value: object, separators: tuple[str, str], ascii_alone: bool
) -> None:
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_alone)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    shown = laid_out(body)
    if shown is not None:
        assert as_before(body, shown) == body


@pytest.mark.parametrize(
    ("body", "edited", "sent"),
    [
        (b'{"a":1}', b'{\n  "a": 2\n}\n', b'{"a":2}'),
        (b'{"a": 1}', b'{\n  "a": 2\n}', b'{"a": 2}'),
        (b'{"a":1}', b'{\n  "a": 0.12345678901234567890\n}', None),
        (b'{"a":1}', b"{ broken", None),
        (b'{"a":1}', b"", None),
    ],
    ids=["compact", "with spaces", "many digits", "no JSON", "empty"],
)
def test_a_change_is_written_in_the_form_of_the_body_or_as_it_was_typed(
    body: bytes, edited: bytes, sent: bytes | None
) -> None:
    assert as_before(body, edited) == (edited if sent is None else sent)


def messages(count: int) -> list[FailedMessage]:
    return [
        FailedMessage(Delivery("shop@orders", "", "shop@orders", Properties(), b'{"n":%d}' % n))
        for n in range(count)
    ]


@pytest.fixture
def editor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/1/5/")


@pytest.mark.usefixtures("editor")
def test_messages_that_were_found_by_their_ids_are_edited_without_a_further_look() -> None:
    found = messages(3)
    order, chosen = changing(Order(), EditOptions(edit=True), lambda _: pytest.fail("read"), found)
    assert chosen == found
    assert set(order.edits) == {message.digest for message in found}


@pytest.mark.usefixtures("editor")
def test_what_an_editor_has_shown_need_not_be_read_again_to_say_what_would_be_sent() -> None:
    there, looks = messages(3), 0

    def look(read: Callable[[Iterable[FailedMessage]], Messages]) -> Messages:
        nonlocal looks
        looks += 1
        return read(there)

    order, chosen = changing(Order(limit=2), EditOptions(edit=True), look, None)
    assert (looks, chosen) == (1, there[:2])
    assert plan_of(order, chosen or []).changed == 1


@pytest.mark.usefixtures("editor")
def test_where_there_is_nothing_to_edit_the_plan_says_how_many_were_read() -> None:
    order, chosen = changing(Order(), EditOptions(edit=True), lambda read: read([]), None)
    assert (order.edits, chosen) == ({}, None)


@pytest.mark.usefixtures("editor")
def test_a_compressed_body_is_edited_as_its_handler_reads_it() -> None:
    properties = Properties("application/json", "gzip")
    found = [
        FailedMessage(Delivery("q", "", "q", properties, gzip.compress(body)))
        for body in (b'{"n":1}', b'{"n":2}')
    ]
    order, _ = changing(Order(), EditOptions(edit=True), lambda _: pytest.fail("read"), found)
    bodies = [base64.b64decode(order.edits[message.digest]) for message in found]
    assert bodies == [b'{"n":5}', found[1].body]  # what was not changed stays compressed
