"""Classifies exceptions that handlers raise."""

import traceback
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from redrive.errors import GiveUp, InvalidMessage, RedriveError, Retry, text_of
from redrive.topology.decision import Raised
from redrive.topology.policy import RetryPolicy, leniency_of
from redrive.topology.rewrite import ErrorReport

_NEVER_RETRIED: Sequence[tuple[type[RedriveError], Literal["gave-up", "invalid-message"]]] = (
    (GiveUp, "gave-up"),
    (InvalidMessage, "invalid-message"),
)

_MOST_CHARACTERS = 50_000
"""Limit on an error's text, and on each end of a traceback: far more than fits into headers, and
short enough to be searched for secrets."""


def raised(
    error: BaseException,
    now: datetime,
    policy: RetryPolicy,
    outage: Literal["known", "likely"] | None = None,
) -> Raised:
    """Return the outcome of an attempt that ended in `error`, without its traceback, which is slow
    to format and not needed for the many attempts that are retried.

    An exception group, as `asyncio.TaskGroup` raises it, is flattened, and one of its errors
    decides, the first that

    1. is a GiveUp, or else an InvalidMessage;
    2. is allowed the fewest retries by the policy's rules; among equals one that has a rule.

    That error is shown in the log and in the failed queue. The message waits as long as the longest
    wait that a Retry in the group asks for, or else as the deciding error's rule says.
    """
    errors = errors_in(error)
    for kind, reason in _NEVER_RETRIED:
        final = next((one for one in errors if isinstance(one, kind)), None)
        if final is not None:
            return Raised(report_of(final), give_up=reason)
    deciding = min(errors, key=lambda one: leniency_of(policy, type(one)))
    waits = [
        wait for one in errors if isinstance(one, Retry) and (wait := one.wait(now)) is not None
    ]
    return Raised(
        report_of(deciding),
        kind=type(deciding),
        after=max(waits, default=None),
        outage=outage,
    )


def errors_in(error: BaseException) -> list[BaseException]:
    """Return the errors in a group and its nested groups, in order; for any other error, just that
    one."""
    apart: list[BaseException] = []
    left = [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            left += reversed(one.exceptions)
        else:
            apart.append(one)
    return apart


def report_of(error: BaseException) -> ErrorReport:
    """Return an exception's type and text, without its traceback."""
    return ErrorReport(_name_of(error), text_of(error)[:_MOST_CHARACTERS])


def traceback_of(error: BaseException) -> str:
    """Return an exception's traceback as text, innermost frame last; a very long one without its
    middle."""
    text = "".join(traceback.format_exception(error))
    if len(text) <= 2 * _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}\n[…]\n{text[-_MOST_CHARACTERS:]}"


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
