"""Options of a Spark job."""

from dataclasses import dataclass, field

from redrive.failures.queue.canary import Guards
from redrive.topology.names import ExchangeFamily

BATCH = 2000
TIMEOUT = 60.0
LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class SendSettings:
    """How fast and how carefully messages are sent.

    Args:
        rate: the maximum messages per second that all tasks together requeue; None for no limit.
        restore_rate: the same for messages restored to failed queues, where no consumer waits.
        batch: the maximum number of a task's messages in flight that the ledger does not have as
            settled.
        timeout: how long, in seconds, the broker may be away or confirm nothing.
        least_share: the share of confirmed messages below which a job stops.
    """

    rate: float | None = None
    restore_rate: float | None = None
    batch: int = BATCH
    timeout: float = TIMEOUT
    least_share: float = LEAST_SHARE


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a Spark job, apart from which messages it sends.

    Args:
        guards: what stops the job: a canary, or a share of failures.
        sending: how fast and how carefully messages are sent.
        exchanges: the exchange family; None for the one that the run was started with, or redrive's
            default for a new run.
        tasks: the number of competing consumers per queue; None for Spark's default parallelism.
        keep: whether messages that are not chosen stay in the archive instead of being restored.
        another_broker: whether messages may go to a different broker than they were drained from.
        literal: whether names are those of the queues themselves, even if there are subscriptions
            with these names.
        management_url: the management API's address, to read delivery limits set by a policy.
    """

    guards: Guards = field(default_factory=Guards)
    sending: SendSettings = field(default_factory=SendSettings)
    exchanges: ExchangeFamily | None = None
    tasks: int | None = None
    keep: bool = False
    another_broker: bool = False
    literal: bool = False
    management_url: str | None = None
