"""JSON patches: RFC 6902, and merge patches: RFC 7386."""

import copy
import json
from typing import Any

from redrive.errors import ConfigurationError

_Json = Any  # whatever a JSON text holds
_MOST_OPERATIONS = 10_000
_MOST_COPIED = 16 * 1024 * 1024
"""Bytes that the `copy` operations of a patch may add to a body: each may double it. Source:
max_message_size is 16 MiB by default from RabbitMQ 4.0 on."""
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
    """A value with a merge patch applied.

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
    """A value with a JSON patch applied, all of it or, where it raises, none.

    Source: RFC 6902, section 4.

    Raises:
        LookupError, ValueError: an operation does not fit, or a test fails.
    """
    from jsonpatch import JsonPatch, JsonPatchException, JsonPatchTestFailed
    from jsonpointer import JsonPointer, JsonPointerException

    patched = copy.deepcopy(value)
    copied = 0
    try:
        for operation in operations:
            if operation["op"] == "copy":
                copied += len(json.dumps(JsonPointer(operation["from"]).resolve(patched)))
                if copied > _MOST_COPIED:
                    raise ValueError("what it copies makes the body longer than 16 MiB")
            patched = JsonPatch([operation]).apply(patched, in_place=True)
    except RecursionError as error:
        raise ValueError("it makes the body too deep") from error
    except JsonPatchTestFailed as error:  # whose words hold the whole of both values
        raise ValueError("a value is not the one that the patch tests for") from error
    except (JsonPatchException, JsonPointerException) as error:
        # Their words, too, hold values of the body.
        raise ValueError("what the patch names is not there, or is of another kind") from error
    return patched


def check_operations(operations: list[_Json]) -> None:
    """Raises ConfigurationError unless these are the operations of a JSON patch."""
    if len(operations) > _MOST_OPERATIONS:
        raise ConfigurationError(
            f"the patch has {len(operations):,} operations",
            f"At most {_MOST_OPERATIONS:,} are taken.",
        )
    for number, operation in enumerate(operations, 1):
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(name, str) or not _NEEDED.get(name, {None}) <= operation.keys():
            raise ConfigurationError(
                f"operation {number} of the patch is none: {json.dumps(operation):.80}",
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
