"""The name of the operator, as recorded in journals and indexes."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from redrive.pubsub import control_request

_OPERATOR: ContextVar[str] = ContextVar("redrive-operator", default="")


@contextlib.contextmanager
def acting_for(operator: str) -> Iterator[None]:
    """Attribute what this thread does in the block to an operator whom this process serves.

    An empty name stands for no operator.
    """
    token = _OPERATOR.set(operator)
    try:
        yield
    finally:
        _OPERATOR.reset(token)


def whoami() -> str:
    """Return the operator whom this process serves, if any, and the process's own user and host."""
    own = control_request.whoami()
    operator = _OPERATOR.get()
    return f"{operator} by {own}" if operator else own
