"""Write failed messages as test cases."""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from redrive.errors import ConfigurationError
from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.mask import Mask
from redrive.failures.message.readable_values import headers_of, plain_of
from redrive.failures.rehearsal.rehearsal import retried
from redrive.redaction import in_one_line, redact

_PROPERTIES = ("content_type", "correlation_id", "message_id", "type", "app_id", "timestamp")
_DEEPEST = 20
_TEST = '''"""{title}

Written by `redrive failed fixtures`. Bodies and headers are masked, so a case may need other values
to fail as it did: see that each fails before the bug is mended.
"""

from pathlib import Path

import pytest

from {module} import {name}
from redrive.testing import FailedCase, failed_cases

CASES = failed_cases(Path(__file__).with_name("{file}"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_failed_is_handled(case: FailedCase) -> None:
    assert case.errors_with({path}) == []
'''


def sample(messages: Iterable[FailedMessage], most: int) -> list[FailedMessage]:
    """Return messages whose bodies differ in shape, at most so many of each cause: the first one of
    each shape."""
    found: dict[Cause, dict[object, FailedMessage]] = {}
    for message in messages:
        shapes = found.setdefault(cause_of(message), {})
        if len(shapes) < most:
            shapes.setdefault(shape_of(plain_of(message)), message)
    return [message for shapes in found.values() for message in shapes.values()]


def shape_of(body: bytes) -> object:
    """Return what the structure of a body is, without its values: the names and types of JSON; for
    any other body, the order of its size."""
    try:
        return _shape(json.loads(body), 0)
    except (ValueError, RecursionError):
        return "text", len(body).bit_length()


def _shape(value: object, depth: int) -> object:
    if depth > _DEEPEST:
        return None
    match value:
        case dict():
            return frozenset((name, _shape(inner, depth + 1)) for name, inner in value.items())
        case list():
            return "list", frozenset(_shape(inner, depth + 1) for inner in value)
        case _:
            return type(value).__name__


def write_fixtures(
    folder: Path, messages: Sequence[FailedMessage], handler: str, mask: Mask | None
) -> list[Path]:
    """Write a test with its cases for each cause, and return the files.

    Args:
        folder: where they are written; it is made if it is not there.
        messages: the failed messages.
        handler: the app or function that handles them, as `module:name`.
        mask: what is hidden in their bodies; None hides what redactions hide everywhere.

    Raises:
        ConfigurationError: a file is there already, or can't be written.
    """
    module, _, path = handler.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        raise ConfigurationError(
            f"{handler!r} does not name a handler", "Give module:name, such as shop.orders:app."
        )
    by_cause: dict[Cause, list[FailedMessage]] = {}
    for message in messages:
        by_cause.setdefault(cause_of(message), []).append(message)
    files: dict[Path, str] = {}
    for cause, some in by_cause.items():
        cases = f"failed_{cause.group_id}.json"
        title = in_one_line(redact(f"Messages of {some[0].queue} that failed: {cause.what}"))
        files[folder / cases] = (
            json.dumps([_case(one, mask) for one in some], indent=2, ensure_ascii=True) + "\n"
        )
        files[folder / f"test_failed_{cause.group_id}.py"] = _TEST.format(
            title=_for_docstring(title),
            module=module,
            name=path.partition(".")[0],
            path=path,
            file=cases,
        )
    _write(folder, files)
    return list(files)


def _case(message: FailedMessage, mask: Mask | None) -> dict[str, object]:
    again = FailedMessage(retried(message))
    body = plain_of(message)
    if mask is not None:
        body = mask.body(body)
    properties = again.properties
    return {
        "id": message.failure_id,
        "queue": message.queue,
        **_body(body),
        "headers": dict(_redacted(headers_of(again))),
        "properties": {
            name: value for name in _PROPERTIES if (value := getattr(properties, name)) is not None
        },
        "error": redact(f"{message.error_type}: {message.error_message}"),
    }


def _body(body: bytes) -> dict[str, object]:
    try:
        return {"body": redact(body.decode())}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def _redacted(headers: dict[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in headers.items():
        # With its name, which may say that it is secret.
        hidden = isinstance(value, str) and redact(f"{name}: {value}") != f"{name}: {value}"
        yield name, "***" if hidden else value


def _for_docstring(text: str) -> str:
    words = text.replace("\\", "/").replace('"', "'")
    return words if len(words) <= 90 else f"{words[:87]}..."


def _write(folder: Path, files: dict[Path, str]) -> None:
    for path in files:
        if path.exists():
            raise ConfigurationError(f"{path} is there already", "Delete it, or name a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{folder} can't be written: {error.strerror}", "Name another folder."
        ) from error
