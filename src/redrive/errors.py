"""All exceptions of redrive.

    RedriveError
    ├── ConfigurationError      an invalid option, argument or file: fix the code or the command
    ├── TopologyMismatch        a queue or exchange on the broker has other arguments than requested
    ├── BrokerUnavailable       no broker answered, or a lost connection did not come back in time
    ├── PermissionDenied        the broker refused the user, the password or an operation
    ├── PublishError            a message was not confirmed
    │   ├── PublishNacked       the broker did not accept it now
    │   ├── PublishRefused      the broker will never accept it: too large, or a forbidden property
    │   ├── Unroutable          no queue is bound for it, and it was published as mandatory
    │   └── PublishTimeout      no confirm came in time; the broker may or may not have the message
    ├── InvalidMessage          a body can't be read as the type that the handler expects
    ├── HandlerTimeout          a handler ran longer than allowed
    ├── Retry                   raised by a handler: try this message again
    ├── DependencyDown          raised by a handler: something that it needs is down
    └── GiveUp                  raised by a handler: set this message aside now

All of them can be pickled, and none of them ever contains a password.
"""

import contextlib
from datetime import datetime, timedelta

from redrive.duration_text import NoDuration, format_duration, parse_duration
from redrive.redaction import redact


class RedriveError(Exception):
    """Base class of all exceptions that redrive raises."""


class ConfigurationError(RedriveError):
    """An invalid option, argument, file or request.

    Args:
        problem: what is wrong, and where.
        remedy: what to do about it.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        problem, remedy = redact(problem), redact(remedy)
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem}\n{self.remedy}" if self.remedy else self.problem


class TopologyMismatch(RedriveError):
    """An exchange or queue on the broker has other arguments than the requested ones.

    Args:
        kind: `queue` or `exchange`.
        name: the object's name.
        argument: the argument that differs, as the broker names it (`x-message-ttl`, `type`, …).
        wanted: the requested value, as the broker prints it.
        found: the value on the broker, as it prints it.
    """

    def __init__(self, kind: str, name: str, argument: str, wanted: str, found: str) -> None:
        super().__init__(kind, name, argument, wanted, found)
        self.kind = kind
        self.name = name
        self.argument = argument
        self.wanted = wanted
        self.found = found

    def __str__(self) -> str:
        if self.argument.startswith("x-delayed-retry-m") and self.found == "none":
            return (
                f"queue {self.name!r} has no {self.argument}: a policy sets its delay; "
                f"{self.argument}={self.wanted} is asked for.\n"
                "Let `redrive topology apply` declare it (delay_by: policy in its file), and set "
                "declare=False on the subscriber."
            )
        there = (
            f"{self.kind} {self.name!r} is on the broker with {self.argument}={self.found}; "
            f"{self.argument}={self.wanted} is asked for.\n"
        )
        cant = f"RabbitMQ can't change this on a live {self.kind}: "
        if self.kind != "queue":
            return (
                f"{there}{cant}ask for {self.found}, use another name, or delete it once nothing "
                "uses it."
            )
        queue = self.name.removesuffix("@retry").removesuffix("@failed")
        migrate = (
            "migrate it (redrive topology init topology.yaml, change it there, "
            f"redrive topology migrate topology.yaml --queue {queue})"
        )
        if (
            self.name.endswith("@retry")
            and self.argument == "x-message-ttl"
            and (self.wanted + self.found).isdecimal()
        ):
            wanted, found = (
                format_duration(timedelta(milliseconds=int(value)))
                for value in (self.wanted, self.found)
            )
            return (
                f"{there}{cant}keep delay={found!r} and add backoff=[{wanted!r}] with max_retries, "
                f"which needs no other queue, or {migrate}."
            )
        return f"{there}{cant}ask for {self.found}, use another name, or {migrate}."


class BrokerUnavailable(RedriveError):
    """No broker answered at the address, or the connection was lost and did not come back in time.

    Args:
        address: the broker's address, without credentials.
        reason: what happened.
        remedy: what to do about it.
    """

    def __init__(
        self,
        address: str,
        reason: str,
        remedy: str = "Check that RabbitMQ runs there, and the host and port.",
    ) -> None:
        address, reason, remedy = redact(address), redact(reason), redact(remedy)
        super().__init__(address, reason, remedy)
        self.address = address
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"RabbitMQ at {self.address} can't be used: {self.reason}.\n{self.remedy}"


class PermissionDenied(RedriveError):
    """The broker refused the user, the password, the virtual host or an operation.

    Args:
        problem: what was refused, in the broker's own words if it gave any.
        remedy: what to do about it.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        problem, remedy = redact(problem), redact(remedy)
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem}.\n{self.remedy}"


class PublishError(RedriveError):
    """A message was not confirmed by the broker.

    Args:
        message_id: the id of the message.
        routing_key: the key that it was published with.
        reason: why, in a few words.
    """

    def __init__(self, message_id: str, routing_key: str, reason: str) -> None:
        reason = redact(reason)
        super().__init__(message_id, routing_key, reason)
        self.message_id = message_id
        self.routing_key = routing_key
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"message {self.message_id} with routing key {self.routing_key!r} was not "
            f"confirmed: {self.reason}"
        )


class PublishNacked(PublishError):
    """The broker did not accept the message now, but may do so later: a queue is full and rejects
    publishes, or a queue failed."""


class PublishRefused(PublishError):
    """The broker will never accept this message: it is too large, or has a property that is not
    allowed."""


class Unroutable(PublishError):
    """No queue is bound for the message's routing key, and it was published as mandatory."""


class PublishTimeout(PublishError):
    """No confirm came in time. The broker may or may not have the message, so publishing it again
    may duplicate it."""


class InvalidMessage(RedriveError):
    """A body that can't be read as the type that the handler expects. The message is set aside at
    once, without retries.

    Args:
        problem: what is wrong with the body, as a text or an exception.

    Raises:
        ConfigurationError: `problem` is neither a text nor an exception.
    """

    def __init__(self, problem: str | BaseException) -> None:
        problem = _reason_of(self, problem, "Give the problem as a text or an exception.")
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class HandlerTimeout(RedriveError):
    """A handler ran longer than `handler_timeout`; its attempt counts as failed.

    Args:
        seconds: the limit in seconds.
        consequence: what happens as a result, added to the error's text.
    """

    def __init__(self, seconds: float, consequence: str = "") -> None:
        super().__init__(seconds, consequence)
        self.seconds = seconds
        self.consequence = consequence

    def __str__(self) -> str:
        text = f"the handler ran for more than {self.seconds:g} s"
        return f"{text}: {self.consequence}" if self.consequence else text


class Retry(RedriveError):
    """Raised by a handler: this attempt failed, try the message again.

    The retry counts against `max_retries`, like any other failure. A lone argument may also be the
    wait: `Retry("5m")`, `Retry(300)`.

    Args:
        reason: why, for the log and, if it was the last retry, for the failed queue: a text or an
            exception.
        after: how long the message waits (a timedelta, a number of seconds, a text such as "5m"),
            or until when (an aware datetime, such as an HTTP Retry-After); None leaves it to the
            policy. A time in the past means at once.

    Raises:
        ConfigurationError: `after` is negative, a time without a time zone, or not a duration, or
            `reason` is not a valid reason or wait. Raised inside the handler, it counts as a failed
            attempt with this error.
    """

    reason: str
    after: timedelta | datetime | None

    def __init__(
        self,
        reason: str | BaseException | timedelta | datetime | float = "",
        after: timedelta | datetime | float | str | None = None,
    ) -> None:
        wait = _wait_of(reason if after is None else after)
        if after is None and wait is not None:
            reason = ""
        elif after is not None and wait is None:
            raise ConfigurationError(
                f"Retry(after={after!r:.200}) was raised, which is not a wait", _WAITS
            )
        self.reason = _reason_of(
            self, reason, f"Give the reason as a text or an exception. As for the wait: {_WAITS}"
        )
        self.after = wait
        super().__init__(self.reason, wait)

    def wait(self, now: datetime) -> timedelta | None:
        """Return how long the message waits; None leaves it to the policy."""
        return (
            max(timedelta(0), self.after - now) if isinstance(self.after, datetime) else self.after
        )

    def __str__(self) -> str:
        return self.reason or "the handler asked for a retry"


class GiveUp(RedriveError):
    """Raised by a handler: set this message aside now, without further retries.

    Args:
        reason: why, for whoever inspects the failed queue: a text or an exception.

    Raises:
        ConfigurationError: `reason` is neither a text nor an exception. Raised inside the handler,
            it counts as a failed attempt with this error.
    """

    reason: str

    def __init__(self, reason: str | BaseException = "") -> None:
        self.reason = _reason_of(self, reason, "Give the reason as a text or an exception.")
        super().__init__(self.reason)

    def __str__(self) -> str:
        return self.reason or "the handler gave up"


class DependencyDown(RedriveError):
    """Raised by a handler: something that it needs is down, so that other messages would fail too.

    The subscription stops taking messages in this process and tries one at a time until one
    succeeds: see `Outage`. On an ordered or a broadcast queue it is a failure like any other.

    Args:
        reason: why, for the log and the failed queue: a text or an exception.
        dependency: what is down: the name of an `Outage` of the subscriber, whose `probe` then
            applies, or any other name.

    Raises:
        ConfigurationError: an argument is invalid. Raised inside the handler, it counts as a failed
            attempt with this error.
    """

    def __init__(self, reason: str | BaseException = "", dependency: str = "") -> None:
        if not isinstance(dependency, str):
            raise ConfigurationError(
                f"DependencyDown(dependency={dependency!r:.200}) was raised", "Give its name."
            )
        self.reason = _reason_of(self, reason, "Give the reason as a text or an exception.")
        self.dependency = redact(dependency)
        super().__init__(self.reason, self.dependency)

    def __str__(self) -> str:
        return self.reason or f"{self.dependency or 'a dependency'} is down"


def text_of(error: BaseException) -> str:
    """Return an exception's text, even if its `str()` fails."""
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - a handler's exception may be and do anything
        return f"<its text is not available: {type(broken).__name__}>"


_WAITS = (
    'Give a timedelta from 0 up, an aware datetime, seconds as a number, or a text such as "5m".'
)


def _wait_of(value: object) -> timedelta | datetime | None:
    """Return the wait that a handler asked for; None if `value` is not a wait."""
    match value:
        case datetime():
            return value if value.tzinfo is not None else None
        case str():
            with contextlib.suppress(NoDuration):
                return parse_duration(value)
        case timedelta() if value >= timedelta(0):
            return value
        case int() | float() if not isinstance(value, bool) and value >= 0:
            with contextlib.suppress(OverflowError):
                return timedelta(seconds=value)
    return None


def _reason_of(error: RedriveError, value: object, remedy: str) -> str:
    """Return the reason that a handler gave; an exception also becomes the error's cause."""
    match value:
        case str():
            return redact(value)
        case BaseException():
            error.__cause__ = value
            return redact(f"{type(value).__name__}: {text_of(value)}".removesuffix(": "))
        case _:
            raise ConfigurationError(
                f"{type(error).__name__}({value!r:.200}) was raised, which is not a reason", remedy
            )
