"""Which key a message is ordered by: a path into its body, a header, its routing key, or what a
function returns."""

import hashlib
import re
from collections.abc import Callable, Sequence

from redrive.errors import ConfigurationError
from redrive.pubsub.handler import check_result, check_runs_when_called, is_async
from redrive.pubsub.message import Message

OrderBy = str | Callable[[Message], str | int | None]
"""What messages are ordered by: `$.customer.id`, `header:customer`, `routing_key`, or a function
of a `Message`."""
ReadKey = Callable[[Message], str | None]
"""Returns the key of a message; None if it has none."""

_HEADER = "header:"
_ROUTING_KEY = "routing_key"
_STEP = re.compile(
    r"\.(?P<plain>[A-Za-z_][\w-]*)|\[(?P<at>\d{1,9})\]|\['(?P<quoted>[^']+)'\]", re.ASCII
)
_LONGEST = 200
"""Bytes of a key; a longer one is replaced by its digest, so that keys that others write take
little memory."""
_HOW = "Give a path such as $.customer.id, header:NAME, routing_key, or a function of a Message."


def reader_of(order_by: OrderBy) -> ReadKey:
    """Return a function that reads the key of a message. It raises nothing: a message whose key
    can't be read has none.

    Raises:
        ConfigurationError: `order_by` is none of the four.
    """
    find = _finder_of(order_by)

    def read(message: Message) -> str | None:
        try:
            return _as_key(find(message))
        except Exception:  # noqa: BLE001 - the user's function, or a body that others wrote
            return None

    return read


def _finder_of(order_by: OrderBy) -> Callable[[Message], object]:
    if callable(order_by):
        return _calling(order_by)
    if not isinstance(order_by, str):
        raise ConfigurationError(f"order_by is {order_by!r:.80}", _HOW)
    if order_by == _ROUTING_KEY:
        return lambda message: message.routing_key
    if order_by.startswith(_HEADER) and len(order_by) > len(_HEADER):
        name = order_by.removeprefix(_HEADER)
        return lambda message: message.properties.headers.scalar(name)
    if order_by.startswith("$"):
        steps = _steps_of(order_by)
        return lambda message: at(message.json(), steps)
    raise ConfigurationError(f"order_by is {order_by!r:.80}", _HOW)


def _calling(function: Callable[[Message], object]) -> Callable[[Message], object]:
    check_runs_when_called("function of order_by", function)
    if is_async(function):
        raise ConfigurationError(
            f"order_by is {function!r}, which is async", "Make it a plain function of a Message."
        )

    def call(message: Message) -> object:
        key = function(message)
        check_result("function of order_by", function, key)
        return key

    return call


def _steps_of(path: str) -> Sequence[str | int]:
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise ConfigurationError(f"order_by is {path!r:.80}, which is not a path", _HOW)
        steps.append(int(step["at"]) if step["at"] else step["plain"] or step["quoted"])
        place = step.end()
    if not steps:
        raise ConfigurationError("order_by is '$', the whole body", _HOW)
    return steps


def at(value: object, steps: Sequence[str | int]) -> object:
    """Return the value at a path into a JSON value; None if there is none."""
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _as_key(value: object) -> str | None:
    """Return a text or a whole number as a key; None for anything else, and for an empty text.

    A number and a text of the same digits are the same key.
    """
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    encoded = str(value).encode("utf-8", "surrogatepass")
    if len(encoded) <= _LONGEST:
        return encoded.decode("utf-8", "replace")  # half a character can't travel in a header
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"
