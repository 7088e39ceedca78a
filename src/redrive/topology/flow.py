"""How much flows through a subscription, from what the broker tells of its queues."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from redrive.topology import names


@dataclass(frozen=True, slots=True)
class QueueCount:
    """What the broker tells of a queue. What it does not tell is None: it may collect no
    statistics, be asked of a young queue, or of one whose node is down.

    Rates are messages a second over the last seconds, and None where the broker keeps none. It
    alone can say them: it counts every five seconds, so what two looks of ours differ by is
    nothing, or all of five seconds.

    Args:
        ready: messages that wait.
        held: messages that consumers hold.
        consumers: who consumes.
        published: the rate at which clients publish to it.
        delivered: the rate at which messages are delivered from it, again included.
        acked: the rate at which messages are acked.
        held_growth: by how many more messages are held each second; negative where they become
            fewer.
        dead_lettering: messages that the broker has taken out of a quorum queue to dead-letter
            them, and whose target has not confirmed them. AMQP does not report these.
        held_back: failed messages that the broker itself holds back until their delay is over. AMQP
            does not report these either.
        holds_back: whether it was declared to do so.
        head_published: when the message at its head was published, in seconds since 1970, as its
            publisher says; None where that says nothing. Only classic queues tell.
        hung: handlers that run on though their time is up, as its consumers tell; None where none
            tells.
    """

    ready: int | None = 0
    held: int | None = 0
    consumers: int | None = 0
    published: float | None = 0.0
    delivered: float | None = 0.0
    acked: float | None = 0.0
    held_growth: float = 0.0
    dead_lettering: int | None = 0
    held_back: int | None = 0
    holds_back: bool = False
    head_published: int | None = None
    hung: int | None = None

    @property
    def total(self) -> int | None:
        """All messages that are in it; None where some of them were not counted."""
        return total_of((self.ready, self.held, self.dead_lettering, self.held_back))


@dataclass(frozen=True, slots=True)
class Flow:
    """A subscription at a glance; rates in messages a second, None where the broker keeps none.

    Args:
        queue: the main queue's name.
        main, retry, failed: messages in its queues, those that are held or being dead-lettered
            included; None for a queue that is missing, or was not counted. Where the broker holds
            failed messages back in the main queue, those count as `retry`.
        consumers: who consumes the main queue; None where that is not known.
        rate_in: published to the main queue, requeued ones included.
        rate_done: acked in the main queue, and not republished for a retry: handled or set aside.
        rate_retried: rejected, or republished: failed attempts on their way to the retry queue.
        rate_failed: set aside.
        rate_redriven: taken out of the failed queue.
        dead_lettering: how many in the main and the retry queue are being dead-lettered.
        hung: handlers that run on though their time is up, as the consumers of the main queue tell;
            None where none tells.
        missing: which of the three queues are not there.
    """

    queue: str
    main: int | None
    retry: int | None
    failed: int | None
    consumers: int | None
    rate_in: float | None = None
    rate_done: float | None = None
    rate_retried: float | None = None
    rate_failed: float | None = None
    rate_redriven: float | None = None
    dead_lettering: int | None = 0
    hung: int | None = None
    missing: tuple[str, ...] = ()


def total_of(counts: Iterable[int | None]) -> int | None:
    """The sum of counts; None where one of them is not known."""
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def flows(queues: Mapping[str, QueueCount]) -> list[Flow]:
    """Each subscription, of what the broker tells of all queues."""
    return [_flow(queue, queues) for queue in names.main_queues(queues)]


def on_the_ladder(queues: Mapping[str, QueueCount]) -> int | None:
    """The messages that wait on delay ladders, of all families; None where some were not
    counted."""
    return total_of(count.total for name, count in queues.items() if names.is_of_a_ladder(name))


def _flow(queue: str, queues: Mapping[str, QueueCount]) -> Flow:
    main, retry, failed = (
        queues.get(name) for name in (queue, names.retry_queue(queue), names.failed_queue(queue))
    )
    depth, waiting = _depth(main), _depth(retry)
    if main is not None and main.holds_back:
        depth = total_of((main.ready, main.held, main.dead_lettering))
        waiting = total_of((0 if retry is None else waiting, main.held_back))
    flow = Flow(
        queue,
        depth,
        waiting,
        _depth(failed),
        main.consumers if main is not None else 0,
        dead_lettering=total_of(one.dead_lettering for one in (main, retry) if one is not None),
        hung=main.hung if main is not None else None,
        missing=_missing(main, retry, failed),
    )
    if main is None or failed is None:
        return flow
    # Only a republish is a publish: what the broker itself moves to the retry queue it does not
    # count there.
    republished = retry.published or 0.0 if retry is not None else 0.0
    return replace(
        flow,
        rate_in=_rate(main.published),
        rate_done=_rate(main.acked, -republished),
        rate_retried=_rate(_rejected(main), republished),
        rate_failed=_rate(failed.published),
        rate_redriven=_rate(failed.acked),
    )


def _missing(
    main: QueueCount | None, retry: QueueCount | None, failed: QueueCount | None
) -> tuple[str, ...]:
    """Which of a subscription's queues are not there; it needs no retry queue where the broker
    holds its failed messages back."""
    needs_retry = main is None or not main.holds_back
    places = (("main", main, True), ("retry", retry, needs_retry), ("failed", failed, True))
    return tuple(name for name, count, is_needed in places if count is None and is_needed)


def _rejected(main: QueueCount) -> float | None:
    """RabbitMQ counts no rejects: what was delivered, and neither acked nor kept, was rejected."""
    return (
        None
        if main.delivered is None or main.acked is None
        else main.delivered - main.acked - main.held_growth
    )


def _rate(value: float | None, more: float = 0.0) -> float | None:
    """A rate that is not negative: a node that was restarted counts less than before, and what is
    counted apart is not of one moment."""
    return None if value is None else max(0.0, value + more)


def _depth(count: QueueCount | None) -> int | None:
    return None if count is None else count.total
