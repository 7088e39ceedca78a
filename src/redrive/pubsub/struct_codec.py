"""Bodies read as msgspec's structs, in a program that has them."""

import sys
from collections.abc import Callable
from typing import Any

from redrive.errors import InvalidMessage
from redrive.pubsub import php_envelope
from redrive.pubsub.body import HasBody, unreadable


def is_struct(annotation: object) -> bool:
    """Whether it is a msgspec.Struct. Where nobody has imported msgspec, nothing is."""
    msgspec = sys.modules.get("msgspec")
    if msgspec is None or not isinstance(annotation, type):
        return False
    return issubclass(annotation, msgspec.Struct)


def reader_of(annotation: object) -> Callable[[HasBody], object]:
    """How to read a body as a struct; of PHP's envelope, what is in it."""
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
        raise invalid  # with neither cause nor context: they may have the body

    return read


def converter_of(annotation: object) -> Callable[[object], object]:
    """How to make a struct of a value."""
    msgspec: Any = sys.modules["msgspec"]

    def convert(value: object) -> object:
        try:
            return msgspec.convert(value, annotation)
        except msgspec.ValidationError as error:
            invalid = _misfit(annotation, error)
        raise invalid  # with neither cause nor context: they may have the body

    return convert


def _misfit(annotation: object, error: Exception) -> InvalidMessage:
    problem, _, place = str(error).partition(" - at ")
    problem = problem.partition(" '")[0]  # up to the value, which some of them quote
    return InvalidMessage(
        f"the body can't be read as {_name_of(annotation)}: {problem}{place and f' at {place}'}"
    )


def _name_of(annotation: object) -> object:
    return getattr(annotation, "__name__", annotation)
