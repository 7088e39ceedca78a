"""Other bodies for messages: RFC 6902 and RFC 7386 by their own examples, functions, and
differences."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import failed
from redrive.errors import ConfigurationError
from redrive.failures.message import edit
from redrive.failures.message.edit import (
    calling,
    difference,
    edited,
    merged_with,
    patched_with,
    patching,
)
from redrive.failures.message.failed_message import FailedMessage

MESSAGE = FailedMessage(failed(body=b'{"a": "b", "c": {"d": "e", "f": "g"}}'))


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux"}],
            {"baz": "qux", "foo": "bar"},
        ),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
        ),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        (
            {"foo": ["bar", "qux", "baz"]},
            [{"op": "remove", "path": "/foo/1"}],
            {"foo": ["bar", "baz"]},
        ),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"a": {"b": 1}, "c": {}},
            [{"op": "move", "from": "/a/b", "path": "/c/d"}],
            {"a": {}, "c": {"d": 1}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"a": [1]},
            [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/-", "value": 2}],
            {"a": [1], "b": [1, 2]},
        ),
        (
            {"foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/foo/1", "value": 2}],
            {"foo": ["a", 2, "c"]},
        ),
        (
            {"/": 9, "~1": 10},
            [{"op": "test", "path": "/~01", "value": 10}, {"op": "remove", "path": "/~1"}],
            {"~1": 10},
        ),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
        ({"a": 1}, [{"op": "add", "path": "", "value": None}], None),
    ],
)
def test_a_json_patch_does_what_its_rfc_says(
    before: object, patch: list[object], after: object
) -> None:
    given_value = json.loads(json.dumps(before))
    assert patched_with(given_value, patch) == after
    assert given_value == before


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "add", "path": "/baz/bat", "value": "qux"}],
        [{"op": "remove", "path": "/nothing"}],
        [{"op": "replace", "path": "/nothing", "value": 1}],
        [{"op": "test", "path": "/foo", "value": "other"}],
        [{"op": "test", "path": "/one", "value": True}],
        [{"op": "add", "path": "/list/3", "value": 1}],
        [{"op": "add", "path": "/list/01", "value": 1}],
        [{"op": "remove", "path": "/list/-"}],
        [{"op": "move", "from": "/map", "path": "/map/x"}],
    ],
)
def test_a_json_patch_that_does_not_fit_raises(patch: list[object]) -> None:
    with pytest.raises((LookupError, ValueError)):
        patched_with({"foo": "bar", "one": 1, "list": [1, 2], "map": {}}, patch)


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], {"a": "c"}, {"a": "c"}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_its_rfc_says(before: object, patch: object, after: object) -> None:
    assert merged_with(before, patch) == after


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello", "not JSON"),
        ("1", "the patch is 1"),
        ('[{"op": "jump", "path": "/a"}]', "operation 1"),
        ('[{"op": "add", "path": "/a"}]', "operation 1"),
        ('[{"op": "remove", "path": "a"}]', "the path 'a'"),
        ('[{"op": "move", "path": "/a", "from": 1}]', "the from 1"),
        ("[1]", "operation 1"),
        ('{"price": NaN}', "JSON has no NaN"),
    ],
)
def test_what_is_no_patch_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        patching(text)


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ([{"op": "copy", "from": "", "path": f"/a{number}"} for number in range(60)], "16 MiB"),
        ([{"op": "copy", "from": "/c", "path": "/c/-"}] * 60, "16 MiB"),
        ([{"op": "copy", "from": "", "path": "/c"}] * 5000, "nested too deeply"),
    ],
    ids=["into new members", "into itself", "ever deeper"],
)
def test_a_patch_that_copies_a_body_again_and_again_is_refused(
    patch: list[object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told == "16 MiB":
        monkeypatch.setattr(edit, "_MOST_COPIED", 64 * 1024)
    with pytest.raises(ConfigurationError, match=told):
        patching(json.dumps(patch))(FailedMessage(failed(body=b'{"c": [1]}')))


def test_a_body_that_is_nested_too_deeply_is_named() -> None:
    body = FailedMessage(failed(body=b'{"a":' * 900 + b"1" + b"}" * 900))
    with pytest.raises(ConfigurationError, match="is nested too deeply to be patched"):
        patching('[{"op": "remove", "path": "/a"}]')(body)


def test_a_patched_body_keeps_its_style() -> None:
    assert patching('{"a": "x"}')(MESSAGE) == b'{"a": "x", "c": {"d": "e", "f": "g"}}'
    assert (
        patching('{"a": 2}')(FailedMessage(failed(body=b'{"a":1,"b":"\xc3\xa9"}')))
        == '{"a":2,"b":"é"}'.encode()
    )


@pytest.mark.parametrize(("body", "told"), [(b"hello", "is not JSON"), (b"{}", "does not fit")])
def test_a_body_that_can_not_be_patched_is_named(body: bytes, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        patching('[{"op": "remove", "path": "/a"}]')(FailedMessage(failed(body=body)))


def test_no_patch_makes_a_number_that_json_has_none_for() -> None:
    with pytest.raises(ConfigurationError, match="does not fit"):
        patching('{"price": 1e999}')(MESSAGE)


def upper(message: FailedMessage) -> object:
    return message.body.upper()


def as_json(message: FailedMessage) -> object:
    return {"n": 1}


def fails(message: FailedMessage) -> object:
    raise KeyError("country")


def test_a_function_gives_bytes_or_what_json_can_be_made_of() -> None:
    assert calling(f"{__name__}:upper")(MESSAGE) == MESSAGE.body.upper()
    assert calling(f"{__name__}:as_json")(MESSAGE) == b'{"n": 1}'


@pytest.mark.parametrize(
    "name", ["", "upper", ":upper", "nowhere_at_all:x", "json:nothing", "json:__name__"]
)
def test_a_function_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError):
        calling(name)


def test_a_function_that_raises_is_an_error_that_names_the_message() -> None:
    with pytest.raises(ConfigurationError, match=MESSAGE.failure_id):
        calling(f"{__name__}:fails")(MESSAGE)


def test_only_what_was_edited_is_changed() -> None:
    edit = edited({MESSAGE.digest: base64.b64encode(b"new").decode()})
    assert edit(MESSAGE) == b"new"
    assert edit(FailedMessage(failed(body=b"other"))) == b"other"


def test_a_difference_shows_the_lines_that_changed() -> None:
    message = FailedMessage(failed(body=b'{"a":1,"b":2}'))
    assert difference(message, b'{"a":1,"b":3}')[3:] == [
        " {",
        '   "a": 1,',
        '-  "b": 2',
        '+  "b": 3',
        " }",
    ]


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_any_bodies_have_a_difference(before: bytes, after: bytes) -> None:
    message = FailedMessage(failed(body=before))
    assert difference(message, before) == []
    assert isinstance(difference(message, after), list)
