"""Exchanges of the in-memory model, and which bindings a message follows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redrive.amqp.field_table import Table

KINDS = ("direct", "fanout", "topic", "headers")


class BindingModel(NamedTuple):
    """A binding of an exchange to a queue or to another exchange."""

    destination: str
    to_queue: bool
    routing_key: str
    arguments: Table


class ExchangeModel:
    """An exchange and its bindings."""

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = Table() if arguments is None else arguments
        self._bindings: dict[BindingModel, None] = {}

    @property
    def bindings(self) -> list[BindingModel]:
        """The bindings in the order in which they were made."""
        return list(self._bindings)

    @property
    def alternate(self) -> str | None:
        """The exchange for messages that match no binding, or None."""
        found = self.arguments.get("alternate-exchange")
        return found if isinstance(found, str) else None

    def bind(self, binding: BindingModel) -> None:
        """Add a binding. Adding it again changes nothing."""
        self._bindings[binding] = None

    def unbind(self, binding: BindingModel) -> bool:
        """Remove a binding, and return whether the exchange has to be deleted with it."""
        was_there = self._bindings.pop(binding, self) is not self
        return was_there and self.auto_delete and not self._bindings

    def forget(self, destination: str, *, is_queue: bool) -> bool:
        """Remove the bindings to a deleted queue or exchange, and return whether this exchange has
        to be deleted with them."""
        gone = [
            binding
            for binding in self._bindings
            if binding.to_queue == is_queue and binding.destination == destination
        ]
        for binding in gone:
            del self._bindings[binding]
        return bool(gone) and self.auto_delete and not self._bindings

    def matches(self, routing_keys: Sequence[str], headers: Table) -> list[BindingModel]:
        """Return the bindings that a message with these keys and headers follows."""
        match self.kind:
            case "fanout":
                return self.bindings
            case "direct":
                return [one for one in self._bindings if one.routing_key in routing_keys]
            case "topic":
                keys = [key.split(".") for key in routing_keys]
                return [
                    one
                    for one in self._bindings
                    if any(_is_topic(one.routing_key.split("."), words) for words in keys)
                ]
            case _:
                return [one for one in self._bindings if _has_headers(one.arguments, headers)]


def _is_topic(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether the words of a key match a pattern: `*` matches one word, `#` any number."""
    places = {0}
    for one in pattern:
        if one == "#":
            places = set(range(min(places), len(words) + 1)) if places else set()
        else:
            places = {
                place + 1 for place in places if place < len(words) and one in ("*", words[place])
            }
    return len(words) in places


def _has_headers(arguments: Table, headers: Table) -> bool:
    """Return whether a message's headers match a binding's arguments.

    Source: https://www.rabbitmq.com/docs/exchanges#headers (`x-match`, and that names with `x-`
    count only with `-with-x`).
    """
    mode = arguments.get("x-match", "all")
    with_x = isinstance(mode, str) and mode.endswith("-with-x")
    wanted: Mapping[str, object] = {
        name: arguments[name]
        for name in arguments
        if name != "x-match" and (with_x or not name.startswith("x-"))
    }
    found = (
        name in headers and (value is None or headers[name] == value)
        for name, value in wanted.items()
    )
    return any(found) if isinstance(mode, str) and mode.startswith("any") else all(found)
