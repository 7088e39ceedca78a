"""Every exception of redrive.

    RedriveError
    ├── ConfigurationError      what was asked for can't be: mend the code or the command
    ├── TopologyMismatch        an object on the broker has other arguments than the ones asked for
    ├── BrokerUnavailable       no broker answered, or a lost connection did not come back in time
    ├── PermissionDenied        the broker refused the user, the password or the right
    ├── PublishError            a message was not confirmed
    │   ├── PublishNacked       the broker did not take it now
    │   ├── PublishRefused      the broker will never take it: too large, or a forbidden property
    │   ├── Unroutable          no queue is bound for it, and it was published as mandatory
    │   └── PublishTimeout      no confirm came in time; the broker may have the message or not
    ├── InvalidMessage          a body can't be read as what the handler wants
    ├── HandlerTimeout          a handler ran longer than it may
    ├── Retry                   raised by a handler: try this message again
    └── GiveUp                  raised by a handler: set this message aside now

All of them pickle, and none of them ever holds a password.
"""

import contextlib
from datetime import datetime, timedelta

from redrive.duration_text import NoDuration, format_duration, parse_duration
from redrive.redaction import redact


class RedriveError(Exception):
    """The root of everything that redrive raises."""


class ConfigurationError(RedriveError):
    """What was asked for can't be done as asked.

    Args:
        problem: what was found, and where.
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
    """An exchange or a queue is on the broker with other arguments than the ones asked for.

    Args:
        kind: `queue` or `exchange`.
        name: the object's name.
        argument: the argument that differs, as the broker names it (`x-message-ttl`, `type`, …).
        wanted: the value asked for, as the broker prints it.
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
                "Have `redrive topology apply` declare it (delay_by: policy in its file), and the "
                "subscriber nothing (declare=False)."
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
        address: where it was looked for, without credentials.
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
    """The broker refused the user, the password, the virtual host or a right.

    Args:
        problem: what was refused, in the broker's words where it gave any.
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
    """The broker did not take the message: a full queue that rejects publishes, or a queue that
    fails. It may later."""


class PublishRefused(PublishError):
    """The broker will not take this message however often it is sent: it is too large, or has a
    property that is not allowed."""


class Unroutable(PublishError):
    """No queue is bound for the message's routing key, and it was published as mandatory."""


class PublishTimeout(PublishError):
    """No confirm came in time. Whether the broker has the message is not known: publishing it again
    may duplicate it."""


class InvalidMessage(RedriveError):
    """A body that can't be read as what the handler wants. The message is set aside at once,
    without retries.

    Args:
        problem: what is wrong with the body: a text, or the exception that it is.

    Raises:
        ConfigurationError: `problem` is neither.
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
        seconds: how long it may run.
        consequence: what else is to be said.
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

    The retry counts against `max_retries`, as any other failure does. Given alone, a wait may come
    first: `Retry("5m")`, `Retry(300)`.

    Args:
        reason: why, for the log and for the failed queue should it be the last one: a text, or the
            exception that it is.
        after: how long the message waits (a timedelta, a number of seconds, a text such as "5m"),
            or until when (an aware datetime, such as an HTTP Retry-After); None leaves it to the
            policy. A time that is past means at once.

    Raises:
        ConfigurationError: `after` is negative, a time without a time zone, or no wait, or `reason`
            is neither a reason nor a wait. Raised inside the handler, it is a failed attempt that
            says so.
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
                f"Retry(after={after!r:.200}) was raised, which is no wait", _WAITS
            )
        self.reason = _reason_of(
            self, reason, f"Give the reason as a text or an exception. As for the wait: {_WAITS}"
        )
        self.after = wait
        super().__init__(self.reason, wait)

    def wait(self, now: datetime) -> timedelta | None:
        """How long the message waits; None leaves it to the policy."""
        return (
            max(timedelta(0), self.after - now) if isinstance(self.after, datetime) else self.after
        )

    def __str__(self) -> str:
        return self.reason or "the handler asked for a retry"


class GiveUp(RedriveError):
    """Raised by a handler: set this message aside now, without further retries.

    Args:
        reason: why, for the people who will look at the failed queue: a text, or the exception that
            it is.

    Raises:
        ConfigurationError: `reason` is neither. Raised inside the handler, it is a failed attempt
            that says so.
    """

    reason: str

    def __init__(self, reason: str | BaseException = "") -> None:
        self.reason = _reason_of(self, reason, "Give the reason as a text or an exception.")
        super().__init__(self.reason)

    def __str__(self) -> str:
        return self.reason or "the handler gave up"


def text_of(error: BaseException) -> str:
    """An exception's text, whatever exception it is."""
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - a handler's exception may be and do anything
        return f"<its text can't be made: {type(broken).__name__}>"


_WAITS = (
    'Give a timedelta from zero, or an aware datetime, seconds as a number, or a text such as "5m".'
)


def _wait_of(value: object) -> timedelta | datetime | None:
    """The wait that a handler means; None where it is none."""
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
    """The reason that a handler gives; where it is an exception, that is the error's cause."""
    match value:
        case str():
            return redact(value)
        case BaseException():
            error.__cause__ = value
            return redact(f"{type(value).__name__}: {text_of(value)}".removesuffix(": "))
        case _:
            raise ConfigurationError(
                f"{type(error).__name__}({value!r:.200}) was raised, which is no reason", remedy
            )
