"""How a job on Spark sends, and what it does besides."""

from dataclasses import dataclass, field

from redrive.failures.canary import Guards
from redrive.topology.names import ExchangeFamily

BATCH = 2000
TIMEOUT = 60.0
LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class SendSettings:
    """How fast messages are sent, and how carefully.

    Args:
        rate: messages a second that are sent to main queues, of all tasks together; None for as
            many as go.
        restore_rate: the same of what is restored to failed queues, where no consumer waits.
        batch: messages of a task that may be on their way without being in the ledger as settled.
        timeout: seconds for which the broker may be away, or confirm nothing.
        least_share: the share of confirmed messages below which a job stops.
    """

    rate: float | None = None
    restore_rate: float | None = None
    batch: int = BATCH
    timeout: float = TIMEOUT
    least_share: float = LEAST_SHARE


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a job on Spark is told besides what it sends.

    Args:
        guards: what stops it: a canary, a share of failures.
        sending: how fast, and how carefully.
        exchanges: the exchange family; None for the one that the run was begun with, which is
            redrive's default for a new one.
        tasks: competing consumers for each queue; the cluster's cores where none are given.
        keep: whether what is not chosen stays in the archive; else it is restored.
        another_broker: whether messages may go to another broker than the one that they were
            drained from.
        literal: whether queues are named by themselves, though there may be subscriptions of these
            names.
        management_url: the management API's address, for delivery limits that a policy sets.
    """

    guards: Guards = field(default_factory=Guards)
    sending: SendSettings = field(default_factory=SendSettings)
    exchanges: ExchangeFamily | None = None
    tasks: int | None = None
    keep: bool = False
    another_broker: bool = False
    literal: bool = False
    management_url: str | None = None
