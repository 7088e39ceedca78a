"""The handlers of one queue: one for all, one for each kind of routing key, or one for each
model."""

import functools
import operator
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_origin

import pydantic

from redrive.errors import ConfigurationError, GiveUp
from redrive.pubsub.body import HasBody
from redrive.pubsub.codec import Reader, reader_of
from redrive.pubsub.handler import Handler, name_of
from redrive.pubsub.handler_call import Call, body_annotation, call_of
from redrive.pubsub.message import Message
from redrive.topology.binding_pattern import matches


class HandlerTable:
    """Which handler a message is for.

    The handler whose key is the message's routing key, else the first that was given of those whose
    pattern matches it, else the one without a key. Several without a key must each ask for a
    pydantic model, and have a field that says which: `kind: Literal["created"]`.

    Args:
        queue: whose messages these are, for errors.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._by_key: dict[str, Handler] = {}
        self._for_the_rest: list[Handler] = []

    def __bool__(self) -> bool:
        return bool(self._by_key or self._for_the_rest)

    @property
    def functions(self) -> list[Handler]:
        """All handlers."""
        return [*self._by_key.values(), *self._for_the_rest]

    def named(self, message: Message) -> Handler:
        """The handler that an error of a message's attempt names."""
        key = message.routing_key
        exact = self._by_key.get(key)
        if exact is not None:
            return exact
        matching = (one for pattern, one in self._by_key.items() if matches(pattern, key))
        return next(matching, self.functions[-1])

    def add(self, function: Handler, key: str | None) -> None:
        """Takes a handler.

        Args:
            function: the handler.
            key: the routing key, or a pattern as of a binding, of the messages that it is for; None
                for those that no other is for.

        Raises:
            ConfigurationError: the key has a handler already, or there is another without a key and
                nothing in the messages says which is meant; or it can't be called with a message.
        """
        if key is not None and key in self._by_key:
            raise ConfigurationError(
                f"queue {self._queue!r} has two handlers for {key!r}: "
                f"{name_of(self._by_key[key])!r} and {name_of(function)!r}",
                "Leave one out, or give them keys of their own.",
            )
        if key is not None:
            call_of(function)
            self._by_key[key] = function
            return
        if not self._for_the_rest:
            call_of(function)
        else:
            _union_of(self._queue, [*self._for_the_rest, function])
        self._for_the_rest.append(function)

    def call(self) -> Call:
        """How to call the handler that a message is for.

        A message that none is for is set aside: no retry would find one.
        """
        rest = self._call_of_the_rest()
        if not self._by_key:
            return rest
        calls = {key: call_of(function) for key, function in self._by_key.items()}
        patterns = [(key, calls[key]) for key in calls if "*" in key or "#" in key]

        def call(message: Message) -> object:
            key = message.routing_key
            found = calls.get(key)
            if found is None:
                found = next((one for pattern, one in patterns if matches(pattern, key)), rest)
            return found(message)

        return call

    def _call_of_the_rest(self) -> Call:
        if len(self._for_the_rest) == 1:
            return call_of(self._for_the_rest[0])
        if self._for_the_rest:
            return _by_model(self._queue, self._for_the_rest)

        def nobody(message: Message) -> object:
            raise GiveUp(
                f"queue {self._queue!r} has no handler for the routing key {message.routing_key!r}"
            )

        return nobody


class _ReadMessage(Message):
    """A message whose body has been read."""

    __slots__ = ("model",)

    def __init__(self, message: Message, model: object) -> None:
        super().__init__(message._delivery, message._max_retries, message._decoders)
        self.model = model


def _by_model(queue: str, functions: Sequence[Handler]) -> Call:
    """Reads a body once, as one of the handlers' models, and calls the handler of that one."""
    read = _union_of(queue, functions)
    calls = {
        body_annotation(function): call_of(function, _model_of_a_read_one) for function in functions
    }

    def call(message: Message) -> object:
        model = read(message)
        return calls[type(model)](_ReadMessage(message, model))

    return call


def _model_of_a_read_one(message: HasBody) -> object:
    assert isinstance(message, _ReadMessage)
    return message.model


def _union_of(queue: str, functions: Sequence[Handler]) -> Reader:
    """Reads a body as that one of the handlers' models whose field says so.

    Raises:
        ConfigurationError: there is no such field.
    """
    names = " and ".join(repr(name_of(function)) for function in functions)
    models = [body_annotation(function) for function in functions]
    telling = [set(_literals_of(model)) if _is_model(model) else set[str]() for model in models]
    either: Any = functools.reduce(operator.or_, models)
    if len(set(models)) < len(models):
        telling = [set()]
    for field in sorted(set.intersection(*telling)):
        union = Annotated[either, pydantic.Field(discriminator=field)]
        try:
            return reader_of(union)
        except (TypeError, ConfigurationError):
            continue  # two of them have the same value there
    raise ConfigurationError(
        f"queue {queue!r} has the handlers {names}, and nothing says which a message is for",
        'Give each a key, as @subscriber.handler("user.created"), or a pydantic model that has a '
        'field of its own value, as kind: Literal["created"].',
    )


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def _literals_of(model: object) -> Sequence[str]:
    """The fields of a model that can only have the values that are named there."""
    assert isinstance(model, type)
    assert issubclass(model, pydantic.BaseModel)
    return [
        name
        for name, field in model.model_fields.items()
        if get_origin(field.annotation) is Literal
    ]
