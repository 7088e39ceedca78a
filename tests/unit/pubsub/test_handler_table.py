"""Which of a queue's handlers a message is for."""

from dataclasses import replace
from typing import Literal

import pydantic
import pytest

from deliveries import first_delivery
from redrive.errors import ConfigurationError, GiveUp, InvalidMessage
from redrive.pubsub.handler import Handler
from redrive.pubsub.handler_table import HandlerTable
from redrive.pubsub.message import Message


class Created(pydantic.BaseModel):
    """One event."""

    kind: Literal["created"]
    name: str


class Deleted(pydantic.BaseModel):
    """Another."""

    kind: Literal["deleted"]


class Renamed(pydantic.BaseModel):
    """One that does not say what it is."""

    name: str


def table_of(**handlers: Handler) -> HandlerTable:
    """A table; a key's dots are written as double underscores."""
    table = HandlerTable("orders")
    for key, handler in handlers.items():
        table.add(handler, key.replace("__", ".").replace("any", "*").replace("all", "#"))
    return table


def message_of(key: str, body: bytes = b"{}") -> Message:
    return Message(replace(first_delivery(body=body), routing_key=key))


def naming(name: str) -> Handler:
    """A handler that returns its name."""

    def handler(message: Message) -> str:
        return name

    return handler


@pytest.mark.parametrize(
    ("key", "handler"),
    [
        ("user.created", "exact"),
        ("user.deleted", "pattern"),
        ("user", "first of two patterns"),
        ("user.a.b", "first of two patterns"),
    ],
)
def test_the_exact_key_goes_before_the_first_pattern(key: str, handler: str) -> None:
    table = table_of(
        user__any=naming("pattern"),
        user__created=naming("exact"),
        user__all=naming("first of two patterns"),
        all=naming("never"),
    )
    assert table.call()(message_of(key)) == handler


def test_the_handler_without_a_key_gets_the_rest() -> None:
    table = table_of(user__created=naming("created"))
    table.add(naming("rest"), None)
    assert table.call()(message_of("order.paid")) == "rest"


def test_a_message_that_no_handler_is_for_is_given_up() -> None:
    with pytest.raises(GiveUp, match=r"'orders' has no handler for the routing key 'order\.paid'"):
        table_of(user__created=naming("created")).call()(message_of("order.paid"))


def test_two_handlers_for_one_key_are_refused() -> None:
    table = table_of(user__created=naming("one"))
    with pytest.raises(ConfigurationError, match=r"two handlers for 'user\.created'"):
        table.add(naming("two"), "user.created")


def on_created(event: Created, message: Message) -> str:
    return f"{event.name} {message.routing_key}"


def on_deleted(event: Deleted) -> str:
    return event.kind


def test_models_that_say_what_they_are_choose_the_handler() -> None:
    table = HandlerTable("users")
    table.add(on_created, None)
    table.add(on_deleted, None)
    call = table.call()
    assert call(message_of("u", b'{"kind":"created","name":"Ada"}')) == "Ada u"
    assert call(message_of("u", b'{"kind":"deleted"}')) == "deleted"
    with pytest.raises(InvalidMessage, match="not one of the expected ones"):
        call(message_of("u", b'{"kind":"sold"}'))


def test_a_model_that_does_not_say_what_it_is_is_refused_beside_another() -> None:
    def on_renamed(event: Renamed) -> None:
        raise AssertionError("never called")

    table = HandlerTable("users")
    table.add(on_created, None)
    with pytest.raises(ConfigurationError, match="nothing says which a message is for"):
        table.add(on_renamed, None)


def test_the_same_model_twice_is_refused() -> None:
    table = HandlerTable("users")
    table.add(on_created, None)
    with pytest.raises(ConfigurationError, match="nothing says which a message is for"):
        table.add(on_created, None)


def test_an_error_names_the_handler_that_the_message_went_to() -> None:
    table = table_of(user__created=on_created, user__any=on_deleted)
    assert table.named(message_of("user.created")) is on_created
    assert table.named(message_of("user.gone")) is on_deleted
