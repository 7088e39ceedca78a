"""PHP's envelope: written by choice, read wherever it is one, and nothing else taken for it."""

import json
import re
from dataclasses import replace
from datetime import date

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import failed, first_delivery
from redrive import Publisher
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError, InvalidMessage
from redrive.failures.message.failed_message import FailedMessage
from redrive.pubsub import php_envelope
from redrive.pubsub.codec import reader_of
from redrive.pubsub.handler import Handler
from redrive.pubsub.handler_table import body_annotation
from redrive.pubsub.message import Message
from redrive.pubsub.publisher_base import envelope_of

BY_PHP = b'{"body":{"id":121,"name":"\xe7\xae\xa1"},"__id":"20240517093000-664726a8d1f3e"}'
NEARLY = [
    b'{"body":{"id":121},"__id":"20240517093000-664726a8d1f3e","more":1}',
    b'{"body":{"id":121},"__id":"121"}',
    b'{"body":{"id":121},"__id":20240517093000}',
    b'{"body":{"id":121},"__id":null}',
    b'{"body":{"id":121},"__id":"20240517093000-664726a8d1f3e\\n"}',
    b'{"body":{"id":121}}',
    b'{"__id":"20240517093000-664726a8d1f3e"}',
    b'[{"body":{"id":121},"__id":"20240517093000-664726a8d1f3e"}]',
    b'{"body":{"id":121},"__id":"20240517093000-664726a8d1f3e"',
    b'"__id"',
    b'\xff"__id"',
    b"[" * 10_000 + b'"__id"',
]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


class User(pydantic.BaseModel):
    id: int
    name: str = ""


class Enveloped(pydantic.BaseModel):
    body: User
    id: str = pydantic.Field(alias="__id")


class Strict(pydantic.BaseModel, strict=True):
    born: date


def on_user(user: User) -> None:
    """A handler of a model."""


def on_dict(user: dict[str, object]) -> None:
    """A handler of a dict."""


def on_enveloped(user: Enveloped) -> None:
    """A handler that reads the envelope itself."""


def on_strict(user: Strict) -> None:
    """A handler of a model for which JSON is not Python."""


def argument_of(handler: Handler, message: Message) -> object:
    """What a handler gets of a message's body."""
    return reader_of(body_annotation(handler))(message)


def on_bytes(body: bytes) -> None:
    """A handler of bytes."""


def on_text(body: str) -> None:
    """A handler of a text."""


def message_of(body: bytes, message_id: str | None = None) -> Message:
    return Message(replace(first_delivery(body=body), properties=Properties(message_id=message_id)))


def test_a_model_is_read_from_what_is_in_the_envelope() -> None:
    assert argument_of(on_user, message_of(BY_PHP)) == User(id=121, name="管")


def test_a_dict_is_what_is_in_the_envelope() -> None:
    assert argument_of(on_dict, message_of(BY_PHP)) == {"id": 121, "name": "管"}


def test_json_is_what_is_in_the_envelope() -> None:
    assert message_of(BY_PHP).json() == {"id": 121, "name": "管"}


def test_what_is_in_the_envelope_is_read_as_json_and_not_as_python() -> None:
    body = b'{"body":{"born":"1990-01-31"},"__id":"20240517093000-664726a8d1f3e"}'
    assert argument_of(on_strict, message_of(body)) == Strict(born=date(1990, 1, 31))


@pytest.mark.parametrize("handler", [on_bytes, on_text])
def test_bytes_and_texts_are_the_body_as_it_came(handler: Handler) -> None:
    got = argument_of(handler, message_of(BY_PHP))
    assert got in (BY_PHP, BY_PHP.decode())


def test_the_body_of_a_message_is_what_came() -> None:
    assert message_of(BY_PHP).body == BY_PHP


def test_a_type_that_names_the_id_gets_the_envelope() -> None:
    got = argument_of(on_enveloped, message_of(BY_PHP))
    assert isinstance(got, Enveloped)
    assert (got.id, got.body.id) == ("20240517093000-664726a8d1f3e", 121)


def test_what_is_wrong_in_an_envelope_is_said_with_its_place() -> None:
    body = b'{"body":{"id":"many"},"__id":"20240517093000-664726a8d1f3e"}'
    with pytest.raises(InvalidMessage, match=r"PHP's envelope: body\.id: "):
        argument_of(on_user, message_of(body))


@pytest.mark.parametrize("body", NEARLY)
def test_a_body_that_only_looks_like_an_envelope_is_left_as_it_is(body: bytes) -> None:
    assert php_envelope.read(body) is None


def test_a_dict_with_a_body_of_its_own_stays_whole() -> None:
    body = b'{"body":"hello","__id":"7"}'
    assert argument_of(on_dict, message_of(body)) == {"body": "hello", "__id": "7"}


@given(st.binary())
def test_no_body_makes_reading_raise(body: bytes) -> None:
    assert php_envelope.read(body) is None
    php_envelope.read(body + b'"__id"')


def test_the_envelopes_id_is_the_messages_where_no_property_says_it() -> None:
    assert message_of(BY_PHP).message_id == "20240517093000-664726a8d1f3e"
    assert FailedMessage(failed(body=BY_PHP)).message_id == "20240517093000-664726a8d1f3e"


def test_the_property_says_the_id_before_the_envelope_does() -> None:
    assert message_of(BY_PHP, "order-7").message_id == "order-7"


@given(json_values)
def test_what_is_written_into_an_envelope_is_read_out_of_it(value: object) -> None:
    envelope = envelope_of(value, "user.create", codec="php-envelope")
    assert php_envelope.read(envelope.body) == (value, envelope.message_id)


def test_an_envelope_is_written_as_php_writes_it() -> None:
    envelope = envelope_of(User(id=121, name="管"), "user.create", codec="php-envelope")
    written = json.loads(envelope.body)
    assert list(written) == ["body", "__id"]
    assert re.fullmatch(r"20\d{12}-[0-9a-f]{32}", written["__id"])
    assert "管".encode() in envelope.body


def test_a_message_id_that_is_given_stays_beside_the_envelopes_own() -> None:
    envelope = envelope_of({"id": 121}, "user.create", message_id="order-7", codec="php-envelope")
    read = php_envelope.read(envelope.body)
    assert envelope.message_id == "order-7"
    assert read is not None
    assert read.id != "order-7"


@pytest.mark.parametrize("body", [b"\0", bytearray(b"{}")])
def test_bytes_are_put_into_no_envelope(body: object) -> None:
    with pytest.raises(ConfigurationError, match="envelope"):
        envelope_of(body, "user.create", codec="php-envelope")


@pytest.mark.parametrize("body", [float("nan"), {"n": [float("-inf")]}])
def test_what_php_could_not_read_is_refused(body: object) -> None:
    with pytest.raises(ConfigurationError, match="JSON has no"):
        envelope_of(body, "user.create", codec="php-envelope")


def test_a_text_that_speaks_of_infinity_is_no_number() -> None:
    assert (
        b"Infinity"
        in envelope_of({"brand": "Infinity", "model": "NaN"}, "car.sold", codec="php-envelope").body
    )


def test_a_codec_that_there_is_not_is_refused_when_the_publisher_is_made() -> None:
    with pytest.raises(ConfigurationError, match="Choose 'json' or 'php-envelope'"):
        Publisher("amqp://localhost/", codec="php")  # type: ignore[arg-type]
