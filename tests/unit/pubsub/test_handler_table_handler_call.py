"""What fills the parameters of a handler."""

from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import pydantic
import pytest
from fast_depends import Depends
from typing_extensions import TypedDict

from deliveries import first_delivery
from redrive.errors import ConfigurationError, InvalidMessage
from redrive.pubsub.handler import Handler
from redrive.pubsub.handler_table import call_of
from redrive.pubsub.message import Message

Got = list[object]


class Order(pydantic.BaseModel):
    """A model."""

    id: int


@dataclass
class Line:
    """A dataclass."""

    id: int


class Entry(TypedDict):
    """A dict with known keys."""

    id: int


class Item(msgspec.Struct):
    """A struct of msgspec's."""

    id: int


BODY = b'{"id":7}'
MESSAGE = Message(first_delivery(body=BODY))


def handed(function: Handler) -> object:
    """What a handler that returns its arguments was called with."""
    return call_of(function)(MESSAGE)


@pytest.mark.parametrize(
    ("annotation", "body"),
    [
        (Order, Order(id=7)),
        (Line, Line(7)),
        (Entry, {"id": 7}),
        (Item, Item(7)),
        (dict[str, int], {"id": 7}),
        (str, '{"id":7}'),
        (bytes, BODY),
        (Message, MESSAGE),
    ],
)
def test_the_body_comes_as_the_annotation_says(annotation: object, body: object) -> None:
    def handler(given: object) -> object:
        return given

    handler.__annotations__["given"] = annotation
    assert handed(handler) == body


def test_a_parameter_without_annotation_gets_the_message() -> None:
    assert handed(lambda message: message) is MESSAGE


def test_a_handler_gets_body_and_message_in_any_order() -> None:
    def body_first(order: Order, message: Message) -> object:
        return order, message

    def message_first(message: Message, order: Order) -> object:
        return order, message

    assert handed(body_first) == handed(message_first) == (Order(id=7), MESSAGE)


def test_a_parameter_that_takes_its_name_is_filled_by_name() -> None:
    def handler(order: Order, *, message: Message) -> object:
        return order, message

    assert handed(handler) == (Order(id=7), MESSAGE)


def test_a_parameter_with_a_default_is_left_alone() -> None:
    def handler(order: Order, times: int = 3) -> object:
        return order, times

    assert handed(handler) == (Order(id=7), 3)


def test_two_that_ask_for_the_body_are_refused_by_their_names() -> None:
    def handler(order: Order, line: Line) -> None:
        raise AssertionError("never called")

    with pytest.raises(ConfigurationError, match="'order' and 'line' both ask for the body"):
        call_of(handler)


def test_a_handler_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="takes 0 arguments"):
        call_of(lambda: None)


def test_a_dependency_gets_the_message_and_is_cleaned_up_after_the_handler() -> None:
    happened: Got = []

    def session(message: Message):  # type: ignore[no-untyped-def]
        happened.append(("opened", message))
        try:
            yield "session"
        finally:
            happened.append("closed")

    def handler(order: Order, session: Annotated[str, Depends(session)]) -> None:
        happened.append((order, session))

    handed(handler)
    assert happened == [("opened", MESSAGE), (Order(id=7), "session"), "closed"]


def test_a_dependency_sees_the_error_of_the_handler() -> None:
    seen: Got = []

    def transaction():  # type: ignore[no-untyped-def]
        try:
            yield
        except KeyError as error:
            seen.append(error)
            raise

    def handler(order: Order, _: Annotated[None, Depends(transaction)]) -> None:
        raise KeyError(order.id)

    with pytest.raises(KeyError):
        handed(handler)
    assert [str(error) for error in seen] == ["7"]


def test_a_dependency_with_a_parameter_that_nothing_fills_is_refused() -> None:
    def session(address: str) -> str:
        raise AssertionError(address)

    def handler(order: Order, session: Annotated[str, Depends(session)]) -> None:
        raise AssertionError("never called")

    with pytest.raises(ConfigurationError, match="'address', which nothing fills"):
        call_of(handler)


def test_an_async_dependency_of_a_plain_handler_is_refused() -> None:
    async def session() -> str:
        raise AssertionError("never called")

    def handler(order: Order, session: Annotated[str, Depends(session)]) -> None:
        raise AssertionError("never called")

    with pytest.raises(ConfigurationError, match="can't be used"):
        call_of(handler)


def test_a_struct_that_the_body_is_not_is_invalid_and_the_value_is_not_quoted() -> None:
    def handler(item: Item) -> None:
        raise AssertionError("never called")

    message = Message(replace(first_delivery(), body=b'{"id":"4111"}'))
    with pytest.raises(InvalidMessage, match=r"at `\$\.id`") as raised:
        call_of(handler)(message)
    assert "4111" not in str(raised.value)


def test_a_message_is_parsed_as_what_a_handler_could_ask_for() -> None:
    assert MESSAGE.parse(Order) == Order(id=7)
    assert MESSAGE.parse(dict) == {"id": 7}
