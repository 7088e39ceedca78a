"""Classifies exceptions that handlers raise."""

import logging
import traceback
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from redrive.errors import GiveUp, InvalidMessage, RedriveError, Retry, text_of
from redrive.pubsub.handler import check_result
from redrive.topology.decision import Raised
from redrive.topology.policy import FINAL, THE_USUAL, ErrorRule, RetryPolicy, leniency_of
from redrive.topology.rewrite import ErrorReport

logger = logging.getLogger("redrive")

_NEVER_RETRIED: Sequence[tuple[type[RedriveError], Literal["gave-up", "invalid-message"]]] = (
    (GiveUp, "gave-up"),
    (InvalidMessage, "invalid-message"),
)

_MOST_CHARACTERS = 50_000
"""Limit on an error's text, and on each end of a traceback: far more than fits into headers, and
short enough to be searched for secrets."""
_MOST_CAUSES = 100


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
            return Raised(report_of(final), give_up=reason, rule=rule_of(policy, final))
    deciding, rule = min(
        ((one, rule_of(policy, one)) for one in errors),
        key=lambda found: leniency_of(policy, found[1]),
    )
    waits = [
        wait for one in errors if isinstance(one, Retry) and (wait := one.wait(now)) is not None
    ]
    return Raised(report_of(deciding), rule=rule, after=max(waits, default=None), outage=outage)


def rule_of(policy: RetryPolicy, error: BaseException) -> ErrorRule:
    """Return the policy's rule for an error: its own, or that of the nearest cause that has one."""
    if not policy.errors:
        return THE_USUAL
    looked_at = [error] if isinstance(error, FINAL) else with_causes([error])
    rules = (
        rule for one in looked_at for rule in policy.rules_for(type(one)) if _applies(rule, one)
    )
    return next(rules, THE_USUAL)


def _applies(rule: ErrorRule, error: BaseException) -> bool:
    if rule.when is None:
        return True
    try:
        answer = rule.when(error)
        check_result("predicate", rule.when, answer)
        return bool(answer)
    except BaseException:
        logger.exception("the `when` of an error rule failed, so the rule does not apply")
        return False


def with_causes(errors: Sequence[BaseException]) -> Iterator[BaseException]:
    """Yield errors and their explicit causes (`raise … from …`), the nearest ones first; groups
    among the causes are split into their errors."""
    seen: set[int] = set()
    while errors and len(seen) < _MOST_CAUSES:
        causes: list[BaseException] = []
        for one in errors:
            if id(one) not in seen:
                seen.add(id(one))
                yield one
                if one.__cause__ is not None:
                    causes += errors_in(one.__cause__)
        errors = causes


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
