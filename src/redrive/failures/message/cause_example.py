"""An example message of a cause, with what all messages of the cause share marked apart from what
varies."""

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from textwrap import dedent
from typing import NamedTuple

from redrive.failures.message.cause import (
    MASKS,
    Cause,
    TracebackPart,
    frame_of,
    masked,
    parts_of,
    with_codes,
    with_codes_hidden,
)

_MOST = 4000


class ExamplePart(NamedTuple):
    """A part of a text.

    Args:
        text: the part.
        is_shared: whether all messages of the cause have it.
    """

    text: str
    is_shared: bool


class ExampleTrace(NamedTuple):
    """Some lines of a traceback.

    Args:
        text: the lines.
        frames: how many library frames they contain; 0 for any other lines.
        is_own_frame: whether this is the frame that the cause names.
    """

    text: str
    frames: int
    is_own_frame: bool


def parts_of_message(text: str) -> list[ExamplePart]:
    """Split an error's text into shared parts and parts that masks replace.

    A validation error is returned as one part, because it is not masked word by word.
    """
    text = text[:_MOST]
    parts = [ExamplePart(with_codes_hidden(text), True)]
    for pattern, instead, _ in MASKS:
        if instead == " ":
            continue
        parts = [
            inner
            for part in parts
            for inner in (_apart(part.text, pattern) if part.is_shared else [part])
        ]
    parts = [part._replace(text=with_codes(part.text)) for part in parts]
    shown = masked(text)
    is_told = all(" ".join(part.text.split()) in shown for part in parts if part.is_shared)
    return parts if is_told else [ExamplePart(text, False)]


def trace_of(traceback: str, cause: Cause) -> list[ExampleTrace]:
    """Split a traceback into parts, with the frame that the cause names in a part of its own."""
    found: list[ExampleTrace] = []
    for part in parts_of(traceback):
        found += _with_frame(part, cause.frame)
    own = [number for number, part in enumerate(found) if part.is_own_frame]
    # The cause names the innermost frame; a recursive function appears several times.
    return [
        part._replace(is_own_frame=bool(own) and number == own[-1])
        for number, part in enumerate(found)
    ]


def own_code(parts: Sequence[ExampleTrace]) -> str:
    """Return the frame that the cause names, with its lines of code; empty if there is none."""
    for frame, after in pairwise((*parts, ExampleTrace("", 0, False))):
        if frame.is_own_frame:
            code = takewhile(lambda line: line[:4] == "    ", after.text.splitlines())
            return dedent("\n".join((frame.text, *code)))
    return ""


def _with_frame(part: TracebackPart, frame: str) -> list[ExampleTrace]:
    if part.frames or not frame:
        return [ExampleTrace(part.text, part.frames, False)]
    found: list[ExampleTrace] = []
    lines: list[str] = []
    for line in part.text.splitlines():
        if frame_of(line) == frame:
            if lines:
                found.append(ExampleTrace("\n".join(lines), 0, False))
                lines = []
            found.append(ExampleTrace(line, 0, True))
        else:
            lines.append(line)
    if lines:
        found.append(ExampleTrace("\n".join(lines), 0, False))
    return found


def _apart(text: str, pattern: re.Pattern[str]) -> list[ExamplePart]:
    parts, place = [], 0
    for found in pattern.finditer(text):
        parts += [
            ExamplePart(text[place : found.start()], True),
            ExamplePart(found.group(), False),
        ]
        place = found.end()
    parts.append(ExamplePart(text[place:], True))
    return [part for part in parts if part.text]
