"""The public API of a failed queue: causes, plans and requeues."""

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.jobs.job import Job, carried_out, record_of
from redrive.failures.jobs.requeue_job import Notice, OnOutcome
from redrive.failures.message.edit import Edit
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.canary import Guards, Unknown
from redrive.failures.queue.failed_queue_base import FailedQueueBase, directed
from redrive.failures.queue.message_source import Where, answer_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan, plan_of
from redrive.failures.queue.requeue import Cancel, Progress
from redrive.failures.store.filter import Filter, check_plain
from redrive.failures.store.look_reporter import OnLook
from redrive.topology.durations import Duration, duration_of

if TYPE_CHECKING:
    from redrive.failures.jobs.local_journal import LocalJournal


class FailedQueue(FailedQueueBase):
    """The failed queue of a subscription, or any other queue of failed messages.

    Args:
        url: the broker's address, or an aio-pika connection that was made with it.
        queue: the subscription's main queue. If there is no such subscription, the name of a
            dead-letter queue, whichever framework created it.
        exchange: the name of the main exchange, or a whole `ExchangeFamily`.
        timeout: how long to wait without any progress before raising an error.
        connection_name: the connection's name on the broker's management page.
        credentials: called for user and password at each connection, in place of those in the URL.
        ssl_context: an ssl.SSLContext, or a function that makes one at each connection, in place of
            the URL's certificate files.
        management_url: the address of the management API, for what AMQP can't report. By default,
            the broker's host and the usual port.
        literal: whether to use the queue with exactly this name even if a subscription has the same
            name.

    Raises:
        ConfigurationError: an argument is invalid.
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
        """Return what `requeue` with the same arguments would send: how many messages of each
        cause, the first few, where they go, and what stays and why. The messages stay in the queue.

        Args:
            where: as for `requeue`.
            limit: as for `requeue`.
            to: as for `requeue`.
            via: as for `requeue`.
            unchecked: as for `requeue`.
            canary: as for `requeue`.
            edit: as for `requeue`.
            patch: as for `requeue`.
            force: as for `requeue`.
            on_progress: called with the progress of the look, about ten times a second.

        Raises:
            ConfigurationError: there is no such queue, looking would make the broker delete
                messages, or an argument is invalid.
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
        """Requeue failed messages to their main queue, each with a fresh retry budget.

        Messages in a dead-letter queue go to the queue that each failed in, as its framework or the
        broker recorded it, if the topology agrees; redrive asks the management API. A message
        stays, and is counted in the report, if it does not name that queue, or if the topology
        contradicts or can't confirm it.

        Each message is published and confirmed before it is acked, so at every instant it is in its
        failed queue or confirmed in its main queue. Only as many messages are read as were there at
        the start, so those that fail again meanwhile stay. The remaining messages keep their order.

        Args:
            where: which messages: an expression of the filter language, such as
                `error_type = 'KeyError'`, a function that returns whether a message matches, or a
                `Filter`; None sends all. An expression needs `redrive[cli]`.
            limit: how many to send at most, oldest first.
            to: another queue to send them to.
            via: whether to publish them as they were first published, by their exchange and key,
                instead of to one queue; every queue bound there gets a copy.
            unchecked: whether to also send messages whose way back the topology neither confirms
                nor contradicts, or for which the management API could not be asked.
            rate: how many to send per second at most.
            pace_by_depth: send a message only while its destination queue has fewer ready messages
                than this. A message that waits holds up those behind it.
            canary: how many to send first; the rest follow only once redrive's subscribers have
                reported that each of them succeeded. If consumers report nothing, the rest follow
                if none of them came back and `unknown` allows it. 0 for none.
            watch: how long to watch the canary at most; by default, as long as its retries would
                take.
            stop_at: stop once more than this share of the sent messages is failing, from 0 to 1.
            unknown: what to do if outcomes of the canary are still unknown when the watch ends.
            edit: a function that returns the body to send for a message.
            patch: the text of a JSON patch (RFC 6902) or merge patch (RFC 7386) for the bodies.
            force: whether to also send messages that were requeued five times before.
            reason: the reason, for the journal.
            journal: where to record the job, so that anybody can see and resume it: `Journal(url)`
                is the team's. None records nothing.
            job: the id that each message carries from then on; by default, a UUID.
            on_progress: called with the progress, about ten times a second.
            on_notice: called with notices for users, a sentence each; by default, they are logged.
            cancel: once set, the requeue stops after settling the messages in flight.

        Returns:
            The job: how many messages were sent and left, which could not be sent, and whether it
            stopped. It can be asked for outcomes later.

        Raises:
            ConfigurationError: there is no such queue, leaving messages in it would make the broker
                delete them, or an argument is invalid; or `pace_by_depth` is given and a queue's
                depth can't be read, or `via` leaves the queue unknown.
            BrokerUnavailable: the connection was lost and did not come back. Unconfirmed messages
                are still in the failed queue.
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
        """Return a requeue of this queue from a journal, to ask for its outcome or to resume it.

        Somebody else may have begun it, on any machine.

        Args:
            id_: the job's id, or its first characters.
            journal: the journal, such as `Journal(url)`.

        Raises:
            ConfigurationError: there is no such job, it belongs to another queue or broker, or it
                is not a requeue.
        """
        return Job.written_down(self, journal, id_)


def plan_order(
    failed: FailedQueue,
    order: Order,
    messages: Iterable[FailedMessage] | None = None,
    *,
    on_progress: OnLook | None = None,
) -> Plan:
    """Return what an order would send, as `FailedQueue.plan` does.

    Args:
        failed: the failed queue.
        order: the order.
        messages: the queue's messages to plan for; None to look at the queue.
        on_progress: called with the progress of the look, about ten times a second.

    Raises:
        ConfigurationError: there is no such queue, looking would make the broker delete messages,
            or the order can't be carried out.
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
    """Carry out an order, as `FailedQueue.requeue` does.

    A canary needs the plan that `plan_order` returned for it, and a journal records by it how many
    messages were to be sent. `on_outcome` is called with the outcomes so far, about ten times a
    second, if a canary or a share to stop at requires watching them.
    """
    planned = 0
    if plan is not None:
        planned = plan.count
    elif order.filter.is_all:
        planned = failed.depth() if order.limit is None else min(order.limit, failed.depth())
    if journal is None:
        # SQLite takes a while to load, and callers without a journal do not need it.
        from redrive.failures.jobs.local_journal import UnsavedJournal

        journal = UnsavedJournal()
    record = record_of(failed, order, plan, planned, id_=job or str(uuid.uuid4()), reason=reason)
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
    """Return whether an order must be planned before it runs: a canary needs the routes of its
    messages, and a journal their number."""
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
    """Return the order that the arguments of `requeue` describe.

    Raises:
        ConfigurationError: an argument is invalid.
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
    _ = order.direction, order.edit()  # report conflicting options before anything is read
    return order
