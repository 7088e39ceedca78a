"""What is measured, beside whom, and what redrive promises."""

from dataclasses import dataclass

from redrive.topology.model import QueueType, RetryVia

SIZE = 512
PREFETCH = 200
DEEP_PREFETCH = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender's part in a scenario.

    Args:
        name: what the tables call it.
        module: its file in `contenders`.
        action: its function; None for the scenario's own name.
        share: which part of the messages it gets. A slow one gets fewer: rates are per second.
        prefetch: unsettled deliveries; None for its default.
        own_queue: whether it declares a queue of its own and fills it in its own wire format.
        tls: whether it connects over TLS.
        retry_via: the mechanism by which its queue waits for the time of the retries; None for the
            usual queue.
    """

    name: str
    module: str
    action: str | None = None
    share: float = 1.0
    prefetch: int | None = PREFETCH
    own_queue: bool = False
    tls: bool = False
    retry_via: RetryVia | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A task that its contenders do in turn.

    Args:
        name: for `--only`.
        title: what the tables call it.
        action: the contenders' function.
        entries: who takes part; the first of them is redrive.
        reference: the entry that the ratios are to.
        messages: how many; None for `--messages`.
        runs: how many runs; None for `--runs`.
        every_broker: whether it is run on every broker, or on the first alone.
        queue_type: of the queue.
    """

    name: str
    title: str
    action: str
    entries: tuple[Entry, ...]
    reference: str
    messages: int | None = None
    runs: int | None = None
    every_broker: bool = False
    queue_type: QueueType = "quorum"

    @property
    def tls(self) -> bool:
        """Whether any contender connects over TLS."""
        return any(entry.tls for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Target:
    """A promise: the ratio of a contender's rate to another's, run by run, or its peak memory.

    Args:
        promise: in words.
        scenario: where it is measured.
        entry: whose.
        against: beside whom; None for memory.
        at_least: the least ratio.
        under_mb: the memory, in MB, that it stays under.
    """

    promise: str
    scenario: str
    entry: str
    against: str | None = None
    at_least: float | None = None
    under_mb: float | None = None


_BESIDE_C = (
    Entry("redrive Subscriber", "redrive", prefetch=DEEP_PREFETCH),
    Entry("redrive AsyncSubscriber", "redrive_async", prefetch=DEEP_PREFETCH),
    Entry("librabbitmq (C)", "c_client", prefetch=DEEP_PREFETCH),
    Entry("pika, blocking loop", "pika_blocking", prefetch=DEEP_PREFETCH),
)

SCENARIOS = (
    Scenario(
        "publish",
        "publish: confirmed, persistent, to one bound quorum queue",
        "publish",
        (
            Entry("redrive publish_many", "redrive"),
            Entry("redrive publish_many, instrumented", "redrive_instrumented"),
            Entry("pika, confirms in flight", "pika_in_flight"),
            Entry("pika, confirm each", "pika_blocking", share=0.2),
            Entry("redrive AsyncPublisher", "redrive_async"),
            Entry("aio-pika", "aio_pika", share=0.5),
            Entry("FastStream", "faststream", share=0.5),
            Entry("dramatiq", "dramatiq", share=0.2, own_queue=True),
            Entry("Celery", "celery", share=0.2, own_queue=True),
        ),
        reference="pika, confirms in flight",
    ),
    Scenario(
        "publish-one",
        "publish one at a time: each confirmed before the next",
        "publish",
        (
            Entry("redrive publish", "redrive", "publish_one", share=0.2),
            Entry("pika, confirm each", "pika_blocking", share=0.2),
        ),
        reference="pika, confirm each",
    ),
    Scenario(
        "million",
        "a million messages from a generator",
        "publish",
        (Entry("redrive publish_many", "redrive"),),
        reference="redrive publish_many",
        messages=1_000_000,
        runs=1,
    ),
    Scenario(
        "consume",
        f"consume: an empty handler, each message acknowledged, prefetch {PREFETCH} where no other "
        "is named",
        "consume",
        (
            Entry("redrive Subscriber", "redrive"),
            Entry("redrive Subscriber, instrumented", "redrive_instrumented"),
            Entry("redrive Subscriber, default prefetch", "redrive", prefetch=None),
            Entry("pika, blocking loop", "pika_blocking"),
            Entry("redrive AsyncSubscriber", "redrive_async"),
            Entry("aio-pika", "aio_pika"),
            Entry("FastStream", "faststream"),
            Entry("dramatiq", "dramatiq", share=0.5, own_queue=True),
            Entry("Celery", "celery", share=0.5, own_queue=True),
        ),
        reference="pika, blocking loop",
    ),
    Scenario(
        "consume-quorum",
        f"consume beside a client in C: a quorum queue, prefetch {DEEP_PREFETCH}",
        "consume",
        _BESIDE_C,
        reference="librabbitmq (C)",
    ),
    Scenario(
        "consume-classic",
        f"consume beside a client in C: a classic queue, prefetch {DEEP_PREFETCH}",
        "consume",
        _BESIDE_C,
        reference="librabbitmq (C)",
        queue_type="classic",
    ),
    Scenario(
        "app",
        "consume in an app: an empty handler, typed, each message acknowledged",
        "consume",
        (
            Entry("redrive App", "redrive_app"),
            Entry("redrive Subscriber", "redrive_app", "consume_by_subscriber"),
            Entry("redrive AsyncApp", "redrive_app", "consume_async"),
            Entry("redrive AsyncSubscriber", "redrive_app", "consume_by_async_subscriber"),
        ),
        reference="redrive Subscriber",
    ),
    Scenario(
        "telemetry-publish",
        "publish with telemetry: confirmed, persistent, to one bound quorum queue",
        "publish",
        (
            Entry("redrive publish_many, nothing measured", "redrive"),
            Entry("counters", "redrive_instrumented", "publish_counted"),
            Entry("and spans of 1 %", "redrive_instrumented", "publish_sampled"),
            Entry("and spans of all", "redrive_instrumented"),
        ),
        reference="redrive publish_many, nothing measured",
    ),
    Scenario(
        "publish-tls",
        "publish over TLS: the same, and redrive without TLS on the same way",
        "publish",
        (
            Entry("redrive publish_many, TLS", "redrive", tls=True),
            Entry("redrive publish_many, no TLS", "redrive"),
            Entry("pika, confirms in flight, TLS", "pika_in_flight", tls=True),
            Entry("redrive AsyncPublisher, TLS", "redrive_async", tls=True),
            Entry("aio-pika, TLS", "aio_pika", share=0.5, tls=True),
        ),
        reference="pika, confirms in flight, TLS",
    ),
    Scenario(
        "consume-tls",
        "consume over TLS: the same, and redrive without TLS on the same way",
        "consume",
        (
            Entry("redrive Subscriber, TLS", "redrive", tls=True),
            Entry("redrive Subscriber, no TLS", "redrive"),
            Entry("pika, blocking loop, TLS", "pika_blocking", tls=True),
            Entry("redrive AsyncSubscriber, TLS", "redrive_async", tls=True),
            Entry("aio-pika, TLS", "aio_pika", tls=True),
        ),
        reference="pika, blocking loop, TLS",
    ),
    Scenario(
        "retry",
        "retry: each message fails once, waits a second, and succeeds; from the first failure to "
        "the last success",
        "consume",
        (
            Entry("redrive, delay ladder", "redrive", "consume_by_ladder"),
            Entry(
                "redrive, dead-letter",
                "redrive",
                "consume_by_dead_lettering",
                retry_via="dead-letter",
            ),
            Entry(
                "redrive, broker (RabbitMQ 4.3)",
                "redrive",
                "consume_held_back",
                retry_via="broker",
            ),
            Entry("dramatiq", "dramatiq", "consume_failing_once", share=0.5, own_queue=True),
            Entry("Celery", "celery", "consume_failing_once", share=0.25, own_queue=True),
        ),
        reference="dramatiq",
        runs=3,
    ),
    Scenario(
        "requeue",
        "requeue: failed messages to their queue",
        "requeue",
        (
            Entry("redrive requeue", "redrive"),
            Entry("redrive requeue, --where", "redrive", "requeue_where"),
            Entry("shovel", "shovel"),
        ),
        reference="shovel",
        every_broker=True,
    ),
)

TARGETS = (
    Target(
        "publish_many ≥ 0.95 × plain pika in flight",
        "publish",
        "redrive publish_many",
        "pika, confirms in flight",
        0.95,
    ),
    Target("publish_many ≥ 5 × FastStream", "publish", "redrive publish_many", "FastStream", 5),
    Target(
        "AsyncPublisher.publish_many ≥ 1.5 × aio-pika, 500 in flight",
        "publish",
        "redrive AsyncPublisher",
        "aio-pika",
        1.5,
    ),
    Target(
        "Subscriber ≥ 1.2 × plain pika's blocking loop",
        "consume",
        "redrive Subscriber",
        "pika, blocking loop",
        1.2,
    ),
    Target(
        "Subscriber ≥ 0.65 × a client in C on a quorum queue",
        "consume-quorum",
        "redrive Subscriber",
        "librabbitmq (C)",
        0.65,
    ),
    Target(
        "AsyncSubscriber ≥ 0.65 × a client in C on a quorum queue",
        "consume-quorum",
        "redrive AsyncSubscriber",
        "librabbitmq (C)",
        0.65,
    ),
    Target(
        "Subscriber ≥ 0.80 × a client in C on a classic queue",
        "consume-classic",
        "redrive Subscriber",
        "librabbitmq (C)",
        0.8,
    ),
    Target(
        "AsyncSubscriber ≥ 0.80 × a client in C on a classic queue",
        "consume-classic",
        "redrive AsyncSubscriber",
        "librabbitmq (C)",
        0.8,
    ),
    Target(
        "App with a typed handler ≥ 0.9 × Subscriber",
        "app",
        "redrive App",
        "redrive Subscriber",
        0.9,
    ),
    Target(
        "AsyncApp with a typed handler ≥ 0.9 × AsyncSubscriber",
        "app",
        "redrive AsyncApp",
        "redrive AsyncSubscriber",
        0.9,
    ),
    Target("Subscriber ≥ 4 × FastStream", "consume", "redrive Subscriber", "FastStream", 4),
    Target(
        "AsyncSubscriber ≥ 1.2 × aio-pika", "consume", "redrive AsyncSubscriber", "aio-pika", 1.2
    ),
    Target(
        "publish_many over TLS ≥ 0.95 × plain pika in flight",
        "publish-tls",
        "redrive publish_many, TLS",
        "pika, confirms in flight, TLS",
        0.95,
    ),
    Target(
        "Subscriber over TLS ≥ 1.2 × plain pika's blocking loop",
        "consume-tls",
        "redrive Subscriber, TLS",
        "pika, blocking loop, TLS",
        1.2,
    ),
    Target(
        "retries held back by the broker ≥ 1.5 × dead-lettered ones",
        "retry",
        "redrive, broker (RabbitMQ 4.3)",
        "redrive, dead-letter",
        1.5,
    ),
    Target("requeue ≥ 0.7 × shovel", "requeue", "redrive requeue", "shovel", 0.7),
    Target(
        "requeue with a filter ≥ 0.6 × shovel", "requeue", "redrive requeue, --where", "shovel", 0.6
    ),
    Target("a million from a generator < 120 MB", "million", "redrive publish_many", under_mb=120),
)
