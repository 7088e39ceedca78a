"""Bodies read as the classes that protoc makes, in a program that has them."""

import sys
from collections.abc import Callable
from typing import Any, cast

from redrive.errors import InvalidMessage


def is_protobuf(annotation: object) -> bool:
    """Whether it is a class of Protocol Buffers. Where nobody has imported these, nothing is."""
    module = sys.modules.get("google.protobuf.message")
    if module is None or not isinstance(annotation, type):
        return False
    return issubclass(annotation, module.Message)


def reader_of(annotation: object) -> Callable[[object], object]:
    """How to make a message of a value: of the bytes of one, of its form in JSON, or of one."""
    from google.protobuf import json_format

    kind: Any = annotation

    def read(value: object) -> object:
        if isinstance(value, kind):
            return value
        try:
            if isinstance(value, bytes):
                return kind.FromString(value)
            return json_format.ParseDict(cast("dict[str, Any]", value), kind())
        except Exception as error:  # noqa: BLE001 - of values of another kind it raises anything
            problem = str(error).partition(": ")[0].rstrip(".")  # up to the value that it may quote
            invalid = InvalidMessage(f"the body can't be read as {kind.__name__}: {problem}")
        raise invalid  # with neither cause nor context: they have the body

    return read
