"""Encodes bodies for publishers, and decodes them to the types that handlers ask for."""

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import pydantic
from pydantic_core import PydanticSerializationError, to_json

from redrive import strict_json
from redrive.errors import ConfigurationError, InvalidMessage
from redrive.pubsub import php_envelope, protobuf_codec, struct_codec
from redrive.pubsub.body import HasBody, json_of, unreadable
from redrive.pubsub.decoders import decoded, decoder_for

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"

Codec = Literal["json", "php-envelope"]
"""How a publisher encodes values other than bytes and text: as JSON, or as JSON in the envelope of
PHP services. Subscribers read both."""


Reader = Callable[[HasBody], object]
"""Reads a message's body as a value."""


def encode_body(body: object) -> tuple[bytes, str]:
    """Return a body as bytes, and its content type."""
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
        if b"NaN" in content or b"Infinity" in content:
            strict_json.read(content)  # refuses the number; the word may only occur inside a string
        if b"null" in content:
            _check_numbers_in(body)
        return content
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the body, a {type(body).__name__}, can't be converted to JSON: {error}",
            "Publish bytes, a str, a pydantic model, or a dict or list of plain values.",
        ) from error


def _check_numbers_in(value: object) -> None:
    """Raise ValueError if a model has a NaN or an infinity, which pydantic has silently written as
    null."""
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
    """Return a body in PHP's envelope, and its content type."""
    if isinstance(body, bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"the body is {type(body).__name__}, and the codec 'php-envelope' puts JSON into an "
            "envelope",
            "Publish a dict, a pydantic model or another plain value; or use a publisher with the "
            "codec 'json'.",
        )
    # encode_body sends text as it is; in an envelope it is a JSON value like any other.
    return php_envelope.wrap(_json_of(body), id_), JSON


def check_codec(codec: str) -> None:
    """Raise ConfigurationError unless `codec` is a known codec."""
    if codec not in get_args(Codec):
        raise ConfigurationError(
            f"codec is {codec!r}", f"Choose {' or '.join(map(repr, get_args(Codec)))}."
        )


def reader_of(annotation: object) -> Reader:
    """Return the function that reads a body as the type that a handler asks for.

    `bytes` is the body as received, `str` its text; a msgspec.Struct, a Protocol Buffers class and
    anything else that pydantic can validate (a model, `dict`, a dataclass, a TypedDict, …) is read
    from JSON. From a body in PHP's envelope, the value inside it is read, unless the type has an
    `__id` field of its own: then it gets the whole envelope.

    If the subscriber has a decoder for the message's content type, every type but `bytes` is read
    from the decoder's result.
    """
    if annotation is bytes:
        return lambda message: message.body
    if annotation is str:
        return _decoding(_text_of, _value_reader(pydantic.TypeAdapter(str)))
    if struct_codec.is_struct(annotation):
        return _decoding(struct_codec.reader_of(annotation), struct_codec.converter_of(annotation))
    if protobuf_codec.is_protobuf(annotation):
        from_value = protobuf_codec.reader_of(annotation)
        return _decoding(lambda message: from_value(json_of(message)), from_value)
    try:
        adapter = pydantic.TypeAdapter[object](annotation)  # type: ignore[arg-type]
        return _decoding(_validating(annotation, adapter), _value_reader(adapter))
    except pydantic.errors.PydanticUserError as error:
        why = error.message.partition("\n")[0]
        raise ConfigurationError(why, "Use a pydantic model, dict, bytes or str.") from error


def _decoding(plain: Reader, from_value: Callable[[object], object]) -> Reader:
    """Return a reader that uses the decoder for the content type if there is one, else `plain`."""

    def read(message: HasBody) -> object:
        if message._decoders:
            decoder = decoder_for(message._decoders, message.properties.content_type)
            if decoder is not None:
                return from_value(decoded(decoder, message))
        return plain(message)

    return read


def _validating(annotation: object, adapter: pydantic.TypeAdapter[object]) -> Reader:
    if _has_an_id_of_its_own(adapter):
        return lambda message: _validated(adapter, message._utf8(), message)
    # Validated inside the envelope's bytes: JSON that was parsed and written again is not the same
    # JSON.
    enveloped = pydantic.TypeAdapter[object](
        pydantic.create_model("PHP's envelope", body=(annotation, ...))  # type: ignore[arg-type]
    )

    def read(message: HasBody) -> object:
        body = message._utf8()
        if php_envelope.MARK not in body or php_envelope.read(body) is None:
            return _validated(adapter, body, message)
        return getattr(_validated(enveloped, body, message), "body")  # noqa: B009 - the model is made above

    return read


def _has_an_id_of_its_own(adapter: pydantic.TypeAdapter[object]) -> bool:
    """Check whether a type has PHP's `__id` field, so was written to read the envelope."""
    try:
        return "__id" in adapter.json_schema().get("properties", ())
    except pydantic.errors.PydanticUserError:
        return False  # a type that no schema can describe


def _validated(adapter: pydantic.TypeAdapter[object], body: bytes, message: HasBody) -> object:
    try:
        return adapter.validate_json(body)
    except pydantic.ValidationError as error:
        invalid = _not_json(error, message) or _misfit(error)
    # raised without cause or context: pydantic's error contains values of the body, which a
    # traceback would show
    raise invalid


def _value_reader(adapter: pydantic.TypeAdapter[typing.Any]) -> Callable[[object], object]:
    def read(value: object) -> object:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            invalid = _misfit(error)
        raise invalid  # as above

    return read


def _not_json(error: pydantic.ValidationError, message: HasBody) -> InvalidMessage | None:
    """Return the error for a body that is not JSON; None if it is JSON that does not fit the
    type."""
    (first, *_) = error.errors(include_url=False, include_input=False)
    if first["type"] != "json_invalid" or first["loc"]:
        return None
    problem = str(first["msg"]).removeprefix("Invalid JSON: ")
    return unreadable(f"the body is not JSON: {problem}", message.body, message.properties)


def _misfit(error: pydantic.ValidationError) -> InvalidMessage:
    problems = "; ".join(map(_problem, error.errors(include_url=False, include_input=False)))
    return InvalidMessage(
        f"{error.error_count()} problem(s) in the body as {error.title}: {problems}"
    )


def _problem(detail: typing.Any) -> str:
    """Describe the problem at one place, without the value found there."""
    place = ".".join(map(str, detail["loc"]))
    problem = str(detail["msg"])
    if detail["type"] == "union_tag_invalid":  # pydantic's only message that contains the value
        context = detail["ctx"]
        problem = (
            f"The tag found using {context['discriminator']} is not one of the expected ones: "
            f"{context['expected_tags']}"
        )
    return f"{place}: {problem}" if place else problem


def _text_of(message: HasBody) -> str:
    body = message._utf8()
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        invalid = unreadable(
            f"the body is not UTF-8: {error.reason} at byte {error.start}",
            message.body,
            message.properties,
        )
    raise invalid  # raised without cause or context, which contain the body
