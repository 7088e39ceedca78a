"""How much a test does of what it could do for hours: little each time, more in a nightly run."""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

IS_NIGHTLY = os.environ.get("REDRIVE_TEST_NIGHTLY") == "1"


def effort(usual: T, *, nightly: T) -> T:
    """How many messages, kills or examples, depending on the run."""
    return nightly if IS_NIGHTLY else usual


def some_of(things: Sequence[T]) -> Sequence[T]:
    """All of them in a nightly run, else the first, the one in the middle and the last."""
    if IS_NIGHTLY or len(things) <= 3:
        return things
    return [things[0], things[len(things) // 2], things[-1]]


def nightly(*values: object, why: str, id: str | None = None) -> Any:
    """A set of parameters that only a nightly run tries, since another one of their kind is tried
    each time."""
    return pytest.param(*values, marks=pytest.mark.nightly(why), id=id)
