"""What a mask hides in a body, and what must not bring it to light."""

import json

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.message.mask import HIDDEN, Mask, check_patch


def mask_of(*paths: str) -> Mask:
    found = Mask.of(paths)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "masked"),
    [
        ("$.card.number", {"card": {"number": HIDDEN, "type": "x"}, "lines": [{"iban": "b"}]}),
        ("$.card", {"card": HIDDEN, "lines": [{"iban": "b"}]}),
        ("$.card.*", {"card": {"number": HIDDEN, "type": HIDDEN}, "lines": [{"iban": "b"}]}),
        ("$['card']['type']", {"card": {"number": "1", "type": HIDDEN}, "lines": [{"iban": "b"}]}),
        ("$.lines[*].iban", {"card": {"number": "1", "type": "x"}, "lines": [{"iban": HIDDEN}]}),
        ("$.lines[0].iban", {"card": {"number": "1", "type": "x"}, "lines": [{"iban": HIDDEN}]}),
        ("$.lines[1].iban", {"card": {"number": "1", "type": "x"}, "lines": [{"iban": "b"}]}),
        ("$..iban", {"card": {"number": "1", "type": "x"}, "lines": [{"iban": HIDDEN}]}),
        ("$.nothing", {"card": {"number": "1", "type": "x"}, "lines": [{"iban": "b"}]}),
    ],
)
def test_what_is_at_a_path_is_hidden_and_nothing_else(path: str, masked: object) -> None:
    body = {"card": {"number": "1", "type": "x"}, "lines": [{"iban": "b"}]}
    assert json.loads(mask_of(path).body(json.dumps(body).encode())) == masked


def test_a_body_in_which_nothing_is_hidden_stays_byte_for_byte() -> None:
    assert mask_of("$.card").body(b'{ "id":1 }') == b'{ "id":1 }'


@pytest.mark.parametrize("body", [b"card=1", b"\xff\x00", b"{", b'{"a":' * 5000])
def test_what_is_no_json_is_hidden_whole(body: bytes) -> None:
    assert mask_of("$.card").body(body) == HIDDEN.encode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("$.card", b'{"card": "4111", "card": "4111"}'),
        ("$.card", b'{"card": "4111", "card": "***"}'),
        ("$.card.number", b'{"card": {"number": "4111"}, "card": 1}'),
    ],
)
def test_a_member_that_comes_twice_is_hidden_both_times(path: str, body: bytes) -> None:
    assert b"4111" not in mask_of(path).body(body)


@pytest.mark.parametrize(
    "path", ["", "$", "card", "$.", "$.a b", "$[x]", "$.a[", "$.a..", "$[?(@)]"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="not a path"):
        Mask.of([path])


def test_no_path_is_no_mask() -> None:
    assert Mask.of([]) is None


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/card/number", "value": "4111"},
        {"op": "move", "from": "/card", "path": "/x"},
        {"op": "copy", "from": "/card/number", "path": "/x"},
        {"op": "copy", "from": "", "path": "/x"},
        {"op": "replace", "path": "/card/number/0", "value": 1},
    ],
)
def test_a_patch_that_could_tell_is_refused(operation: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="masked"):
        check_patch(mask_of("$.card.number"), json.dumps([operation]))


@pytest.mark.parametrize(
    "patch",
    ['[{"op": "add", "path": "/currency", "value": "EUR"}]', '{"card": {"number": "1"}}', "x"],
)
def test_another_patch_is_none_of_its_business(patch: str) -> None:
    check_patch(mask_of("$.card.number"), patch)
