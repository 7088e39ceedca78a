"""A failed queue as people handle it: what its messages have failed for, which of them go back, and
how that is proved."""

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.canary import Guards, Unknown
from redrive.failures.edit import Edit
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue_access import FailedQueueAccess
from redrive.failures.failed_queue_facts import directed, source_of
from redrive.failures.filter import Filter, check_plain
from redrive.failures.job import Job, carried_out
from redrive.failures.job_record import JobRecord
from redrive.failures.look_reporter import OnLook
from redrive.failures.message_source import Where, answer_of
from redrive.failures.order import Order
from redrive.failures.plan import Plan, plan_of
from redrive.failures.requeue import Cancel, Progress
from redrive.failures.requeue_job import Notice, OnOutcome
from redrive.topology.durations import Duration, duration_of

if TYPE_CHECKING:
    from redrive.failures.local_journal import LocalJournal


class FailedQueue(FailedQueueAccess):
    """The failed queue of a subscription, or any other queue of failed messages.

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

    def plan(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        to: str | None = None,
        via: bool = False,
        unchecked: bool = False,
        canary: int = 0,
        edit: Edit | None = None,
        patch: str | None = None,
        force: bool = False,
        on_progress: OnLook | None = None,
    ) -> Plan:
        """What `requeue` with the same arguments would send: how many for which cause, the first
        few, which way they go, what stays and why. The messages are looked at, and stay.

        Args:
            where, limit, to, via, unchecked, canary, edit, patch, force: as for `requeue`.
            on_progress: told about ten times a second how far the look is.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or an argument can't be used.
            BrokerUnavailable: the connection was lost.
        """
        order = order_of(
            where,
            limit,
            to=to,
            via=via,
            unchecked=unchecked,
            canary=canary,
            edit=edit,
            patch=patch,
            force=force,
        )
        return plan_order(self, order, on_progress=on_progress)

    def requeue(
        self,
        where: Where = None,
        limit: int | None = None,
        *,
        to: str | None = None,
        via: bool = False,
        unchecked: bool = False,
        rate: float | None = None,
        pace_by_depth: int | None = None,
        canary: int = 0,
        watch: Duration | None = None,
        stop_at: float | None = None,
        unknown: Unknown = Unknown.STOP,
        edit: Edit | None = None,
        patch: str | None = None,
        force: bool = False,
        reason: str = "",
        journal: "LocalJournal | None" = None,
        job: str | None = None,
        on_progress: Progress | None = None,
        on_notice: Notice | None = None,
        cancel: Cancel | None = None,
    ) -> Job:
        """Requeues failed messages to their main queue, each with a fresh retry budget.

        What is in a dead-letter queue goes to the queue that each message failed in, as its
        framework or the broker has noted it, if the topology agrees: the management API is asked. A
        message that says nothing of that, or something that the topology contradicts or can't
        confirm, stays, and is counted in the report.

        Each is published and confirmed before it is acked: at every instant it is in its failed
        queue or confirmed in its main queue. It stops at the depth that it found, so what fails
        again meanwhile stays. What it leaves keeps its order.

        Args:
            where: which: an expression of the filter language, such as `error_type = 'KeyError'`, a
                function that says it of a message, or a `Filter`; None sends all. An expression
                needs `redrive[cli]`.
            limit: how many are sent at most, the oldest first.
            to: another queue that they go to.
            via: whether they are published as they were first, by their exchange and key, in place
                of going to one queue: everything that is bound there gets a copy.
            unchecked: whether messages go, too, whose way back the topology neither confirms nor
                contradicts, or for which the management API could not be asked.
            rate: how many are sent a second, at most.
            pace_by_depth: they are sent only while the queue that they go to has fewer ready
                messages than this. One that waits holds up those behind it.
            canary: how many are sent first; the rest follows only once each of them has succeeded,
                as subscribers of redrive's tell it. Where consumers tell nothing, the rest follows
                if none of them has come back, and `unknown` says so. 0 for none.
            watch: how long the canary is watched at most; as long as its retries would take by
                default.
            stop_at: the share of what was sent that may be failing before it stops, from 0 to 1.
            unknown: what to do if the outcome of some of the canary is unknown when the watch ends.
            edit: makes the body that is sent of a message.
            patch: the text of a JSON patch (RFC 6902) or merge patch (RFC 7386) of the bodies.
            force: whether messages go, too, that were requeued five times before.
            reason: why, for the journal.
            journal: where the job is written down, so that it is seen, and can be taken up again by
                anybody: `Journal(url)` is the team's. None writes nothing down.
            job: an id that each message carries from then on; a UUID where none is given.
            on_progress: told about ten times a second how far it is.
            on_notice: is told, in a sentence, what people may want to know meanwhile; the log is by
                default.
            cancel: once set, it stops; what is on its way is settled first.

        Returns:
            The job: how many were sent and left, which could not be sent, whether it stopped, and
            what can be asked of it from then on.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or an argument can't be used; or the pace is given and the depth of
                a queue can't be read, or `via` leaves unknown which queue it is.
            BrokerUnavailable: the connection was lost and did not come back. What was not confirmed
                is in the failed queue.
        """
        order = order_of(
            where,
            limit,
            to=to,
            via=via,
            unchecked=unchecked,
            rate=rate,
            pace_by_depth=pace_by_depth,
            canary=canary,
            watch=watch,
            stop_at=stop_at,
            unknown=unknown,
            edit=edit,
            patch=patch,
            force=force,
        )
        return carry_out(
            self,
            order,
            plan_order(self, order) if is_looked_at_before(order, journal) else None,
            reason=reason,
            journal=journal,
            job=job,
            on_progress=on_progress,
            on_notice=on_notice,
            cancel=cancel,
        )

    def job(self, id_: str, journal: "LocalJournal") -> Job:
        """A requeue of this queue that a journal has, whoever has begun it, and wherever: to ask
        for its outcome, or to take it up again.

        Args:
            id_: the job's id, or its first characters.
            journal: the journal, such as `Journal(url)`.

        Raises:
            ConfigurationError: there is no such job, or it is another queue's or broker's, or no
                requeue.
        """
        return Job.written_down(self, journal, id_)


def plan_order(
    failed: FailedQueue,
    order: Order,
    messages: Iterable[FailedMessage] | None = None,
    *,
    on_progress: OnLook | None = None,
) -> Plan:
    """What an order would send, as `FailedQueue.plan` tells it.

    Args:
        failed: the failed queue.
        order: the order.
        messages: those of the queue's messages that it is to be said of; None looks at them.
        on_progress: told about ten times a second how far the look is.

    Raises:
        ConfigurationError: there is no such queue, looking would make the broker delete
            messages, or the order can't be carried out.
        BrokerUnavailable: the connection was lost.
    """
    to = order.direction.to
    if to is not None:
        failed._check_destination(to)
    direction = directed(failed, order.direction)
    if messages is not None:
        return plan_of(order, messages, direction=direction)
    plan, look = answer_of(
        failed, lambda look: plan_of(order, look, direction=direction), on_progress=on_progress
    )
    plan.total, plan.missing = look.total, look.missing
    return plan


def carry_out(
    failed: FailedQueue,
    order: Order,
    plan: Plan | None = None,
    *,
    reason: str = "",
    journal: "LocalJournal | None" = None,
    job: str | None = None,
    on_progress: Progress | None = None,
    on_notice: Notice | None = None,
    on_outcome: OnOutcome | None = None,
    cancel: Cancel | None = None,
) -> Job:
    """Requeues what an order says, as `FailedQueue.requeue` does.

    Args:
        failed: the failed queue.
        order: what to do.
        plan: what it would send, as `plan_order` has said it; a canary needs it, and a journal
            to say how many messages it was to send.
        reason, journal, job, on_progress, on_notice, cancel: as for `FailedQueue.requeue`.
        on_outcome: told about ten times a second what is known of what was sent, where a canary
            or a share to stop at has it watched.

    Raises:
        ConfigurationError, BrokerUnavailable: as for `FailedQueue.requeue`.
    """
    source = source_of(failed)
    planned = 0
    if plan is not None:
        planned = plan.count
    elif order.filter.is_all:
        planned = failed.depth() if order.limit is None else min(order.limit, failed.depth())
    if journal is None:
        # SQLite takes a while to load, and whoever only looks needs none.
        from redrive.failures.local_journal import UnsavedJournal

        journal = UnsavedJournal()
    record = JobRecord(
        job or str(uuid.uuid4()),
        "requeue",
        source.name,
        failed._address,
        order.as_json(),
        reason=reason,
        planned=planned,
        plan={} if plan is None or not plan.looked_at else plan.noted(),
        exchanges=failed._exchanges.as_json(),
        literal=source.main is None,
    )
    return carried_out(
        failed,
        journal,
        record,
        order,
        plan,
        on_progress=on_progress,
        on_notice=on_notice,
        on_outcome=on_outcome,
        cancel=cancel,
    )


def is_looked_at_before(order: Order, journal: "LocalJournal | None") -> bool:
    """Whether it has to be known beforehand what an order means: to watch a canary, by which ways
    messages come and go; and for a journal, how many they are."""
    return order.guards.are_up or (journal is not None and not order.filter.is_all)


def order_of(
    where: Where,
    limit: int | None,
    *,
    to: str | None = None,
    via: bool = False,
    unchecked: bool = False,
    rate: float | None = None,
    pace_by_depth: int | None = None,
    canary: int = 0,
    watch: Duration | None = None,
    stop_at: float | None = None,
    unknown: Unknown = Unknown.STOP,
    edit: Edit | None = None,
    patch: str | None = None,
    force: bool = False,
) -> Order:
    """The order that the arguments of `requeue` give.

    Raises:
        ConfigurationError: one of them can't be.
    """
    check_plain("edit", edit)
    if edit is not None and patch is not None:
        raise ConfigurationError("`edit` and `patch` exclude each other", "Give one of them.")
    if stop_at is not None and not 0 <= stop_at <= 1:
        raise ConfigurationError(f"`stop_at` is {stop_at!r}", "Give a share from 0 to 1: 0.05.")
    if canary < 0:
        raise ConfigurationError(f"`canary` is {canary}", "Give how many go first; 0 for none.")
    order = Order(
        where if isinstance(where, Filter) else Filter(where),
        limit,
        to,
        rate,
        Guards(
            canary,
            None if watch is None else duration_of(watch, "watch"),
            stop_at,
            Unknown(unknown),
        ),
        force,
        patch,
        via=via,
        unchecked=unchecked,
        pace_by_depth=pace_by_depth,
        transform=edit,
    )
    _ = order.direction, order.edit()  # what excludes each other is told before anything is read
    return order
