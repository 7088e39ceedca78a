"""What a handler's exception means."""

import traceback
from datetime import datetime

from redrive.errors import GiveUp, InvalidMessage, Retry
from redrive.topology.decision import Raised
from redrive.topology.moves import ErrorReport


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
    """An exception's traceback as text, the innermost frame last."""
    return "".join(traceback.format_exception(error))


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a handler's exception may be anything
        return f"<its text can't be made: {type(broken).__name__}>"
