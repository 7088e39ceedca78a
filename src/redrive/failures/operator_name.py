"""The name of the operator, as recorded in journals and indexes."""

import contextlib
import getpass
import os
import socket
from collections.abc import Iterator
from contextvars import ContextVar

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
    own = _own_name()
    operator = _OPERATOR.get()
    return f"{operator} by {own}" if operator else own


def _own_name() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # the user of a container may have no name
        name = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"
