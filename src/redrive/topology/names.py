"""Names of exchanges and queues, and the rules for valid names."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from redrive.amqp.field_table import MAX_SHORT_STRING
from redrive.errors import ConfigurationError
from redrive.topology.durations import Duration, duration_of

RETRY_SUFFIX = "@retry"
FAILED_SUFFIX = "@failed"
DELIVER_SUFFIX = ".deliver"
UNROUTED_SUFFIX = ".unrouted"
CONTROL_SUFFIX = ".control"
TAGS_SUFFIX = "@tags"
PARKED_SUFFIX = "@parked"
JOURNAL = "redrive.journal"
"""The stream that holds the journal of jobs."""
TICK = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_TICK = timedelta(days=1)
_LEVEL = re.compile(r"\.delay(?:-(?P<ms>[0-9]{1,8})ms)?\.[0-9]+")
_LEVEL_AT_THE_END = re.compile(rf"{_LEVEL.pattern}\Z")
_LADDER = re.compile(rf"(?:{re.escape(DELIVER_SUFFIX)}|{_LEVEL.pattern})$")
_OF_TAGS = re.compile(
    rf"(?P<queue>.+){re.escape(TAGS_SUFFIX)}(?P<filter>\.[0-9a-f]{{8}})?", re.DOTALL
)
_KIND = re.compile(r"[A-Za-z0-9_-]{1,60}")
_OF_A_KIND = re.compile(rf"(?P<queue>.+){re.escape(FAILED_SUFFIX)}\.{_KIND.pattern}", re.DOTALL)
MAX_QUEUE_NAME = MAX_SHORT_STRING - len(FAILED_SUFFIX)
"""248 bytes: the name must leave room for `@failed`."""


def retry_queue(queue: str) -> str:
    """Return the name of the queue in which messages of `queue` wait for their next attempt."""
    return queue + RETRY_SUFFIX


def failed_queue(queue: str, kind: str = "") -> str:
    """Return the name of the queue that keeps messages of `queue` that were given up, all or those
    of one kind of error."""
    return f"{queue}{FAILED_SUFFIX}.{kind}" if kind else queue + FAILED_SUFFIX


def queue_of_failed_kind(name: str) -> str | None:
    """Return the main queue of a failed queue for one kind of error, by its name; None if it is not
    one."""
    found = _OF_A_KIND.fullmatch(name)
    return None if found is None else found["queue"]


def failed_kinds(queue: str) -> str:
    """Return the pattern of the routing keys with which messages are set aside in the failed queues
    of `queue` for kinds of errors."""
    return failed_queue(queue, "*")


def check_failed_kind(kind: str) -> None:
    """Raise ConfigurationError unless this can be the kind in the name of a failed queue."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise ConfigurationError(
            f"the failed queue of an error rule is {kind!r:.200}",
            "Give its kind, a word of letters, digits, - and _, such as 'invalid'.",
        )


def parked_stream(queue: str) -> str:
    """Return the name of the stream that says which keys of an ordered queue are parked."""
    return queue + PARKED_SUFFIX


def look_lock(queue: str) -> str:
    """Return the name of the exclusive queue that locks the failed queue of `queue`, so that only
    one process holds its messages."""
    name = f"redrive.look.{queue}"
    return (
        name
        if len(name.encode()) <= MAX_SHORT_STRING
        else f"redrive.look.{hashlib.sha256(queue.encode()).hexdigest()}"
    )


def job_lock(job: str) -> str:
    """Return the name of the exclusive queue that locks a job, so that only one process runs it."""
    return f"redrive.job.{job}.lock"


def tags_pointer(queue: str) -> str:
    """Return the name of the exchange that points to the tag filter of `queue`."""
    return queue + TAGS_SUFFIX


def tags_filter(queue: str, fingerprint: str) -> str:
    """Return the name of the exchange that passes messages with the right tags to `queue`."""
    return f"{tags_pointer(queue)}.{fingerprint}"


def queue_of_filter(exchange: str) -> str | None:
    """Return the queue that an exchange filters tags for, by its name; None if it is not a tag
    filter."""
    found = _OF_TAGS.fullmatch(exchange)
    return found["queue"] if found is not None and found["filter"] else None


def queue_of_pointer(exchange: str) -> str | None:
    """Return the queue whose filter an exchange points to, by its name; None if it is not a
    pointer."""
    found = _OF_TAGS.fullmatch(exchange)
    return found["queue"] if found is not None and not found["filter"] else None


def main_queues(queues: Iterable[str]) -> list[str]:
    """Return the main queues of all retry and failed queues, including missing ones: a lost main
    queue is worth seeing."""
    mains = {
        name.removesuffix(suffix)
        for name in queues
        for suffix in (RETRY_SUFFIX, FAILED_SUFFIX)
        if name.endswith(suffix)
    }
    return sorted(mains - {""})


@dataclass(frozen=True, slots=True, init=False)
class ExchangeFamily:
    """The three topic exchanges that belong together.

    Args:
        main: the exchange that services publish to.
        retry_suffix: appended to `main` for the name of the retry exchange.
        failed_suffix: appended to `main` for the name of the failed exchange.
        tick: the unit of delayed messages, as a timedelta, seconds, or a text such as `1s`; whole
            milliseconds, at most a day.

    Raises:
        ConfigurationError: a name is empty, reserved or too long, or the tick is not in whole
            milliseconds or is out of range.
    """

    main: str
    retry_suffix: str
    failed_suffix: str
    tick: timedelta

    def __init__(
        self,
        main: str = "master",
        retry_suffix: str = ".retry",
        failed_suffix: str = ".failed",
        tick: Duration = TICK,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "main", main)
        set_(self, "retry_suffix", retry_suffix)
        set_(self, "failed_suffix", failed_suffix)
        set_(self, "tick", duration_of(tick, "the tick"))
        for part in (self.main, self.retry_suffix, self.failed_suffix):
            if not isinstance(part, str):
                raise ConfigurationError(
                    f"the exchange name or suffix is {part!r}", "Give a string such as 'master'."
                )
        for name in (self.main, self.retry, self.failed, self.deliver, self.unrouted):
            check_name("exchange", name, MAX_SHORT_STRING)
        if len({self.main, self.retry, self.failed, self.deliver, self.unrouted}) < 5:
            raise ConfigurationError(
                f"two exchanges of {self.main!r} have the same name",
                "Give the retry and the failed exchange different suffixes.",
            )
        if self.tick % _MILLISECOND or not _MILLISECOND <= self.tick <= _LONGEST_TICK:
            raise ConfigurationError(
                f"the tick is {tick!r}", "Give whole milliseconds, at most a day."
            )

    def as_json(self) -> dict[str, object]:
        """Return the family as JSON values."""
        return {
            "main": self.main,
            "retry_suffix": self.retry_suffix,
            "failed_suffix": self.failed_suffix,
            "tick_ms": self.tick // _MILLISECOND,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "ExchangeFamily":
        """Return the family that `as_json` has written.

        Raises:
            ConfigurationError: the values are invalid.
        """
        match values:
            case {
                "main": str(main),
                "retry_suffix": str(retry),
                "failed_suffix": str(failed),
                "tick_ms": int(tick),
            } if tick <= _LONGEST_TICK // _MILLISECOND:
                return cls(main, retry, failed, tick * _MILLISECOND)
            case _:
                raise ConfigurationError(
                    f"the stored exchange family is invalid: {dict(values)!r:.300}",
                    "Give it with --exchange.",
                )

    @property
    def retry(self) -> str:
        """The exchange through which failed attempts go to their retry queue."""
        return self.main + self.retry_suffix

    @property
    def failed(self) -> str:
        """The exchange through which given-up messages go to their failed queue."""
        return self.main + self.failed_suffix

    @property
    def deliver(self) -> str:
        """The exchange through which delayed messages reach their queues."""
        return self.main + DELIVER_SUFFIX

    @property
    def control(self) -> str:
        """The stream of pauses and rates, which workers follow."""
        return self.main + CONTROL_SUFFIX

    @property
    def unrouted(self) -> str:
        """The exchange, and its queue of the same name, for delayed messages whose destination is
        gone."""
        return self.main + UNROUTED_SUFFIX


def level(main: str, number: int, tick: timedelta) -> str:
    """Return the name of the exchange and the queue of a delay ladder's level."""
    own = "" if tick == TICK else f"-{tick // _MILLISECOND}ms"
    return f"{main}.delay{own}.{number}"


def tick_of_level(main: str, name: str) -> timedelta | None:
    """Return the tick of the delay ladder of a main exchange, from the name of one of its levels;
    None if it isn't one."""
    found = _LEVEL.fullmatch(name.removeprefix(main)) if name.startswith(main) else None
    if found is None:
        return None
    return TICK if found["ms"] is None else int(found["ms"]) * _MILLISECOND


def ladder_of_level(name: str) -> str | None:
    """Return the main exchange of a delay ladder, from the name of one of its levels; None if it
    isn't one."""
    found = _LEVEL_AT_THE_END.search(name)
    return None if found is None else name[: found.start()]


def is_of_a_ladder(exchange: str) -> bool:
    """Return whether a message that came through this exchange came down a delay ladder: through a
    level, or the exchange at the end of all levels.

    A binding between exchanges does not change the exchange that a delivery names: it is the one
    that the last queue on its way dead-lettered to.
    """
    return _LADDER.search(exchange) is not None


def family_of(exchange: str | ExchangeFamily) -> ExchangeFamily:
    """Return the family of a main exchange with the usual suffixes; a family is returned as it
    is."""
    return exchange if isinstance(exchange, ExchangeFamily) else ExchangeFamily(exchange)


def check_name(kind: str, name: str, limit: int) -> None:
    """Raise ConfigurationError unless `name` is a valid name for an exchange or a queue of at most
    `limit` bytes."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"the {kind} name is {name!r}", f"Give the {kind} a name.")
    if name.startswith("amq."):
        raise ConfigurationError(
            f"the {kind} name {name!r} begins with 'amq.', which RabbitMQ reserves for itself",
            "Use another name.",
        )
    if any(ord(character) < 32 for character in name):
        raise ConfigurationError(
            f"the {kind} name {name!r} has a control character in it", "Use printable characters."
        )
    check_length(f"the {kind} name", name, limit)


def check_queue_name(name: str) -> None:
    """Raise ConfigurationError unless `name` is a valid name for a subscription's queue."""
    check_name("queue", name, MAX_QUEUE_NAME)
    if not {"*", "#"}.isdisjoint(name.split(".")):
        raise ConfigurationError(
            f"the queue name {name!r} has a word * or #, which would match other queues' messages "
            "when the queue is bound by its name",
            "Use a name without wildcards.",
        )
    for suffix in (RETRY_SUFFIX, FAILED_SUFFIX):
        if name.endswith(suffix):
            raise ConfigurationError(
                f"the queue name {name!r} ends in {suffix!r}, which redrive adds itself",
                f"Name the main queue: {name.removesuffix(suffix)!r}.",
            )


def check_routing_key(key: str) -> None:
    """Raise ConfigurationError unless `key` is a valid routing key or binding pattern."""
    if not isinstance(key, str):
        raise ConfigurationError(
            f"the routing key is a {type(key).__name__}", "Give a string such as 'user.create'."
        )
    check_length("the routing key", key, MAX_SHORT_STRING)


def check_length(what: str, value: str, limit: int = MAX_SHORT_STRING) -> None:
    """Raise ConfigurationError if a text has more than `limit` bytes or is not valid Unicode."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{what} {value!r} is not valid Unicode", "Use characters that UTF-8 can encode."
        ) from error
    if size > limit:
        raise ConfigurationError(
            f"{what} {value[:40]!r}… is {size} bytes; at most {limit} fit", "Use a shorter one."
        )
