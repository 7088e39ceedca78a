"""Other bodies for messages that can't be handled as they are."""

import base64
import difflib
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from redrive import strict_json
from redrive.errors import ConfigurationError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.patch import check_operations, merged_with, patched_with
from redrive.failures.readable_values import checked_json, json_text_of, plain_of
from redrive.pubsub.body import with_body
from redrive.topology.headers import Delivery

Edit = Callable[[FailedMessage], bytes]


def patching(text: str) -> Edit:
    """What applies a patch to JSON bodies: a list is a JSON patch (RFC 6902), an object a merge
    patch (RFC 7386).

    Raises:
        ConfigurationError: it is neither; from the edit: a body is not JSON, or the patch does not
            fit it.
    """
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
        except (LookupError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"the patch does not fit the body of {message.failure_id}: {error}",
                "Leave it out, or mend the patch.",
            ) from error

    return edit


def with_edited_body(delivery: Delivery, body: bytes) -> Delivery:
    """Return a message with another body, whose properties then tell how that is written; the
    message as it is where the body is no other."""
    if body == delivery.body:
        return delivery
    return replace(delivery, body=body, properties=with_body(body, delivery.properties))


def function_named(name: str) -> Callable[..., object]:
    """Import the function that `module:function` names.

    Raises:
        ConfigurationError: the name is no such name, or there is no such function.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ConfigurationError(
            f"{name!r} does not say where a function is",
            "Give module:function, such as mending:add_country.",
        )
    try:
        function = getattr(importlib.import_module(module_name), path)
    except Exception as error:  # whatever a module raises while it is imported
        raise ConfigurationError(
            f"{name!r} can't be had: {type(error).__name__}: {error}",
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
    """Return what calls `module:function` with a failed message; it returns the new body: bytes, a
    str, or what JSON can be made of.

    Raises:
        ConfigurationError: there is no such function; from the edit: it raised, or returned nothing
            that can be a body.
    """
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
                "Mend it; nothing of this message was sent.",
            ) from error

    return edit


def edited(bodies: Mapping[str, str]) -> Edit:
    """What gives each message the body that people have edited: base64, by the message's digest;
    others keep theirs."""

    def edit(message: FailedMessage) -> bytes:
        body = bodies.get(message.digest)
        return message.body if body is None else base64.b64decode(body)

    return edit


def _separators_of(text: str) -> tuple[str, str]:
    return (", ", ": ") if '": ' in text else (",", ":")


def difference(message: FailedMessage, body: bytes, name: str = "") -> list[str]:
    """Return what another body changes in a message, line by line as `diff -u` has it; bodies that
    are JSON are laid out, and both heads begin with `name`."""
    changed = FailedMessage(with_edited_body(message.delivery, body))
    old, new = (f"{name} {what}".lstrip() for what in ("before", "after"))
    before = _encoding_of(message, changed) + _laid_out(plain_of(message))
    after = _encoding_of(changed, message) + _laid_out(plain_of(changed))
    return list(difflib.unified_diff(before, after, old, new, lineterm="", n=2))


def _encoding_of(message: FailedMessage, other: FailedMessage) -> list[str]:
    """What is said of a message's body and not of the other's."""
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
