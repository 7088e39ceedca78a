"""Reads bodies as classes that protoc generated, in programs that use them."""

import sys
from collections.abc import Callable
from typing import Any, cast

from redrive.errors import InvalidMessage


def is_protobuf(annotation: object) -> bool:
    """Check for a Protocol Buffers class, without importing the library."""
    module = sys.modules.get("google.protobuf.message")
    if module is None or not isinstance(annotation, type):
        return False
    return issubclass(annotation, module.Message)


def reader_of(annotation: object) -> Callable[[object], object]:
    """Return a function that makes a message of this class from its bytes, its JSON form, or a
    message."""
    from google.protobuf import json_format

    kind: Any = annotation

    def read(value: object) -> object:
        if isinstance(value, kind):
            return value
        try:
            if isinstance(value, bytes):
                return kind.FromString(value)
            return json_format.ParseDict(cast("dict[str, Any]", value), kind())
        except Exception as error:  # noqa: BLE001 - it raises anything for values of other types
            problem = str(error).partition(": ")[0].rstrip(".")  # cut before any quoted value
            invalid = InvalidMessage(f"the body can't be read as {kind.__name__}: {problem}")
        raise invalid  # raised without cause or context, which contain the body

    return read
