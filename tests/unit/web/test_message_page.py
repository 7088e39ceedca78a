"""A body as a tree, as text, and byte for byte."""

import json

from hypothesis import given
from hypothesis import strategies as st

from deliveries import failed
from redrive.failures.message.failed_message import FailedMessage
from redrive.web.message_page import VIEWS, BodyView, viewed


def seen(body: bytes, wanted: str) -> BodyView:
    return viewed(FailedMessage(failed(body=body)), wanted)


def test_json_is_a_tree() -> None:
    view = seen(b'{"id": 7, "lines": [{"sku": "socks"}], "paid": true}', "tree")
    assert [(one.depth, one.name, one.value, one.kind) for one in view.tree] == [
        (0, "", "{3}", "object"),
        (1, "id", "7", "number"),
        (1, "lines", "[1]", "list"),
        (2, "0", "{1}", "object"),
        (3, "sku", '"socks"', "string"),
        (1, "paid", "true", "word"),
    ]


def test_what_is_no_json_has_no_tree() -> None:
    view = seen(b"hello", "tree")
    assert (view.view, view.text, view.is_json) == ("text", "hello", False)


def test_bytes_are_shown_as_such() -> None:
    view = seen(b"\x00A\xff", "tree")
    assert view.view == "hex"
    assert view.text.split() == ["000000", "00", "41", "ff", ".A."]


def test_json_is_laid_out_as_text() -> None:
    assert seen(b'{"a":1}', "text").text == '{\n  "a": 1\n}'


def test_what_is_nested_deep_or_long_ends_somewhere_and_says_so() -> None:
    deep = b"[" * 900 + b"]" * 900
    assert len(seen(deep, "tree").tree) < 100
    long = json.dumps(list(range(5000))).encode()
    view = seen(long, "tree")
    assert len(view.tree) == 2000
    assert view.note


def test_a_large_body_is_not_shown_whole() -> None:
    for wanted, body in (("text", b"x" * 2_000_000), ("hex", b"\xff" * 2_000_000)):
        view = seen(body, wanted)
        assert len(view.text) < 400_000
        assert view.note


@given(st.binary(max_size=60), st.sampled_from([*VIEWS, "", "nothing"]))
def test_any_body_is_shown_somehow(body: bytes, wanted: str) -> None:
    view = seen(body, wanted)
    assert view.view in VIEWS
    assert view.tree or view.text or not body
