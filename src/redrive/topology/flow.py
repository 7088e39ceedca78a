"""Compute how many messages flow through a subscription from the broker's queue statistics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from redrive.topology import names


@dataclass(frozen=True, slots=True)
class QueueCount:
    """The broker's statistics of one queue. A value is None if the broker does not report it: it
    may collect no statistics, or the queue may be new or its node down.

    Rates are messages per second over the last few seconds, and None if the broker keeps none. Only
    the broker can provide them: it counts every five seconds, so the difference between two
    readings of ours is zero, or covers all of five seconds.

    Args:
        ready: messages that wait.
        held: messages that consumers hold.
        consumers: number of consumers.
        published: the rate at which clients publish to it.
        delivered: the rate at which messages are delivered from it, including redeliveries.
        acked: the rate at which messages are acked.
        held_growth: by how many the held messages grow each second; negative if they shrink.
        dead_lettering: messages that the broker has taken out of a quorum queue to dead-letter
            them, and whose target has not confirmed them yet. AMQP does not report these.
        held_back: failed messages that the broker itself holds back until their delay is over. AMQP
            does not report these either.
        holds_back: whether the queue was declared to hold failed messages back.
        head_published: when the message at its head was published, in seconds since 1970, according
            to its publisher; None if unknown. Only classic queues report it.
        hung: handlers that still run after their timeout, as reported by the queue's consumers;
            None if none reports it.
        down: what is down, as reported by the queue's consumers.
        paused: who has paused it, why, since when and until when; empty if nobody has.
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
    down: tuple[str, ...] = ()
    paused: str = ""

    @property
    def total(self) -> int | None:
        """All messages in the queue; None if some of them were not counted."""
        return total_of((self.ready, self.held, self.dead_lettering, self.held_back))


@dataclass(frozen=True, slots=True)
class Flow:
    """A subscription at a glance; rates in messages per second, None if the broker keeps none.

    Args:
        queue: the main queue's name.
        main, retry, failed: messages in its queues, including held ones and those being
        dead-lettered; None for a queue that is missing or was not counted. If the broker holds
        failed messages back in the main queue, those count as `retry`.
        consumers: number of consumers of the main queue; None if unknown.
        rate_in: published to the main queue, including requeued messages.
        rate_done: acked in the main queue and not republished for a retry: handled or set aside.
        rate_retried: rejected or republished: failed attempts on their way to the retry queue.
        rate_failed: set aside.
        rate_redriven: taken out of the failed queue.
        dead_lettering: messages in the main and the retry queue that are being dead-lettered.
        hung: handlers that still run after their timeout, as reported by the main queue's
            consumers; None if none reports it.
        down: what is down, as reported by the main queue's consumers.
        paused: who has paused it, why, since when and until when; empty if nobody has.
        missing: which of the three queues do not exist.
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
    down: tuple[str, ...] = ()
    paused: str = ""
    missing: tuple[str, ...] = ()


def total_of(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is unknown."""
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def flows(queues: Mapping[str, QueueCount]) -> list[Flow]:
    """Return the flow of each subscription, from the statistics of all queues."""
    return [_flow(queue, queues) for queue in names.main_queues(queues)]


def on_the_ladder(queues: Mapping[str, QueueCount]) -> int | None:
    """Return how many messages wait on the delay ladders of all families; None if some were not
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
        down=main.down if main is not None else (),
        paused=main.paused if main is not None else "",
        missing=_missing(main, retry, failed),
    )
    if main is None or failed is None:
        return flow
    # Only a republish counts as published there: the broker does not count messages that it moves
    # to the retry queue itself.
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
    """Return which of a subscription's queues do not exist; it needs no retry queue if the broker
    holds its failed messages back."""
    needs_retry = main is None or not main.holds_back
    places = (("main", main, True), ("retry", retry, needs_retry), ("failed", failed, True))
    return tuple(name for name, count, is_needed in places if count is None and is_needed)


def _rejected(main: QueueCount) -> float | None:
    """Return the rate of rejects, which RabbitMQ does not count: messages delivered but neither
    acked nor held."""
    return (
        None
        if main.delivered is None or main.acked is None
        else main.delivered - main.acked - main.held_growth
    )


def _rate(value: float | None, more: float = 0.0) -> float | None:
    """Return a sum of rates, at least 0: a restarted node counts less than before, and separate
    counts are not taken at the same moment."""
    return None if value is None else max(0.0, value + more)


def _depth(count: QueueCount | None) -> int | None:
    return None if count is None else count.total
