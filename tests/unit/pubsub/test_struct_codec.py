"""Bodies that are read as msgspec's structs."""

from typing import Literal

import msgspec
import pytest

from redrive.amqp.properties import Properties
from redrive.errors import InvalidMessage
from redrive.pubsub.message import Message
from redrive.pubsub.struct_codec import is_struct, reader_of
from redrive.topology.headers import Delivery

BY_PHP = b'{"body":{"id":121},"__id":"20240517093000-664726a8d1f3e"}'


class Item(msgspec.Struct):
    """A struct."""

    id: int


class Card(msgspec.Struct):
    """One with a secret."""

    kind: Literal["debit", "credit"]


def message_of(body: bytes) -> Message:
    return Message(Delivery("q", "", "k", Properties(), body))


def test_only_structs_are() -> None:
    assert is_struct(Item)
    assert not is_struct(dict)
    assert not is_struct(Item(1))


def test_of_phps_envelope_what_is_in_it_is_read() -> None:
    assert reader_of(Item)(message_of(BY_PHP)) == Item(121)


@pytest.mark.parametrize("body", [b'{"kind":"4111 1111"}', b"{", b"\xff", b'{"kind":4111}'])
def test_what_is_no_struct_is_invalid_and_not_quoted(body: bytes) -> None:
    with pytest.raises(InvalidMessage, match="can't be read as Card") as raised:
        reader_of(Card)(message_of(body))
    assert "4111" not in str(raised.value)
    assert raised.value.__context__ is None
