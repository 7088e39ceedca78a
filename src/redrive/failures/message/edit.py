"""Edit the bodies of messages that can't be handled as they are."""

import base64
import copy
import difflib
import importlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypedDict

from redrive import strict_json
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import checked_json, json_text_of, plain_of
from redrive.pubsub.body import with_body
from redrive.topology.headers import Delivery


class _Form(TypedDict):
    separators: tuple[str, str]
    ensure_ascii: bool


_FORMS: tuple[_Form, ...] = tuple(
    {"separators": separators, "ensure_ascii": ascii_alone}
    for separators in ((",", ":"), (", ", ": "))
    for ascii_alone in (False, True)
)
"""The formats in which programs commonly write JSON, as arguments of `json.dumps`."""


def laid_out(body: bytes) -> bytes | None:
    """Return a JSON body with one value per line, for an editor; None if it could not be written
    back byte for byte."""
    for form in _FORMS:
        with suppress(ValueError, RecursionError):
            value = json.loads(body)
            if json.dumps(value, **form).encode() == body:
                return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    return None


def as_before(body: bytes, edited: bytes) -> bytes:
    """Return an edited body in the formatting that it had before it was laid out.

    If that would change a value, such as a number with many digits, the body stays as typed.
    """
    with suppress(ValueError, RecursionError):
        value, before = json.loads(edited), json.loads(body)
        if json.dumps(value, indent=2, ensure_ascii=False).encode() == edited.rstrip():
            form = next(one for one in _FORMS if json.dumps(before, **one).encode() == body)
            return json.dumps(value, **form).encode()
    return edited


_Json = Any  # whatever a JSON text holds
_MOST_OPERATIONS = 10_000
_MOST_COPIED = 16 * 1024 * 1024
"""How many bytes a patch's `copy` operations may add to a body, because each could double it.
Source: max_message_size is 16 MiB by default from RabbitMQ 4.0 on."""
_NEEDED: dict[str, set[str | None]] = {
    "test": {"path", "value"},
    "remove": {"path"},
    "add": {"path", "value"},
    "replace": {"path", "value"},
    "copy": {"path", "from"},
    "move": {"path", "from"},
}
"""What each operation needs besides its name."""


def merged_with(value: _Json, patch: _Json) -> _Json:
    """Return a value with a merge patch applied.

    Source: RFC 7386, section 2.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        if inner is None:
            merged.pop(name, None)
        else:
            merged[name] = merged_with(merged.get(name), inner)
    return merged


def patched_with(value: _Json, operations: list[_Json]) -> _Json:
    """Return a value with a JSON patch applied; if an operation fails, raise without changing the
    value.

    Source: RFC 6902, section 4.
    """
    from jsonpatch import JsonPatch, JsonPatchException, JsonPatchTestFailed
    from jsonpointer import JsonPointer, JsonPointerException

    copied = 0
    try:
        patched = copy.deepcopy(value)
        for operation in operations:
            if operation["op"] == "copy":
                copied += len(json.dumps(JsonPointer(operation["from"]).resolve(patched)))
                if copied > _MOST_COPIED:
                    raise ValueError("its copies make the body longer than 16 MiB")
            patched = JsonPatch([operation]).apply(patched, in_place=True)
    except JsonPatchTestFailed as error:  # its message contains both values
        raise ValueError("a value differs from the one that the patch tests for") from error
    except (JsonPatchException, JsonPointerException) as error:
        # Their messages contain values of the body, too.
        raise ValueError("a value that the patch names is missing, or has another type") from error
    return patched


def check_operations(operations: list[_Json]) -> None:
    """Raise ConfigurationError unless these are valid operations of a JSON patch."""
    if len(operations) > _MOST_OPERATIONS:
        raise ConfigurationError(
            f"the patch has {len(operations):,} operations",
            f"At most {_MOST_OPERATIONS:,} are taken.",
        )
    for number, operation in enumerate(operations, 1):
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(name, str) or not _NEEDED.get(name, {None}) <= operation.keys():
            raise ConfigurationError(
                f"operation {number} of the patch is invalid: {json.dumps(operation):.80}",
                "See RFC 6902: op, path, value or from.",
            )
        for pointer in {"path", "from"} & _NEEDED[name]:
            _check_pointer(number, pointer, operation[pointer])


def _check_pointer(number: int, name: str, pointer: _Json) -> None:
    from jsonpointer import JsonPointer, JsonPointerException

    try:
        if isinstance(pointer, str):
            JsonPointer(pointer)
            return
    except JsonPointerException:
        pass
    raise ConfigurationError(
        f"operation {number} of the patch has the {name} {pointer!r}",
        "Give a JSON pointer, such as /address/country.",
    )


Edit = Callable[[FailedMessage], bytes]


def patching(text: str) -> Edit:
    """Return a function that applies a patch to JSON bodies: a list is a JSON patch (RFC 6902), an
    object a merge patch (RFC 7386)."""
    try:
        patch = strict_json.read(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the patch is not JSON: {error}",
            "Give a JSON patch (a list) or a merge patch (an object).",
        ) from error
    if not isinstance(patch, dict | list):
        raise ConfigurationError(
            f"the patch is {patch!r:.60}",
            "Give a JSON patch (a list) or a merge patch (an object).",
        )
    if isinstance(patch, list):
        check_operations(patch)

    def edit(message: FailedMessage) -> bytes:
        body = json_text_of(message)
        if body is None:
            raise ConfigurationError(
                f"the body of {message.failure_id} is not JSON, so it can't be patched",
                "Leave it out: --where 'body is not null'.",
            )
        value = json.loads(body)
        try:
            patched = (
                patched_with(value, patch) if isinstance(patch, list) else merged_with(value, patch)
            )
            return json.dumps(
                patched, ensure_ascii=False, allow_nan=False, separators=_separators_of(body)
            ).encode()
        except RecursionError as error:
            raise ConfigurationError(
                f"the body of {message.failure_id} is nested too deeply to be patched",
                "Leave the message out, or use --transform.",
            ) from error
        except (LookupError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"the patch does not fit the body of {message.failure_id}: {error}",
                "Leave the message out, or correct the patch.",
            ) from error

    return edit


def with_edited_body(delivery: Delivery, body: bytes) -> Delivery:
    """Return a message with another body, and with properties that describe its encoding; an
    unchanged message if the body is the same."""
    if body == delivery.body:
        return delivery
    return replace(delivery, body=body, properties=with_body(body, delivery.properties))


def function_named(name: str) -> Callable[..., object]:
    """Import the function that `module:function` names."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ConfigurationError(
            f"{name!r} does not name a function",
            "Give module:function, such as mending:add_country.",
        )
    try:
        function = getattr(importlib.import_module(module_name), path)
    except Exception as error:  # importing a module can raise anything
        raise ConfigurationError(
            f"{name!r} can't be imported: {type(error).__name__}: {error}",
            "Check the name and the directory.",
        ) from error
    if not callable(function):
        raise ConfigurationError(
            f"{name} is a {type(function).__name__}",
            "Name a function of one argument, the failed message.",
        )
    found: Callable[..., object] = function
    return found


def calling(name: str) -> Edit:
    """Return a function that calls `module:function` with a failed message to get its new body:
    bytes, a str, or a value to write as JSON."""
    function = function_named(name)

    def edit(message: FailedMessage) -> bytes:
        try:
            body = function(message)
            if isinstance(body, bytes):
                return body
            return (
                body.encode()
                if isinstance(body, str)
                else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            )
        except Exception as error:
            raise ConfigurationError(
                f"{name} failed with the message {message.failure_id}: {type(error).__name__}: "
                f"{error}",
                "Correct the function; this message was not sent.",
            ) from error

    return edit


def edited(bodies: Mapping[str, str]) -> Edit:
    """Return a function that gives each message its edited body, from base64 by the message's
    digest; other messages keep theirs."""

    def edit(message: FailedMessage) -> bytes:
        body = bodies.get(message.digest)
        return message.body if body is None else base64.b64decode(body)

    return edit


def _separators_of(text: str) -> tuple[str, str]:
    return (", ", ": ") if '": ' in text else (",", ":")


def difference(message: FailedMessage, body: bytes, name: str = "") -> list[str]:
    """Return what another body changes in a message, as the lines of `diff -u`.

    JSON bodies are laid out first, and both header lines begin with `name`.
    """
    changed = FailedMessage(with_edited_body(message.delivery, body))
    old, new = (f"{name} {what}".lstrip() for what in ("before", "after"))
    before = _encoding_of(message, changed) + _laid_out(plain_of(message))
    after = _encoding_of(changed, message) + _laid_out(plain_of(changed))
    return list(difflib.unified_diff(before, after, old, new, lineterm="", n=2))


def _encoding_of(message: FailedMessage, other: FailedMessage) -> list[str]:
    """Return the content headers of a message that differ from the other's."""
    ours, theirs = message.properties, other.properties
    return [
        f"{name}: {getattr(ours, name)}"
        for name in ("content_type", "content_encoding")
        if getattr(ours, name) not in (None, getattr(theirs, name))
    ]


def _laid_out(body: bytes) -> list[str]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body.hex(" ", 16).splitlines()
    if checked_json(text) is not None:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()
    return text.splitlines()
