"""Asks a subscription's text filter about a message."""

from collections.abc import Callable

from redrive.errors import InvalidMessage
from redrive.pubsub.message import Message
from redrive.pubsub.order_key import at
from redrive.topology.text_filter import Condition, TextFilter, text_of_json


def predicate_of(text_filter: TextFilter) -> Callable[[Message], bool]:
    """Return a function that returns whether a message matches."""
    needs_body = any(condition.place == "body" for condition in text_filter.conditions)

    def matches(message: Message) -> bool:
        body = _body_of(message) if needs_body else None

        def read(condition: Condition) -> str | None:
            match condition.place:
                case "body":
                    return text_of_json(at(body, condition.path))
                case "header":
                    return _text_of(message.properties.headers.scalar(condition.path[0]))
                case "column":
                    return _column(message, condition.path[0])

        return text_filter.matches(read)

    return matches


def _body_of(message: Message) -> object:
    try:
        return message.json()
    except InvalidMessage:
        return None  # it is null in a filter, and fails where it is handled


def _column(message: Message, name: str) -> str | None:
    if name == "routing_key":
        return message.routing_key
    if name == "message_id":
        return message.message_id
    return _text_of(getattr(message.properties, name))


def _text_of(value: object) -> str | None:
    if isinstance(value, bool | int | float | str):
        return text_of_json(value)
    return None if value is None or isinstance(value, bytes) else str(value)
