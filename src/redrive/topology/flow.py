"""How much flows through a subscription, from two looks at what the broker has counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from redrive.topology import names


@dataclass(frozen=True, slots=True)
class QueueCount:
    """What the broker tells of a queue.

    Args:
        ready: messages that wait.
        held: messages that consumers hold.
        consumers: who consumes.
        published: messages that clients have published to it, since its node began to count.
        delivered: messages that were delivered from it, again included.
        acked: messages that were acked.
    """

    ready: int = 0
    held: int = 0
    consumers: int = 0
    published: int = 0
    delivered: int = 0
    acked: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """What the broker tells of all queues at a time, in seconds on any clock."""

    at: float
    queues: Mapping[str, QueueCount] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """A subscription at a glance; rates in messages a second, None where only one look was had.

    Args:
        queue: the main queue's name.
        main, retry, failed: messages in its queues, held ones included; None for a queue that is not there.
        consumers: who consumes the main queue.
        rate_in: published to the main queue, sent back ones included.
        rate_done: acked in the main queue: handled or set aside.
        rate_retried: delivered and not acked: failed attempts on their way to the retry queue.
        rate_failed: set aside.
        rate_redriven: taken out of the failed queue.
    """

    queue: str
    main: int | None
    retry: int | None
    failed: int | None
    consumers: int
    rate_in: float | None = None
    rate_done: float | None = None
    rate_retried: float | None = None
    rate_failed: float | None = None
    rate_redriven: float | None = None


def flows(now: Look, before: Look | None = None) -> list[Flow]:
    """Each subscription now, with the rates since another look."""
    return [_flow(queue, now, before) for queue in names.main_queues(now.queues)]


def on_the_ladder(look: Look) -> int:
    """The messages that wait on delay ladders, of all families."""
    return sum(count.ready + count.held for name, count in look.queues.items() if names.is_of_a_ladder(name))


def _flow(queue: str, now: Look, before: Look | None) -> Flow:
    main, retry, failed = (now.queues.get(name) for name in (queue, names.retry_queue(queue), names.failed_queue(queue)))
    flow = Flow(queue, _depth(main), _depth(retry), _depth(failed), main.consumers if main is not None else 0)
    if before is None or before.at >= now.at or main is None or failed is None:
        return flow
    seconds = now.at - before.at
    main_before = before.queues.get(queue, main)
    failed_before = before.queues.get(names.failed_queue(queue), failed)
    delivered, acked = main.delivered - main_before.delivered, main.acked - main_before.acked
    rejected = delivered - acked - (main.held - main_before.held)

    def rate(count: int) -> float:
        return max(0, count) / seconds

    return Flow(
        flow.queue,
        flow.main,
        flow.retry,
        flow.failed,
        flow.consumers,
        rate_in=rate(main.published - main_before.published),
        rate_done=rate(acked),
        rate_retried=rate(rejected),
        rate_failed=rate(failed.published - failed_before.published),
        rate_redriven=rate(failed.acked - failed_before.acked),
    )


def _depth(count: QueueCount | None) -> int | None:
    return None if count is None else count.ready + count.held
