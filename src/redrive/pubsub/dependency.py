"""Handlers with dependencies: what a function gives, made for one attempt, and cleaned up after it.

fast-depends calls them. Its casting by pydantic of what a dependency has given
is left out: a body is read by our own rules, and a session is no message.

Source: fast-depends 3.0.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigurationError
from redrive.pubsub.codec import Reader
from redrive.pubsub.handler import Handler, is_async, name_of
from redrive.pubsub.message import Message

if TYPE_CHECKING:
    from fast_depends.core import CallModel

_Arguments = Callable[[Message], dict[str, Any]]


def call_with_dependencies(
    function: Handler, body_name: str | None, body: Reader | None, messages: list[str]
) -> Callable[[Message], object]:
    """How to call a handler that has dependencies.

    A dependency may ask for the message by `Message`, for the body by the name and annotation that
    the handler has, and for other dependencies. One that is a generator function is resumed once
    the handler has returned or raised. Of several that ask for the same dependency in one attempt,
    all get the same.

    Args:
        function: the handler.
        body_name: its parameter that gets the body; None where it has none.
        body: reads the body.
        messages: its parameters that get the message.

    Raises:
        ConfigurationError: a dependency is async where the handler is not, or has a parameter that
            nothing fills.
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
    """What fills the parameters that are no dependencies, of the handler and of its dependencies.

    Raises:
        ConfigurationError: nothing fills one.
    """
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
                f"call it {body_name!r} where it is to get the body."
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
