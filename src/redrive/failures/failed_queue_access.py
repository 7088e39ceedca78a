"""What redrive does at the broker with a failed queue: sends what is in it, deletes, and sets aside
again."""

import threading
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from redrive.errors import BrokerUnavailable
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue_facts import directed, source_of
from redrive.failures.failed_queue_looks import SETTLING, FailedQueueLooks, settled
from redrive.failures.filter import Filter, Predicate, opened
from redrive.failures.look_reporter import LookReporter
from redrive.failures.outcome_watch import (
    Watch,
)
from redrive.failures.removals import Removals
from redrive.failures.requeue import Cancel, Choose, Progress, Requeue, RequeueOptions
from redrive.failures.return_checks import ReturnChecks
from redrive.failures.way_back import WayBack
from redrive.pubsub.blocking.connection import Connector, publishing_connection
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.blocking.publisher import Session
from redrive.pubsub.blocking.tickets import ThreadInFlight
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.in_flight import BulkTicket
from redrive.pubsub.reports import (
    MOST_IDS,
    DiscardReport,
    PublishReport,
    RequeueReport,
)
from redrive.pubsub.transfer.delivery_limit import ReturnLimit
from redrive.pubsub.transfer.pace import check_pace
from redrive.topology import rewrite
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily

_BATCH = 100
_WINDOW = 2000


def restore(
    connector: Connector, exchanges: ExchangeFamily, deliveries: Iterable[Delivery], timeout: float
) -> PublishReport:
    """Publishes copies of failed messages to their failed queues, each confirmed."""
    report = PublishReport()
    many = BulkTicket(report, True, ThreadInFlight())
    session = Session(connector, publishing_connection(connector), None, _WINDOW)
    try:
        session.wait_until_up(timeout)
        left = enumerate(deliveries)
        while batch := [
            (number, _outgoing(one, exchanges, session, many))
            for number, one in islice(left, _BATCH)
        ]:
            _send(connector, session, many, batch, _WINDOW, timeout)
        _send(connector, session, many, [], 1, timeout)
    finally:
        session.close()
    report.failed.sort(key=lambda failed: failed.position)
    return report


def _send(
    connector: Connector,
    session: Session,
    many: BulkTicket[ThreadInFlight],
    batch: list[tuple[int, Outgoing]],
    most_open: int,
    timeout: float,
) -> None:
    many.add(batch)
    session.send([outgoing for _, outgoing in batch])
    if not many.in_flight.wait_until_below(most_open, timeout):
        many.withdraw(lambda outgoing: session.timeout_of(outgoing, timeout))
        raise BrokerUnavailable(
            connector.url.address,
            f"it confirmed nothing for {timeout:g} s",
            "Look at what is in the failed queue now.",
        )


def _outgoing(
    delivery: Delivery,
    exchanges: ExchangeFamily,
    session: Session,
    many: BulkTicket[ThreadInFlight],
) -> Outgoing:
    publish = rewrite.restore(delivery, exchanges, frame_max=session.frame_max)
    name = publish.properties.message_id or ""
    return Outgoing(
        publish.exchange,
        publish.routing_key,
        publish.properties.encode(),
        publish.body,
        name,
        many.settle,
    )


_MANY = 1000
_MOST_ARRIVALS = 100
_MOST_SWEEPS = 2


class FailedQueueAccess(FailedQueueLooks):
    """A failed queue at the broker, as far as one thing is done with it at a time;
    `failed_queue.FailedQueue` adds what people ask of its messages, and jobs.
    """

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
        """
        direction = manner.direction
        check_pace(manner.pace_by_depth, via=direction.via)
        source = source_of(self)
        destination = None if direction.via else direction.to or source.main
        if destination is not None:
            self._check_destination(destination)
        manner = replace(manner, direction=directed(self, direction))
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
            more.duplicate_ids = [*report.duplicate_ids, *more.duplicate_ids][:MOST_IDS]
            return more
        return report

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
        looking = LookReporter(source_of(self).queue, None)
        with self._removing() as removals, self._turn(looking, stop=stop.is_set) as turn:
            total, missing, returns = self._ready_to_take(
                to_return=choose is not None, settling=turn.waited
            )
            looking.begin(total, total, missing)
            report = self._run_alone(
                total, choose, limit, manner, job, on_progress, stop, returns, removals
            )
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
        removals: Removals,
    ) -> RequeueReport:
        run = Requeue(
            self._connector,
            source_of(self),
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
            removals=removals,
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
            source_of(self),
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
            depth = settled(self.depth, depth, SETTLING)
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
    ) -> Watch | ReturnChecks:
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
        main = queue or source_of(self).main
        if main is not None:
            return Watch(self._connector, self._exchanges, [main], job)
        if arrivals and len(arrivals) <= _MOST_ARRIVALS and all(way.exchange for way in arrivals):
            return Watch(self._connector, self._exchanges, [], job, arrivals)
        return ReturnChecks(job, self.depth, self.browse)

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
            self._turn(LookReporter(source_of(self).queue, None)) as turn,
            declaring(self._connector) as declarer,
        ):
            self._depth_alone(declarer, settling=turn.waited)
            return declarer.purge(source_of(self).queue)


def _all(messages: Sequence[FailedMessage]) -> Sequence[bool]:
    return [True] * len(messages)
