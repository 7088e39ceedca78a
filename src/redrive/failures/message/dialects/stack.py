"""Extract an exception's class and text from a printed stack trace."""

import re
from typing import NamedTuple

_CLASS = r"[A-Za-z_][\w.$`+]*"
_PYTHON_ERROR = re.compile(rf"({_CLASS})(?:: (.*))?", re.DOTALL)
_JAVA_ERROR = re.compile(rf"({_CLASS})(?:: (.*))?")
_JAVA_CAUSE = re.compile(rf"^Caused by: ({_CLASS})(?:: ([^\r\n]*))?\r?$", re.MULTILINE)
_MOST = 256 * 1024


class RaisedError(NamedTuple):
    """An exception's class and text; None if unknown."""

    type: str | None = None
    message: str | None = None


def of_python(traceback: str | None) -> RaisedError:
    """Return the exception that a Python traceback ends with."""
    lines = (traceback or "")[-_MOST:].splitlines()
    last_frame = max((i for i, line in enumerate(lines) if line.startswith("  ")), default=-1)
    found = _PYTHON_ERROR.fullmatch("\n".join(lines[last_frame + 1 :]).strip())
    return RaisedError(found[1], found[2]) if found else RaisedError()


def of_java(stack: str | None, message: str | None = None) -> RaisedError:
    """Return the exception from a Java stack trace.

    That is the cause with this message, else the first cause, else the exception itself.
    """
    stack = (stack or "")[:_MOST]
    causes = [RaisedError(found[1], found[2]) for found in _JAVA_CAUSE.finditer(stack)]
    for cause in causes:
        if message is not None and cause.message == message:
            return cause
    if causes:
        return causes[0]
    found = _JAVA_ERROR.fullmatch(stack.partition("\n")[0].rstrip("\r"))
    return RaisedError(found[1], found[2]) if found else RaisedError()
