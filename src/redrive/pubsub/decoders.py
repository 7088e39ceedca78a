"""Decoders that an app uses for bodies that are not JSON: one function for each content type."""

import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from redrive.errors import ConfigurationError, GiveUp, InvalidMessage, Retry
from redrive.pubsub.body import (
    NO_DECODERS,
    Decoder,
    HasBody,
    Unreadable,
    media_type,
    uncompressed,
    unreadable,
)
from redrive.pubsub.handler import check_result, check_runs_when_called, is_async, name_of

_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_HOW = 'Give a dict such as {"application/msgpack": decode_msgpack}.'


def decode_msgpack(body: bytes, message: object) -> object:
    """Decode a MessagePack body; needs msgspec (`pip install 'redrive[msgpack]'`).

        App(url, decoders={"application/msgpack": decode_msgpack})

    Args:
        body: the body, decompressed.
        message: its message.
    """
    return _msgpack().decode(body)


def decode_protobuf(body: bytes, message: object) -> object:
    """Decode a Protocol Buffers body as the class that its handler asks for, which protoc
    generated.

        App(url, decoders={"application/x-protobuf": decode_protobuf})

    Args:
        body: the body, decompressed.
        message: its message.
    """
    return body  # only the class that the handler asks for can parse it


def checked_decoders(decoders: object) -> Mapping[str, Decoder]:
    """Check decoders, and return them by media type in lower case.

    Raises:
        ConfigurationError: they are not such a mapping, or one of them is not a valid decoder.
    """
    if decoders is None:
        return NO_DECODERS
    if not isinstance(decoders, Mapping):
        raise ConfigurationError(f"decoders is {decoders!r:.80}", _HOW)
    checked: dict[str, Decoder] = {}
    for content_type, decoder in decoders.items():
        if not isinstance(content_type, str) or not (
            content_type == "" or _MEDIA_TYPE.fullmatch(content_type.strip())
        ):
            raise ConfigurationError(
                f"decoders has {content_type!r:.80}, which is not a content type",
                f'{_HOW} Leave parameters such as charset out, and write "" for messages that '
                "have none.",
            )
        type_ = media_type(content_type)
        if type_ in checked:
            raise ConfigurationError(
                f"decoders has {type_!r} twice", "Upper and lower case are the same: leave one out."
            )
        _check_decoder(type_, decoder)
        checked[type_] = decoder
    return MappingProxyType(checked)


def decoder_for(decoders: Mapping[str, Decoder], content_type: str | None) -> Decoder | None:
    """Return the decoder for a content type: the one for exactly this type, else for the part after
    its last `+`, such as `application/msgpack` for `application/vnd.shop.order+msgpack` (RFC
    6838)."""
    type_ = media_type(content_type)
    found = decoders.get(type_)
    if found is None and "+" in type_:
        found = decoders.get(f"{type_.partition('/')[0]}/{type_.rpartition('+')[2]}")
    return found


def decoded(decoder: Decoder, message: HasBody) -> object:
    """Return a message's body as decoded by a decoder.

    Raises:
        InvalidMessage: the body can't be decompressed, or the decoder raised an error.
        Retry, GiveUp: the decoder raised it.
    """
    try:
        body = uncompressed(message.body, message.properties)
    except Unreadable as error:
        problem = str(error)
    else:
        try:
            value = decoder(body, message)
            check_result("decoder", decoder, value)
            return value
        except (Retry, GiveUp, InvalidMessage):
            raise  # the decoder has decided what happens to the message
        except BaseException as error:
            raise _failed(decoder, error, message) from error
    raise unreadable(problem, message.body, message.properties)


def _failed(decoder: Decoder, error: BaseException, message: HasBody) -> InvalidMessage:
    what = str(InvalidMessage(error))  # its type and text, whatever the error is
    return unreadable(
        f"the decoder {name_of(decoder)!r} failed with {what}", message.body, message.properties
    )


def _check_decoder(content_type: str, decoder: object) -> None:
    if not callable(decoder):
        raise ConfigurationError(
            f"the decoder of {content_type!r} is {decoder!r:.80}",
            "Give a function of the body and its Message.",
        )
    check_runs_when_called("decoder", decoder)
    if is_async(decoder):
        raise ConfigurationError(
            f"the decoder {name_of(decoder)!r} is async", "Make it a plain function."
        )
    if not _takes_two(decoder):
        raise ConfigurationError(
            f"the decoder {name_of(decoder)!r} can't be called with a body and its Message",
            "Give it two parameters, as lambda body, message: …",
        )
    if decoder is decode_msgpack:
        _msgpack()


def _takes_two(function: Any) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # some built-ins have no signature
    try:
        signature.bind(b"", None)
    except TypeError:
        return False
    return True


def _msgpack() -> Any:
    try:
        import msgspec.msgpack
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "decode_msgpack needs msgspec, which is not installed",
            "pip install 'redrive[msgpack]'.",
        ) from error
    return msgspec.msgpack
