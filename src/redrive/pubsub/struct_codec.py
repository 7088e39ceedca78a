"""Bodies read as msgspec's structs, in a program that has them."""

import sys
from collections.abc import Callable
from typing import Any

from redrive.errors import InvalidMessage
from redrive.pubsub import php_envelope


def is_struct(annotation: object) -> bool:
    """Whether it is a msgspec.Struct. Where nobody has imported msgspec, nothing is."""
    msgspec = sys.modules.get("msgspec")
    if msgspec is None or not isinstance(annotation, type):
        return False
    return issubclass(annotation, msgspec.Struct)


def reader_of(annotation: object) -> Callable[[bytes], object]:
    """How to read a body as a struct; of PHP's envelope, what is in it."""
    msgspec: Any = sys.modules["msgspec"]
    decoder = msgspec.json.Decoder(annotation)

    def read(body: bytes) -> object:
        envelope = php_envelope.read(body)
        try:
            if envelope is not None:
                return msgspec.convert(envelope.body, annotation)
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem, _, place = str(error).partition(" - at ")
            problem = problem.partition(" '")[0]  # up to the value, which some of them quote
            name = getattr(annotation, "__name__", annotation)
            invalid = InvalidMessage(
                f"the body can't be read as {name}: {problem}{place and f' at {place}'}"
            )
        raise invalid  # with neither cause nor context: they may have the body

    return read
