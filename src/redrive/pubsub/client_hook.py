"""Check that a client library still has the methods that redrive hooks into."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata


def check_hooks(
    client: str, tested: str, relied_on: Mapping[Callable[..., object] | None, Sequence[str]]
) -> None:
    """Raise ImportError unless the client has every method that redrive calls or overrides, with
    the parameters that redrive uses."""
    for method, arguments in relied_on.items():
        if method is None or not set(arguments) <= set(inspect.signature(method).parameters):
            name = "a method" if method is None else method.__qualname__
            raise ImportError(
                f"{client} {metadata.version(client)} does not work with this redrive: {name} "
                "has changed.\n"
                f"Install one that was tested: pip install '{client}{tested}'",
                name=client,
            )
