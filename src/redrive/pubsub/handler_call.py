"""How a handler is called with a message: each of its parameters is filled by its annotation."""

import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, get_args, get_origin

from redrive.errors import ConfigurationError
from redrive.pubsub.body import HasBody
from redrive.pubsub.codec import Reader, reader_of
from redrive.pubsub.handler import Handler, name_of
from redrive.pubsub.message import Message

Call = Callable[[Message], object]
"""Calls a handler with a message; what it returns is what the handler did, or is to be awaited."""

_NEITHER_MESSAGE_NOR_BODY = (
    "Annotate one parameter with what the body is (a pydantic model, dict, bytes, str, …), one "
    "with Message where you want it, and the others as Annotated[…, Depends(…)]."
)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a handler, and what fills it."""

    name: str
    annotation: object
    by_name: bool
    needed: bool

    @property
    def is_message(self) -> bool:
        """Whether the message itself fills it."""
        return self.annotation is Message

    @property
    def is_dependency(self) -> bool:
        """Whether a function gives what fills it."""
        return get_origin(self.annotation) is Annotated and any(
            map(_is_depends, get_args(self.annotation)[1:])
        )


def body_annotation(function: Handler) -> object:
    """What a handler asks to have the body read as; None where it asks for no body.

    Raises:
        ConfigurationError: it can't be looked at, or can't be filled.
    """
    body = _body_of(function, _parameters_of(function))
    return None if body is None else body.annotation


def call_of(function: Handler, body: Reader | None = None) -> Call:
    """How to call a handler with a message.

    A parameter that is annotated with `Message` gets the message, one with `Annotated[…,
    Depends(…)]` what that function gives, and the one that is left the body: as its annotation
    says, or the message where it has none.

    Args:
        function: the handler.
        body: reads the body, in place of what the annotation says.

    Raises:
        ConfigurationError: it takes nothing, or has a parameter that nothing fills; its annotation
            is none that a body can be read as; a dependency can't be called.
    """
    parameters = _parameters_of(function)
    body_parameter = _body_of(function, parameters)
    if body is None and body_parameter is not None:
        body = _reader(function, body_parameter)
    if any(parameter.is_dependency for parameter in parameters):
        from redrive.pubsub.dependency import call_with_dependencies

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
    """The parameters that are to be filled: not those that have a default and nothing to fill them,
    but for the first."""
    name = name_of(function)
    try:
        signature = inspect.signature(function).parameters.values()
        annotated = function if inspect.isroutine(function) else type(function).__call__
        hints = typing.get_type_hints(annotated, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigurationError(
            f"the handler {name} can't be looked at: {error}",
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
        if _is_depends(parameter.default):  # the older way to write it
            annotation = Annotated[annotation, parameter.default]
        by_name = parameter.kind is parameter.KEYWORD_ONLY
        one = _Parameter(
            parameter.name, annotation, by_name, needed=parameter.default is parameter.empty
        )
        if one.needed or one.is_message or one.is_dependency or (first and not by_name):
            yield one
        first = first and by_name


def _body_of(function: Handler, parameters: list[_Parameter]) -> _Parameter | None:
    """The parameter that gets the body.

    Raises:
        ConfigurationError: there are two.
    """
    bodies = [p for p in parameters if not (p.is_message or p.is_dependency)]
    if len(bodies) > 1:
        names = " and ".join(repr(body.name) for body in bodies)
        raise ConfigurationError(
            f"the handler {name_of(function)} takes {len(parameters)} arguments, of which {names} "
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
    """Whether it is what fast-depends' `Depends` gives. Of a program that has not imported
    fast-depends, nothing is."""
    kind = type(value)
    return kind.__module__.partition(".")[0] == "fast_depends" and kind.__name__ == "Dependant"
