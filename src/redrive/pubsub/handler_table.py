"""The handlers of one queue: one for all messages, one per routing key or pattern, or one per
model."""

import functools
import inspect
import operator
import typing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import pydantic

from redrive.errors import ConfigurationError, GiveUp
from redrive.pubsub.body import HasBody
from redrive.pubsub.codec import Reader, reader_of
from redrive.pubsub.handler import Handler, is_async, name_of
from redrive.pubsub.message import Message
from redrive.topology.binding_pattern import matches

if TYPE_CHECKING:
    from fast_depends.core import CallModel


_Arguments = Callable[[Message], dict[str, Any]]


def call_with_dependencies(
    function: Handler, body_name: str | None, body: Reader | None, messages: list[str]
) -> Callable[[Message], object]:
    """Return a function that calls a handler with its dependencies.

    A dependency may ask for the message by `Message`, for the body by the same name and annotation
    as the handler, and for other dependencies. A generator function is resumed once the handler has
    returned or raised. A dependency that is used several times in one attempt is called once.
    """
    from fast_depends import dependency_provider
    from fast_depends.core import build_call_model

    try:
        model = build_call_model(
            function, dependency_provider=dependency_provider, serialize_result=False
        )
    except AssertionError as error:
        raise ConfigurationError(
            f"a dependency of the handler {name_of(function)} can't be used: {error}",
            "Make it a plain function, or the handler `async def` with AsyncSubscriber.",
        ) from error
    arguments = _arguments_of(function, model, body_name, body, messages)
    if is_async(function):
        return lambda message: _awaited(model, arguments, message)

    def call(message: Message) -> object:
        filled = arguments(message)
        with ExitStack() as stack:
            result: object = model.solve(stack=stack, cache_dependencies={}, **filled)
        return result

    return call


def _awaited(model: "CallModel", arguments: _Arguments, message: Message) -> Awaitable[object]:
    async def call() -> object:
        filled = arguments(message)
        async with AsyncExitStack() as stack:
            result: object = await model.asolve(stack=stack, cache_dependencies={}, **filled)
        return result

    return call()


def _arguments_of(
    function: Handler,
    model: "CallModel",
    body_name: str | None,
    body: Reader | None,
    messages: list[str],
) -> _Arguments:
    """Return the function that fills the parameters, of the handler and its dependencies, that are
    not dependencies themselves."""
    of_message = set(messages)
    for parameter in model.flat_params:
        name = parameter.field_name
        if parameter.field_type is Message:
            of_message.add(name)
        elif name != body_name and parameter.default_value is Ellipsis:
            raise ConfigurationError(
                f"a dependency of the handler {name_of(function)} has the parameter {name!r}, "
                "which nothing fills",
                "Annotate it with Message or as Annotated[…, Depends(…)], give it a default, or "
                f"call it {body_name!r} if it should get the body."
                if body_name
                else "Annotate it with Message or as Annotated[…, Depends(…)], or give it a "
                "default.",
            )

    def arguments(message: Message) -> dict[str, Any]:
        filled: dict[str, Any] = dict.fromkeys(of_message, message)
        if body_name is not None and body is not None:
            filled[body_name] = body(message)
        return filled

    return arguments


Call = Callable[[Message], object]
"""Calls a handler with a message; returns the handler's result, which may be awaitable."""

_NEITHER_MESSAGE_NOR_BODY = (
    "Annotate one parameter with what the body is (a pydantic model, dict, bytes, str, …), one "
    "with Message where you want it, and the others as Annotated[…, Depends(…)]."
)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a handler that is to be filled."""

    name: str
    annotation: object
    by_name: bool
    needed: bool

    @property
    def is_message(self) -> bool:
        """Whether it gets the message itself."""
        return self.annotation is Message

    @property
    def is_dependency(self) -> bool:
        """Whether it gets the result of a dependency."""
        return get_origin(self.annotation) is Annotated and any(
            map(_is_depends, get_args(self.annotation)[1:])
        )


def body_annotation(function: Handler) -> object:
    """Return the type that a handler wants the body as; None if it does not ask for the body."""
    body = _body_of(function, _parameters_of(function))
    return None if body is None else body.annotation


def call_of(function: Handler, body: Reader | None = None) -> Call:
    """Return a function that calls a handler with a message.

    A parameter annotated with `Message` gets the message, one with `Annotated[…, Depends(…)]` the
    result of that function, and the remaining one the body: as its annotation says, or the message
    if it has none.
    """
    parameters = _parameters_of(function)
    body_parameter = _body_of(function, parameters)
    if body is None and body_parameter is not None:
        body = _reader(function, body_parameter)
    if any(parameter.is_dependency for parameter in parameters):
        return call_with_dependencies(
            function,
            None if body_parameter is None else body_parameter.name,
            body,
            [parameter.name for parameter in parameters if parameter.is_message],
        )
    filled = [p for p in parameters if p.is_message or p is body_parameter]
    readers = [_the_message if p.is_message else typing.cast(Reader, body) for p in filled]
    if len(filled) == 1 and not filled[0].by_name:
        (read,) = readers
        if read is _the_message:
            return typing.cast(Call, function)
        return lambda message: function(read(message))
    if len(filled) == 2 and not any(p.by_name for p in filled):  # the body and the message
        first, second = readers
        return lambda message: function(first(message), second(message))
    in_place = [read for p, read in zip(filled, readers, strict=True) if not p.by_name]
    by_name = [(p.name, read) for p, read in zip(filled, readers, strict=True) if p.by_name]
    return lambda message: function(
        *[read(message) for read in in_place], **{name: read(message) for name, read in by_name}
    )


def _parameters_of(function: Handler) -> list[_Parameter]:
    """Return the parameters to fill: those without a default, those for the message or a
    dependency, and the first."""
    name = name_of(function)
    try:
        signature = inspect.signature(function).parameters.values()
        annotated = function if inspect.isroutine(function) else type(function).__call__
        hints = typing.get_type_hints(annotated, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigurationError(
            f"the handler {name} can't be inspected: {error}",
            "Give a function that takes the message's body.",
        ) from error
    found = list(_filled(signature, hints))
    if not found:
        raise ConfigurationError(f"the handler {name} takes 0 arguments", _NEITHER_MESSAGE_NOR_BODY)
    return found


def _filled(
    signature: typing.Iterable[inspect.Parameter], hints: dict[str, object]
) -> Iterator[_Parameter]:
    first = True
    for parameter in signature:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if first and parameter.kind is parameter.VAR_POSITIONAL:
                yield _Parameter(parameter.name, Message, by_name=False, needed=False)
            continue
        annotation = hints.get(parameter.name, parameter.empty)
        if _is_depends(parameter.default):  # the older syntax
            annotation = Annotated[annotation, parameter.default]
        by_name = parameter.kind is parameter.KEYWORD_ONLY
        one = _Parameter(
            parameter.name, annotation, by_name, needed=parameter.default is parameter.empty
        )
        if one.needed or one.is_message or one.is_dependency or (first and not by_name):
            yield one
        first = first and by_name


def _body_of(function: Handler, parameters: list[_Parameter]) -> _Parameter | None:
    """Return the parameter that gets the body."""
    bodies = [p for p in parameters if not (p.is_message or p.is_dependency)]
    if len(bodies) > 1:
        names = " and ".join(repr(body.name) for body in bodies)
        raise ConfigurationError(
            f"the handler {name_of(function)} takes {len(parameters)} arguments, and {names} "
            "both ask for the body",
            _NEITHER_MESSAGE_NOR_BODY,
        )
    return bodies[0] if bodies else None


def _reader(function: Handler, parameter: _Parameter) -> Reader:
    if parameter.annotation is inspect.Parameter.empty:
        return _the_message
    try:
        return reader_of(parameter.annotation)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the handler {name_of(function)} asks for {parameter.annotation!r}, which a body "
            f"can't be read as: {str(error).partition(chr(10))[0]}",
            "Annotate its argument with a pydantic model, dict, bytes, str or Message.",
        ) from error


def _the_message(message: HasBody) -> object:
    return message


def _is_depends(value: object) -> bool:
    """Check for the result of fast-depends' `Depends`, without importing fast-depends."""
    kind = type(value)
    return kind.__module__.partition(".")[0] == "fast_depends" and kind.__name__ == "Dependant"


class HandlerTable:
    """Finds the handler for a message.

    The handler whose key equals the message's routing key comes first, then the first one
    registered whose pattern matches, then the one without a key. If several have no key, each must
    ask for a pydantic model with a field that tells them apart: `kind: Literal["created"]`.
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
        """Return the handler to name in an error about a message."""
        key = message.routing_key
        exact = self._by_key.get(key)
        if exact is not None:
            return exact
        matching = (one for pattern, one in self._by_key.items() if matches(pattern, key))
        return next(matching, self.functions[-1])

    def add(self, function: Handler, key: str | None) -> None:
        """Add a handler."""
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
        """Return a function that calls the handler for a message.

        A message without a handler is set aside, since retrying would not find one.
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
    """Return a function that reads a body once, as one of the handlers' models, and calls the
    handler of that model."""
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
    """Return a reader that reads a body as whichever handler's model its discriminator field
    names."""
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
            continue  # two models have the same value there
    raise ConfigurationError(
        f"queue {queue!r} has the handlers {names}, and nothing says which a message is for",
        'Give each a key, as @subscriber.handler("user.created"), or a pydantic model with a '
        'field that tells it apart, such as kind: Literal["created"].',
    )


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def _literals_of(model: object) -> Sequence[str]:
    """Return the fields of a model that allow only literal values."""
    assert isinstance(model, type)
    assert issubclass(model, pydantic.BaseModel)
    return [
        name
        for name, field in model.model_fields.items()
        if get_origin(field.annotation) is Literal
    ]
