"""Reads bodies as msgspec structs, in programs that use msgspec."""

import sys
from collections.abc import Callable
from typing import Any

from redrive.errors import InvalidMessage
from redrive.pubsub import php_envelope
from redrive.pubsub.body import HasBody, unreadable


def is_struct(annotation: object) -> bool:
    """Check for a msgspec.Struct class, without importing msgspec."""
    msgspec = sys.modules.get("msgspec")
    if msgspec is None or not isinstance(annotation, type):
        return False
    return issubclass(annotation, msgspec.Struct)


def reader_of(annotation: object) -> Callable[[HasBody], object]:
    """Return a function that reads a body as a struct; for PHP's envelope, the value inside it."""
    msgspec: Any = sys.modules["msgspec"]
    decoder = msgspec.json.Decoder(annotation)
    convert = converter_of(annotation)

    def read(message: HasBody) -> object:
        body = message._utf8()
        envelope = php_envelope.read(body)
        if envelope is not None:
            return convert(envelope.body)
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            invalid = _misfit(annotation, error)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            invalid = unreadable(
                f"the body can't be read as {_name_of(annotation)}: {error}",
                message.body,
                message.properties,
            )
        raise invalid  # raised without cause or context, which may contain the body

    return read


def converter_of(annotation: object) -> Callable[[object], object]:
    """Return a function that converts a value to a struct."""
    msgspec: Any = sys.modules["msgspec"]

    def convert(value: object) -> object:
        try:
            return msgspec.convert(value, annotation)
        except msgspec.ValidationError as error:
            invalid = _misfit(annotation, error)
        raise invalid  # raised without cause or context, which may contain the body

    return convert


def _misfit(annotation: object, error: Exception) -> InvalidMessage:
    problem, _, place = str(error).partition(" - at ")
    problem = problem.partition(" '")[0]  # cut before the value, which some messages quote
    return InvalidMessage(
        f"the body can't be read as {_name_of(annotation)}: {problem}{place and f' at {place}'}"
    )


def _name_of(annotation: object) -> object:
    return getattr(annotation, "__name__", annotation)
