"""What redrive does at the broker with a failed queue: looks at it without taking from it, sends
what is in it, deletes, and sets aside again."""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.failures.failed_count import count_failed, held_in
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_source import FailedSource, check_source_name, source_named
from redrive.failures.filter import Filter, Predicate, opened
from redrive.failures.index import forget
from redrive.failures.look import Look, Recall
from redrive.failures.look_keeper import LookKeeper
from redrive.failures.look_lock import Turn
from redrive.failures.look_progress import Looking, OnLook
from redrive.failures.message_source import MessageSource
from redrive.failures.outcome_watch import (
    Watch,
    Whereabouts,
    heard,
    listen,
    retry_delay,
    whereabouts,
)
from redrive.failures.requeue import Cancel, Choose, Progress, Requeue, RequeueOptions
from redrive.failures.restore import restore
from redrive.failures.return_looks import ReturnLooks
from redrive.failures.return_safety import return_limit
from redrive.failures.way_back import WayBack
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import Declarer, Depth, declaring
from redrive.pubsub.reports import (
    DiscardReport,
    LookProgress,
    LookStage,
    PublishReport,
    RequeueReport,
)
from redrive.pubsub.service_connection import Address
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.transfer.last_life import ReturnLimit
from redrive.pubsub.transfer.pace import check_pace
from redrive.pubsub.transfer.queue_reader import AHEAD, QueueReader, surely_back
from redrive.pubsub.url import Credentials, seconds_of
from redrive.topology.durations import Duration
from redrive.topology.headers import Delivery
from redrive.topology.model import Queue
from redrive.topology.names import FAILED_SUFFIX, ExchangeFamily, failed_queue, family_of
from redrive.topology.outcome_events import Outcomes

logger = logging.getLogger("redrive")

_MANY = 1000
_MOST_ARRIVALS = 100
_BETWEEN_LOOKS = 0.02
_SETTLING = 0.3
_MOST_SWEEPS = 2
_ALL_BACK = 0.05
"""Seconds in which a broker that is still returning what somebody has left returns some of it."""
_RETURNED_WITHIN = 3.0
"""Seconds after which a queue that still grows has new failures, and nothing that somebody
returned."""
_OTHERS_LEAVE = 5.0
"""Seconds that another consumer is waited for: a broker takes a moment to see that a process was
killed, and returns what it held."""


class FailedQueueAccess(MessageSource):
    """A failed queue at the broker, as far as one thing is done with it at a time;
    `failed_queue.FailedQueue` adds what people ask of its messages, and jobs.

    Args:
        url: the broker's address, or a connection of aio-pika's that was made with it.
        queue: the subscription's main queue; where there is no such subscription, the name of a
            dead-letter queue, whichever framework made it.
        exchange: the main exchange, or a whole family.
        timeout: how long nothing may move before it is an error.
        connection_name: what the broker's management page shows.
        credentials: asked for user and password at each connection, in place of the URL's.
        ssl_context: an ssl.SSLContext, or a function that makes one at each connection, in place of
            the URL's certificate files.
        management_url: where the management API is, for what AMQP can't tell; the broker's host and
            the usual port by default.
        literal: whether the queue of this very name is meant, though a subscription is called so,
            too.

    Raises:
        ConfigurationError: an argument can't be.
    """

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
        self._source: FailedSource | None = None
        self._connector = Connector(
            url, connection_name or default_name("failed queue", queue), credentials, ssl_context
        )
        self._timeout = seconds_of(timeout)
        self._management_url = management_url

    @property
    def address(self) -> str:
        """The broker's address, without credentials."""
        return self._connector.url.address

    def is_of(self, name: str) -> bool:
        """Whether a job that is of this queue has it by that name: a subscription's main queue, or
        a dead-letter queue."""
        return name == self._name or name == self.source().name

    def source(self) -> FailedSource:
        """Which queue was taken: a subscription's failed queue, or another.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable, PermissionDenied: the broker can't be reached.
        """
        if self._source is None:
            with declaring(self._connector) as declarer:
                return self._source_on(declarer)
        return self._source

    def depth(self) -> int:
        """How many messages are ready in the failed queue.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable, PermissionDenied: the broker can't be reached.
        """
        with declaring(self._connector) as declarer:
            return self._depth(declarer)

    def consumers(self) -> int:
        """How many consumers the queue has; none of them is redrive's while nobody looks at it.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable, PermissionDenied: the broker can't be reached.
        """
        with declaring(self._connector) as declarer:
            return self._look(declarer).consumers

    def count(self) -> Depth | None:
        """How many messages are in the failed queue, those included that somebody holds who looks
        at them; None without such a queue.

        Held ones are told by the management API, up to five seconds late. Where it does not answer,
        and somebody holds some, how many these are is unknown (`held` is None).

        Raises:
            BrokerUnavailable, PermissionDenied: the broker can't be reached.
        """
        with declaring(self._connector) as declarer:
            source = self._find(declarer)
            if source is None:
                return None
            return count_failed(declarer, self._connector, source, self._management_url)

    def browse(
        self,
        limit: int | None = None,
        *,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> Generator[FailedMessage, None, None]:
        """Shows the messages from the oldest on, and leaves each where it is.

        While it runs the messages are held back from other consumers. When it ends, or the iterator
        is closed, they are all in the queue again, in their order. One look at a queue is made at a
        time: it waits for that of another.

        A quorum queue keeps its order only if all that was returned to it before is held. So a look
        that is limited, or left in its middle, holds the messages behind too, if they were looked
        at before. It does not if it is interrupted by Ctrl-C.

        Args:
            limit: how many at most; None for all that are there when it begins.
            on_progress: told about ten times a second how far it is.
            patience: how long another's look is waited for; the queue's
                timeout by default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or another's look did not end.
            BrokerUnavailable: the connection was lost.
        """
        return self._browse(limit, Looking(self.source().queue, on_progress), patience)

    @contextlib.contextmanager
    def look(
        self,
        look_at: int | None = None,
        *,
        recall: Recall | None = None,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> Iterator[Look]:
        """Look at the messages for as long as the block: `with failed.look() as look`. They are
        held back from other consumers meanwhile, as `browse` says.

        Args:
            look_at: how many of the oldest; None for all that are there when it begins.
            recall: how an earlier look may answer; None looks at the queue, and keeps nothing.
            on_progress: told about ten times a second how far it is.
            patience: how long another's look is waited for; the queue's timeout by default.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or another's look did not end.
            BrokerUnavailable: the connection was lost.
        """
        name = self.source().queue
        keeper = None if recall is None else LookKeeper(self._connector.url, name, recall)
        former = None if keeper is None else self._former(keeper, look_at, on_progress)
        if former is not None:
            yield former
            return
        look = Look(name)
        messages = self._browse(look_at, Looking(name, on_progress, look.note), patience)
        look.messages = look.counted(messages)
        with contextlib.ExitStack() as held:
            if keeper is not None and look_at is None:
                held.enter_context(keeper.keeping(look))
            try:
                yield look
            except (KeyboardInterrupt, SystemExit) as interrupt:
                # Who interrupts wants to leave at once.
                with contextlib.suppress(StopIteration, type(interrupt)):
                    messages.throw(interrupt)
                raise
            finally:
                messages.close()
                look.as_of = datetime.now(UTC)

    def _former(
        self, keeper: LookKeeper, limit: int | None, on_progress: OnLook | None
    ) -> Look | None:
        """The earlier look that answers, with how many messages there are now; None where the queue
        has to be looked at."""
        look = keeper.answer(limit)
        if look is None:
            return None
        try:
            depth = self.count()
        except BrokerUnavailable as error:
            look.depth_problem = str(error).partition("\n")[0]
        else:
            if depth is None:
                # There is no such queue any more; to look at it says so.
                forget(self._connector.url, look.name)
                return None
            look.depth_now = depth.total
        if on_progress is not None:
            on_progress(LookProgress(LookStage.LOOKING, look.total, look.looked_at))
        return look

    def _browse(
        self, limit: int | None, looking: Looking, patience: Duration | None
    ) -> Generator[FailedMessage, None, None]:
        source = self.source()
        with self._turn(looking, patience=patience) as turn:
            depth, missing, returns = self._ready_to_take(to_return=True, settling=turn.waited)
            count = depth if limit is None else max(0, min(depth, limit))
            looking.begin(depth, count, missing, None if returns is None else returns.returns)
            looked_at = 0
            if not count:
                looking.end(looked_at, missing)
                return
            taking = QueueReader(
                self._connector,
                source.queue,
                prefetch=None,
                most=count,
                expected=count,
                whole=depth,
                ahead=AHEAD,
                returning=looking.returning,
                comes_back=False,
                limit=returns,
            )
            try:
                with taking:
                    for _ in range(count):
                        item = taking.next(self._timeout, empty=self._is_empty)
                        if item is None:
                            missing = None if missing is None else missing + count - looked_at
                            break
                        looked_at += 1
                        looking.looked_at(looked_at)
                        yield source.message_of(item.received)
            finally:
                if taking.held:
                    self._wait_until_back(depth, taking.held)
            looking.end(looked_at, missing)

    def _send(
        self,
        where: Filter | str | Predicate | None,
        limit: int | None,
        manner: RequeueOptions,
        job: str,
        on_progress: Progress | None,
        cancel: Cancel | None,
    ) -> RequeueReport:
        """Sends messages to where they failed, each with a fresh retry budget: one step of a job.

        Each is published and confirmed before it is acked: at every instant it is in its failed
        queue or confirmed in its main queue. It stops at the depth that it found, so what fails
        again meanwhile stays. What it leaves keeps its order.

        Args:
            where: which, as for `FailedQueue.requeue`.
            limit: how many are sent at most, the oldest first.
            manner: how, and where to.
            job: an id that each message carries from then on.
            on_progress: told about ten times a second how far it is.
            cancel: once set, it stops; what is on its way is settled first.

        Returns:
            How many were sent and left, and which could not be sent.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or the expression can't be used; or the pace is given and the depth of
                a queue can't be read, or the way by the first exchange leaves unknown which it is.
            BrokerUnavailable: the connection was lost and did not come back. What was not confirmed
                is in the failed queue.
        """
        direction = manner.direction
        check_pace(manner.pace_by_depth, via=direction.via)
        source = self.source()
        destination = None if direction.via else direction.to or source.main
        if destination is not None:
            self._check_destination(destination)
        with opened(where) as choose:
            # Where some may have no way back, all is held: what stays would be in the way.
            all_held = choose or (None if destination is not None else _all)
            report = self._run(all_held, limit, manner, job, on_progress, cancel)
        left = None if limit is None else limit - report.requeued
        if (
            all_held is None
            and report.too_often
            and not report.cancelled
            and (left or report.not_tried)
        ):
            # What stays was in the way of what is behind it: once more, with all of it held.
            more = self._run(_all, left, manner, job, on_progress, cancel)
            more.requeued += report.requeued
            more.possible_duplicates += report.possible_duplicates
            return more
        return report

    def _check_destination(self, queue: str) -> None:
        """Raises ConfigurationError if there is no such queue to requeue messages to, as far as the
        user may ask."""
        with declaring(self._connector) as declarer:
            if not declarer.may_exist(Queue(queue)):
                raise ConfigurationError(
                    f"there is no queue {queue!r} to requeue messages to",
                    "Check the name, or declare it: redrive declare.",
                )

    def discard(
        self,
        where: Filter | str | Predicate | None = None,
        limit: int | None = None,
        *,
        on_progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> DiscardReport:
        """Deletes failed messages, for good. What it leaves keeps its order.

        Args:
            where: which, as for `requeue`; None deletes all.
            limit: how many at most, the oldest first.
            on_progress: told about ten times a second how far it is.
            cancel: once set, it stops.

        Returns:
            How many were deleted and left.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or the expression can't be used.
            BrokerUnavailable: the connection was lost and did not come back.
        """
        with opened(where) as choose:
            report = self._run(
                choose, limit, RequeueOptions(discards=True), None, on_progress, cancel
            )
        return DiscardReport(report.requeued, report.skipped, report.cancelled, report.held)

    def _run(
        self,
        choose: Choose | None,
        limit: int | None,
        manner: RequeueOptions,
        job: str | None,
        on_progress: Progress | None,
        cancel: Cancel | None,
    ) -> RequeueReport:
        stop = cancel or threading.Event()
        looking = Looking(self.source().queue, None)
        with self._forgetting(), self._turn(looking, stop=stop.is_set) as turn:
            total, missing, returns = self._ready_to_take(
                to_return=choose is not None, settling=turn.waited
            )
            looking.begin(total, total, missing)
            report = self._run_alone(total, choose, limit, manner, job, on_progress, stop, returns)
        if limit is None or report.requeued < limit:
            report.held = missing
        return report

    def _run_alone(
        self,
        total: int,
        choose: Choose | None,
        limit: int | None,
        manner: RequeueOptions,
        job: str | None,
        on_progress: Progress | None,
        cancel: Cancel,
        returns: ReturnLimit | None,
    ) -> RequeueReport:
        run = Requeue(
            self._connector,
            self.source(),
            total=total,
            choose=choose,
            manner=manner,
            limit=limit,
            job=job or str(uuid.uuid4()),
            on_progress=on_progress,
            cancel=cancel,
            timeout=self._timeout,
            empty=self._is_empty,
            returns=returns,
        )
        report = run.run()
        left = report.skipped + len(report.failed)
        self._wait_until_back(left)
        if choose is not None and run.confirmed:
            # Only there is the queue held, and acked one by one.
            report.possible_duplicates += self._swept(
                run.confirmed, total - report.requeued, settling=left > _MANY
            )
        run.settle()
        return report

    def _swept(self, confirmed: frozenset[str], should_be_left: int, *, settling: bool) -> int:
        """Takes out what is confirmed in its main queue and is in the failed queue all the same;
        how many that may have failed for."""
        found = 0
        for _ in range(_MOST_SWEEPS):
            if not self._is_more_than(should_be_left, settling=settling):
                return 0
            found = self._sweep(confirmed)
            if not found:
                return 0  # what is more than should be has failed since
        return found

    def _sweep(self, confirmed: frozenset[str]) -> int:
        """Acks once more what is confirmed in its main queue; how many these were.

        A quorum queue that is busy leaves acks with the channel, and they go with it. Source:
        measured on RabbitMQ 4.3.6, 2,000 of 13,000 single acks.
        """
        total, _, returns = self._ready_to_take(to_return=True, settling=True)
        sweep = Requeue(
            self._connector,
            self.source(),
            total=total,
            choose=lambda messages: [False] * len(messages),
            manner=RequeueOptions(),
            limit=None,
            job=str(uuid.uuid4()),
            on_progress=None,
            cancel=threading.Event(),
            timeout=self._timeout,
            empty=self._is_empty,
            returns=returns,
            confirmed=confirmed,
        )
        self._wait_until_back(sweep.run().skipped)
        return sweep.acked_again

    def _is_more_than(self, count: int, *, settling: bool) -> bool:
        """Whether more messages are in the queue than should be; a queue that takes many back does
        so for a while."""
        depth = self.depth()
        if settling:
            depth = _settled(self.depth, depth, _SETTLING)
        return depth > count

    def restore(self, deliveries: Iterable[Delivery]) -> PublishReport:
        """Sets failed messages aside again, from a copy of them. Each is confirmed in the failed
        queue before this returns.

        Args:
            deliveries: the messages, as they were in the failed queue; of this queue.

        Returns:
            How many were confirmed, and which were not.

        Raises:
            ConfigurationError: there is no such queue.
            BrokerUnavailable: no broker answered.
        """
        self.depth()
        with self._forgetting():
            return restore(self._connector, self._exchanges, deliveries, self._timeout)

    def watch(
        self, job: str, queue: str | None = None, arrivals: Collection[WayBack] = ()
    ) -> Watch | ReturnLooks:
        """Counts what becomes of a job's messages for as long as the block.

        Args:
            job: the job's id.
            queue: the main queue that they are sent to; None for their own.
            arrivals: by which exchanges and keys they came to a dead-letter queue: what fails again
                comes by the same. Where one is the default exchange, or there are none, it is
                looked for in the queue itself.

        Raises (on entering):
            PermissionDenied: the user may not declare a queue to watch through.
            BrokerUnavailable: no broker answered.
        """
        main = queue or self.source().main
        if main is not None:
            return Watch(self._connector, self._exchanges, [main], job)
        if arrivals and len(arrivals) <= _MOST_ARRIVALS and all(way.exchange for way in arrivals):
            return Watch(self._connector, self._exchanges, [], job, arrivals)
        return ReturnLooks(job, self.depth, self.browse)

    @property
    def exchanges(self) -> ExchangeFamily:
        """The exchange family."""
        return self._exchanges

    def whereabouts(self, queue: str | None = None) -> Whereabouts:
        """How much is in the queues of a subscription, and who consumes its main queue.

        Args:
            queue: the main queue; None for this one.

        Raises:
            BrokerUnavailable: no broker answered.
        """
        source = self.source()
        return whereabouts(self._connector, queue or source.main or source.queue)

    def retry_delay(self, queue: str | None = None) -> timedelta | None:
        """How long a subscription's retry queue holds a message; None where there is none, or this
        user is not told.

        Args:
            queue: the main queue; None for this one.

        Raises:
            BrokerUnavailable: no broker answered.
        """
        main = queue or self.source().main
        return None if main is None else retry_delay(self._connector, main)

    def listen(self, job: str) -> None:
        """From now on what subscribers tell of a job's messages is kept, for `heard`.

        Raises:
            PermissionDenied: the user may not declare a queue for it.
            BrokerUnavailable: no broker answered.
        """
        listen(self._connector, self._exchanges, job)

    def heard(self, job: str) -> list[Outcomes]:
        """What subscribers have told of a job's messages since this was asked last.

        Raises:
            PermissionDenied: the user may not read it.
            BrokerUnavailable: no broker answered.
        """
        return list(heard(self._connector, job))

    def purge(self) -> int:
        """Deletes all messages of the failed queue that are ready, for good. Those that somebody
        looks at are waited for.

        Returns:
            How many.

        Raises:
            ConfigurationError: there is no such queue, or another's look did not end.
            PermissionDenied: the user may not.
        """
        with (
            self._forgetting(),
            self._turn(Looking(self.source().queue, None)) as turn,
            declaring(self._connector) as declarer,
        ):
            self._depth_alone(declarer, settling=turn.waited)
            return declarer.purge(self.source().queue)

    @contextlib.contextmanager
    def _forgetting(self) -> Iterator[None]:
        """What an earlier look has found is not true after the block. It is dropped before it, too:
        this process may be killed in it."""
        queue = self.source().queue
        forget(self._connector.url, queue)
        try:
            yield
        finally:
            forget(self._connector.url, queue)

    def __repr__(self) -> str:
        taken = self._source.queue if self._source is not None else self._name
        return f"<{type(self).__name__} {self._connector.url.address} {taken!r}>"

    def _find(self, declarer: Declarer) -> FailedSource | None:
        if self._source is None:
            self._source = source_named(self._name, declarer, literal=self._is_literal)
        return self._source

    def _source_on(self, declarer: Declarer) -> FailedSource:
        source = self._find(declarer)
        if source is None:
            # What an earlier look has kept of it is no answer any more.
            for queue in {failed_queue(self._name.removesuffix(FAILED_SUFFIX)), self._name}:
                forget(self._connector.url, queue)
            raise self._missing()
        return source

    def _missing(self) -> ConfigurationError:
        failed = failed_queue(self._name.removesuffix(FAILED_SUFFIX))
        address = self._connector.url.address
        if self._is_literal:
            return ConfigurationError(
                f"there is no queue {self._name!r} at {address}",
                "Check the name, and the virtual host.",
            )
        return ConfigurationError(
            f"there is no queue {failed!r} at {address}, and no dead-letter queue {self._name!r}",
            "Check the name of the main queue, the virtual host, and whether it was declared.",
        )

    def _look(self, declarer: Declarer) -> Depth:
        depth = declarer.depth(self._source_on(declarer).queue)
        if depth is None:
            raise self._missing()
        return depth

    def _depth(self, declarer: Declarer) -> int:
        return self._look(declarer).messages

    def _turn(
        self,
        looking: Looking,
        *,
        patience: Duration | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Turn:
        """The right to hold messages of it, which nobody else has meanwhile."""
        return Turn(
            self._connector,
            self.source(),
            management_url=self._management_url,
            patience=self._timeout if patience is None else seconds_of(patience),
            waiting=looking.waiting,
            stop=stop,
        )

    def _depth_alone(self, declarer: Declarer, *, settling: bool) -> tuple[int, int | None]:
        """The depth once no other consumer holds any of it, or has not left for a while; and how
        much such a one holds, None if unknown.

        Args:
            declarer: asks.
            settling: whether somebody held some a moment ago, who may have died: a broker returns
                that in pieces.
        """
        deadline = time.monotonic() + _OTHERS_LEAVE
        while (depth := self._look(declarer)).consumers and time.monotonic() < deadline:
            settling = True
            time.sleep(_BETWEEN_LOOKS)
        if depth.consumers:
            held = held_in(self.source().queue, depth, self._connector, self._management_url)
            return depth.messages, held
        return _settled(
            lambda: self._depth(declarer), depth.messages, _SETTLING if settling else _ALL_BACK
        ), 0

    def _ready_to_take(
        self, *, to_return: bool, settling: bool
    ) -> tuple[int, int | None, ReturnLimit | None]:
        """The depth, what others hold, and how often the queue takes a message back; where some
        will be returned, only if the broker deletes none for it."""
        with declaring(self._connector) as declarer:
            self._look(declarer)
            returns = (
                return_limit(
                    declarer, self._source_on(declarer), self._connector, self._management_url
                )
                if to_return
                else None
            )
            return *self._depth_alone(declarer, settling=settling), returns

    def _wait_until_back(self, count: int, held: int | None = None) -> None:
        """Waits until so many are ready: a quorum queue has what was returned a moment after the
        connection is closed.

        Not for long: another consumer may have taken some meanwhile.

        Args:
            count: how many there must be.
            held: how many of them were held; all of them by default.
        """
        if not count:
            return
        deadline = time.monotonic() + surely_back(count if held is None else held)
        # A broker that is gone has returned everything too.
        with contextlib.suppress(RedriveError), declaring(self._connector) as declarer:
            while count > self._depth(declarer) and time.monotonic() < deadline:
                time.sleep(_BETWEEN_LOOKS)

    def _is_empty(self) -> bool:
        try:
            return self.depth() == 0
        except BrokerUnavailable:  # then nobody knows; who reads the queue waits for the broker
            return False


def _all(messages: Sequence[FailedMessage]) -> Sequence[bool]:
    return [True] * len(messages)


def _settled(depth: Callable[[], int], seen: int, pause: float) -> int:
    """The depth of a queue once it grows no more, or for so long that what comes is new.

    Args:
        depth: asks for it.
        seen: what it was.
        pause: seconds until it is asked for the first time.
    """
    deadline = time.monotonic() + _RETURNED_WITHIN
    while True:
        time.sleep(pause)
        before, seen = seen, depth()
        if seen <= before or time.monotonic() > deadline:
            return seen
        pause = _SETTLING
