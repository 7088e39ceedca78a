"""JSON patches: RFC 6902, and merge patches: RFC 7386."""

import copy
import json
from typing import Any

from redrive.errors import ConfigurationError

_Json = Any  # whatever a JSON text holds
_MOST_OPERATIONS = 10_000


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
    root = [copy.deepcopy(value)]  # so that the whole document has a place too
    for operation in operations:
        _apply(root, operation)
    return root[0]


def _apply(root: list[_Json], operation: _Json) -> None:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            if not _same(_at(root, path), operation["value"]):
                raise ValueError(f"the value at {operation['path']!r} is another than is tested for")
        case "remove":
            _remove(root, path)
        case "add":
            _add(root, path, copy.deepcopy(operation["value"]))
        case "replace":
            _at(root, path)
            _set(root, path, copy.deepcopy(operation["value"]))
        case "copy":
            _add(root, path, copy.deepcopy(_at(root, _pointer(operation["from"]))))
        case "move":
            source = _pointer(operation["from"])
            if path != source and path[: len(source)] == source:
                raise ValueError(f"{operation['from']!r} can't be moved into itself")
            moved = _at(root, source)
            _remove(root, source)
            _add(root, path, moved)


def check_operations(operations: list[_Json]) -> None:
    """Raises ConfigurationError unless these are the operations of a JSON patch."""
    needed = {"test": "value", "remove": "path", "add": "value", "replace": "value", "copy": "from", "move": "from"}
    if len(operations) > _MOST_OPERATIONS:
        raise ConfigurationError(f"the patch has {len(operations):,} operations", f"At most {_MOST_OPERATIONS:,} are taken.")
    for number, operation in enumerate(operations, 1):
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(name, str) or name not in needed or needed[name] not in operation:
            raise ConfigurationError(
                f"operation {number} of the patch is none: {json.dumps(operation):.80}", "See RFC 6902: op, path, value or from."
            )
        for pointer in ("path", *(["from"] if needed[name] == "from" else [])):
            place = operation.get(pointer)
            if not isinstance(place, str) or (place and not place.startswith("/")):
                raise ConfigurationError(
                    f"operation {number} of the patch has the {pointer} {place!r}", "Give a JSON pointer, such as /address/country."
                )


def _pointer(text: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _at(root: list[_Json], path: list[str]) -> _Json:
    found = root[0]
    for step in path:
        found = found[_index(found, step)] if isinstance(found, list) else _member(found, step)
    return found


def _member(value: _Json, name: str) -> _Json:
    if not isinstance(value, dict) or name not in value:
        raise LookupError(f"there is no {name!r}")
    return value[name]


def _index(values: list[_Json], step: str, *, end: bool = False) -> int:
    if end and step == "-":
        return len(values)
    if not (step.isascii() and step.isdigit()) or (step != "0" and step.startswith("0")) or int(step) >= len(values) + end:
        raise LookupError(f"there is no item {step!r}")
    return int(step)


def _parent(root: list[_Json], path: list[str]) -> tuple[_Json, str]:
    return (_at(root, path[:-1]), path[-1]) if path else (root, "0")


def _remove(root: list[_Json], path: list[str]) -> None:
    _at(root, path)
    parent, step = _parent(root, path)
    if parent is root:
        root[0] = None
    else:
        del parent[_index(parent, step) if isinstance(parent, list) else step]


def _add(root: list[_Json], path: list[str], value: _Json) -> None:
    parent, step = _parent(root, path)
    if isinstance(parent, list) and parent is not root:
        parent.insert(_index(parent, step, end=True), value)
    else:
        _set(root, path, value)


def _set(root: list[_Json], path: list[str], value: _Json) -> None:
    parent, step = _parent(root, path)
    if isinstance(parent, list):
        parent[_index(parent, step)] = value
    elif isinstance(parent, dict):
        parent[step] = value
    else:
        raise LookupError(f"there is nothing that could have {step!r}")


def _same(one: _Json, other: _Json) -> bool:
    """Equality as JSON has it: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
