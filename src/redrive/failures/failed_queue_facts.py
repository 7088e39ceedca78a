"""Find a queue of failed messages, and read what the broker knows about it."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.failures.direction import Direction
from redrive.failures.failed_count import count_failed
from redrive.failures.failed_source import (
    FailedSource,
    check_source_name,
    no_such_queue,
    source_named,
)
from redrive.failures.index import forget, indexes_of
from redrive.failures.outcome_watch import (
    MessageCounts,
    heard,
    listen,
    retry_delay,
    whereabouts,
)
from redrive.failures.removals import Removals
from redrive.failures.route import Judge
from redrive.failures.route_survey import going_on, judge_at
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import Declarer, Depth, declaring
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials, seconds_of
from redrive.topology.durations import Duration
from redrive.topology.model import Queue
from redrive.topology.names import FAILED_SUFFIX, ExchangeFamily, failed_queue, family_of
from redrive.topology.outcome_events import Outcomes


class FormerNames:
    """Former names of methods that services no longer need, kept for one more release."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            kind = type(self).__name__
            if name not in ("heard", "listen"):
                raise AttributeError(
                    f"{kind!r} object has no attribute {name!r}", name=name, obj=self
                )
            warnings.warn(
                f"{kind}.{name} will be removed in the next release: `requeue(journal=…)` keeps "
                "what subscribers report, and `job.outcome()` counts it",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(self, f"_{name}")


class FailedQueueFacts(FormerNames):
    """A queue of failed messages, as the broker knows it; see `FailedQueue` for the arguments."""

    def __init__(
        self,
        url: Address,
        queue: str,
        exchange: str | ExchangeFamily = "master",
        *,
        timeout: Duration = 60.0,
        connection_name: str | None = None,
        credentials: Credentials | None = None,
        ssl_context: ContextSource | None = None,
        management_url: str | None = None,
        literal: bool = False,
    ) -> None:
        check_source_name(queue)
        self._exchanges = family_of(exchange)
        self._name = queue
        self._is_literal = literal
        self._taken: FailedSource | None = None
        self._connector = Connector(
            url, connection_name or default_name("failed queue", queue), credentials, ssl_context
        )
        self._timeout = seconds_of(timeout)
        self._management_url = management_url

    def depth(self) -> int:
        """Return the number of ready messages in the failed queue.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
        """
        with declaring(self._connector) as declarer:
            return self._depth(declarer)

    def count(self) -> Depth | None:
        """Return how many messages are in the failed queue, including those held by a look; None if
        there is no such queue.

        The management API reports held messages, up to five seconds late. If it does not answer
        while messages are held, their number is unknown (`held` is None).

        Raises:
            BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
        """
        with declaring(self._connector) as declarer:
            source = self._find(declarer)
            if source is None:
                return None
            return count_failed(declarer, self._connector, source, self._management_url)

    @property
    def _address(self) -> str:
        """The broker's address, without credentials."""
        return self._connector.url.address

    def _is_of(self, name: str) -> bool:
        """Return whether a job's queue name, of a main queue or a dead-letter queue, refers to this
        queue."""
        return name == self._name or name == source_of(self).name

    def _retry_delay(self, queue: str | None = None) -> timedelta | None:
        """Return how long the retry queue of a main queue, by default its own, holds a message;
        None if there is no such queue or the user may not read it."""
        main = queue or source_of(self).main
        return None if main is None else retry_delay(self._connector, main)

    def _listen(self, job: str) -> None:
        """Record what subscribers report about a job's messages from now on, for `_heard`."""
        listen(self._connector, self._exchanges, job)

    def _heard(self, job: str) -> list[Outcomes]:
        """Return what subscribers have reported about a job's messages since the last call."""
        return list(heard(self._connector, job))

    def __repr__(self) -> str:
        taken = self._taken.queue if self._taken is not None else self._name
        return f"<{type(self).__name__} {self._connector.url.address} {taken!r}>"

    def _find(self, declarer: Declarer) -> FailedSource | None:
        if self._taken is None:
            self._taken = source_named(self._name, declarer, literal=self._is_literal)
        return self._taken

    def _source_on(self, declarer: Declarer) -> FailedSource:
        source = self._find(declarer)
        if source is None:
            # What an earlier look has kept is no longer valid.
            for queue in {failed_queue(self._name.removesuffix(FAILED_SUFFIX)), self._name}:
                forget(self._connector.url, queue)
            raise self._missing()
        return source

    def _missing(self) -> ConfigurationError:
        return no_such_queue(self._name, self._address, literal=self._is_literal)

    def _counted(self, declarer: Declarer) -> Depth:
        depth = declarer.depth(self._source_on(declarer).queue)
        if depth is None:
            raise self._missing()
        return depth

    def _depth(self, declarer: Declarer) -> int:
        return self._counted(declarer).messages

    def _is_empty(self) -> bool:
        try:
            return self.depth() == 0
        except BrokerUnavailable:  # unknown; the reader waits for the broker
            return False

    def _check_destination(self, queue: str) -> None:
        """Raise ConfigurationError if the destination queue does not exist; pass if the user may
        not check."""
        with declaring(self._connector) as declarer:
            if not declarer.may_exist(Queue(queue)):
                raise ConfigurationError(
                    f"there is no queue {queue!r} to requeue messages to",
                    "Check the name, or declare it: redrive declare.",
                )

    @contextlib.contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Drop what an earlier look has kept: after the block, because it is outdated, and before
        it, in case this process is killed."""
        queue = source_of(self).queue
        forget(self._connector.url, queue)
        try:
            yield
        finally:
            forget(self._connector.url, queue)

    @contextlib.contextmanager
    def _removing(self) -> Iterator[Removals]:
        """Record in the index which messages the block removes."""
        with Removals(indexes_of(self._connector.url), source_of(self).queue) as removals:
            yield removals


def source_of(failed: FailedQueueFacts) -> FailedSource:
    """Return the queue that was found: a subscription's failed queue, or another one.

    Raises:
        ConfigurationError: there is no such queue.
        BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
    """
    if failed._taken is None:
        with declaring(failed._connector) as declarer:
            return failed._source_on(declarer)
    return failed._taken


def directed(failed: FailedQueueFacts, direction: Direction) -> Direction:
    """Return the direction with a judge that knows the broker's topology, if it needs one.

    Raises:
        ConfigurationError: there is no such queue.
        BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
    """
    if not direction.asks_the_broker or source_of(failed).main is not None:
        return direction
    return replace(direction, judge=judge_at(failed._connector, failed._management_url))


def consumers_of(failed: FailedQueueFacts) -> int:
    """Return how many consumers the queue has; redrive is one of them only during a look.

    Raises:
        ConfigurationError: there is no such queue.
        BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
    """
    with declaring(failed._connector) as declarer:
        return failed._counted(declarer).consumers


def whereabouts_of(
    failed: FailedQueueFacts, queue: str | None = None, judge: Judge | None = None
) -> MessageCounts:
    """Return the depths of a subscription's queues, and the consumers of its main queue.

    Args:
        failed: the failed queue.
        queue: the main queue; None for the failed queue's own.
        judge: knows the topology; None to ask the broker if necessary.

    Raises:
        BrokerUnavailable: no broker answered.
    """
    source = source_of(failed)
    found = whereabouts(failed._connector, queue or source.main or source.queue)
    return going_on(found, lambda: judge or judge_at(failed._connector, failed._management_url))
