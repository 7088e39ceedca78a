"""Bodies: what a publisher may send, and what a handler may ask for."""

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, get_args

import pydantic
from pydantic_core import PydanticSerializationError, to_json

from redrive import strict_json
from redrive.errors import ConfigurationError, InvalidMessage
from redrive.pubsub import php_envelope, struct_codec

Body = (
    bytes
    | bytearray
    | memoryview
    | str
    | Mapping[str, object]
    | Sequence[object]
    | pydantic.BaseModel
    | int
    | float
    | bool
    | None
)
"""What can be published: bytes and texts as they are, anything else as JSON."""

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"

Codec = Literal["json", "php-envelope"]
"""How a publisher writes what is no bytes and no text: as JSON, or as JSON in the envelope of PHP
services. Readers take both."""


class HasBody(Protocol):
    """A message, as far as its body is read."""

    @property
    def body(self) -> bytes:
        """The body, as received."""


Reader = Callable[[HasBody], object]
"""Reads a body."""


def encode_body(body: object) -> tuple[bytes, str]:
    """A body as bytes, and its content type.

    Raises:
        ConfigurationError: it can't be made JSON of.
    """
    if isinstance(body, bytes):
        return body, BINARY
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass"), TEXT
    if isinstance(body, bytearray | memoryview):
        return bytes(body), BINARY
    return _json_of(body), JSON


def _json_of(body: object) -> bytes:
    try:
        content = to_json(body, inf_nan_mode="constants")
        strict_json.check_numbers(content)
        if b"null" in content:
            _check_numbers_in(body)
        return content
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the body, a {type(body).__name__}, can't be made JSON of: {error}",
            "Publish bytes, a str, a pydantic model, or a dict or list of plain values.",
        ) from error


def _check_numbers_in(value: object) -> None:
    """Raise ValueError where a model has a NaN or an infinity, which pydantic has written as null
    without being asked to."""
    match value:
        case float():
            if not math.isfinite(value):
                raise ValueError(strict_json.no_such(value))
        case pydantic.BaseModel():
            if "ser_json_inf_nan" not in value.model_config:
                for one in (*vars(value).values(), *(value.model_extra or {}).values()):
                    _check_numbers_in(one)
        case Mapping():
            for one in value.values():
                _check_numbers_in(one)
        case list() | tuple() | set() | frozenset():
            for one in value:
                _check_numbers_in(one)
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                _check_numbers_in(getattr(value, field.name, None))


def encode_enveloped(body: object, id_: str) -> tuple[bytes, str]:
    """A body in PHP's envelope, and its content type.

    Raises:
        ConfigurationError: it is bytes, or can't be made JSON of.
    """
    if isinstance(body, bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"the body is {type(body).__name__}, and the codec 'php-envelope' puts JSON into an "
            "envelope",
            "Publish a dict, a pydantic model or another plain value; or use a publisher with the "
            "codec 'json'.",
        )
    # encode_body would send a text as it is; in here it is a value like any other.
    return php_envelope.wrap(_json_of(body), id_), JSON


def check_codec(codec: str) -> None:
    """Raises ConfigurationError unless `codec` is one."""
    if codec not in get_args(Codec):
        raise ConfigurationError(
            f"codec is {codec!r}", f"Choose {' or '.join(map(repr, get_args(Codec)))}."
        )


def reader_of(annotation: object) -> Reader:
    """How to read a body as what a handler asks for.

    `bytes` is the body, `str` the body as UTF-8; a msgspec.Struct and anything else that pydantic
    can validate (a model, `dict`, a dataclass, a TypedDict, …) is read from JSON. Where the body is
    PHP's envelope, it is read from what is in it; a type that has an `__id` of its own is given the
    envelope itself.

    Raises:
        ConfigurationError: it can't be validated.
    """
    if annotation is bytes:
        return lambda message: message.body
    if annotation is str:
        return _text_of
    if struct_codec.is_struct(annotation):
        read_struct = struct_codec.reader_of(annotation)
        return lambda message: read_struct(message.body)
    try:
        return _validating(annotation)
    except pydantic.errors.PydanticUserError as error:
        why = error.message.partition("\n")[0]
        raise ConfigurationError(why, "Use a pydantic model, dict, bytes or str.") from error


def _validating(annotation: object) -> Reader:
    adapter = pydantic.TypeAdapter[object](annotation)  # type: ignore[arg-type]
    if _has_an_id_of_its_own(adapter):
        return lambda message: _validated(adapter, message.body)
    # Validated as a part of the envelope's bytes: JSON that was read and written again is not the
    # same JSON.
    enveloped = pydantic.TypeAdapter[object](
        pydantic.create_model("PHP's envelope", body=(annotation, ...))  # type: ignore[arg-type]
    )

    def read(message: HasBody) -> object:
        if php_envelope.read(message.body) is None:
            return _validated(adapter, message.body)
        return getattr(_validated(enveloped, message.body), "body")  # noqa: B009 - the model is made above

    return read


def _has_an_id_of_its_own(adapter: pydantic.TypeAdapter[object]) -> bool:
    """Whether a type names PHP's `__id`: it was written to read the envelope."""
    try:
        return "__id" in adapter.json_schema().get("properties", ())
    except pydantic.errors.PydanticUserError:
        return False  # a type that no schema can describe


def _validated(adapter: pydantic.TypeAdapter[object], body: bytes) -> object:
    try:
        return adapter.validate_json(body)
    except pydantic.ValidationError as error:
        problems = "; ".join(map(_problem, error.errors(include_url=False, include_input=False)))
        invalid = InvalidMessage(
            f"{error.error_count()} problem(s) in the body as {error.title}: {problems}"
        )
    # with neither cause nor context: pydantic's error has the body's values, and a traceback would
    # show them
    raise invalid


def _problem(detail: typing.Any) -> str:
    """What is wrong at one place, without the value that stands there."""
    place = ".".join(map(str, detail["loc"]))
    problem = str(detail["msg"])
    if detail["type"] == "union_tag_invalid":  # the one text of pydantic's own that has the value
        context = detail["ctx"]
        problem = (
            f"The tag found using {context['discriminator']} is none of the expected ones: "
            f"{context['expected_tags']}"
        )
    return f"{place}: {problem}" if place else problem


def _text_of(message: HasBody) -> str:
    try:
        return message.body.decode()
    except UnicodeDecodeError as error:
        invalid = InvalidMessage(f"the body is not UTF-8: {error.reason} at byte {error.start}")
    raise invalid  # with neither cause nor context: they have the body
