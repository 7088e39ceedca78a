"""What a handler's exception means."""

import traceback
from datetime import datetime

from redrive.errors import GiveUp, InvalidMessage, Retry
from redrive.topology.decision import Raised
from redrive.topology.moves import ErrorReport

_MOST_CHARACTERS = 50_000
"""Of an error's text, and of each end of a traceback: far more than headers take, and little enough to be searched for secrets."""


def raised(error: BaseException, now: datetime) -> Raised:
    """The outcome of an attempt that ended in `error`, its traceback left out: most attempts are retried, and making it is slow."""
    report = report_of(error)
    match error:
        case InvalidMessage():
            return Raised(report, give_up="invalid-message")
        case GiveUp():
            return Raised(report, give_up="gave-up")
        case Retry():
            return Raised(report, kind=type(error), after=error.wait(now))
        case _:
            return Raised(report, kind=type(error))


def report_of(error: BaseException) -> ErrorReport:
    """An exception's type and text, whatever exception it is; without its traceback."""
    return ErrorReport(_name_of(error), _text_of(error))


def traceback_of(error: BaseException) -> str:
    """An exception's traceback as text, the innermost frame last; one that is very long without its middle."""
    text = "".join(traceback.format_exception(error))
    if len(text) <= 2 * _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}\n[…]\n{text[-_MOST_CHARACTERS:]}"


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_CHARACTERS]
    except Exception as broken:  # noqa: BLE001 - a handler's exception may be anything
        return f"<its text can't be made: {type(broken).__name__}>"
