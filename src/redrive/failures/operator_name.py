"""Who does something, as a journal and an index have it."""

import contextlib
import getpass
import os
import socket
from collections.abc import Iterator
from contextvars import ContextVar

_OPERATOR: ContextVar[str] = ContextVar("redrive-operator", default="")


@contextlib.contextmanager
def acting_for(operator: str) -> Iterator[None]:
    """Has what this thread does in the block be done by somebody whom this process serves; an empty
    name is nobody's."""
    token = _OPERATOR.set(operator)
    try:
        yield
    finally:
        _OPERATOR.reset(token)


def whoami() -> str:
    """Whom this process serves, if that is somebody, then its user and its host."""
    own = _own_name()
    operator = _OPERATOR.get()
    return f"{operator} by {own}" if operator else own


def _own_name() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container may have a user that has no name
        name = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"
