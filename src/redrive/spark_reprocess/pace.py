"""How fast a job sends, and how careful it is."""

from dataclasses import dataclass

BATCH = 2000
TIMEOUT = 60.0
LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Pace:
    """How messages are sent.

    Args:
        rate: messages a second, of all tasks together; None for as many as go.
        batch: messages of a task that may be on their way without being in the ledger as settled.
        timeout: seconds for which the broker may be away, or confirm nothing.
        least_share: the share of confirmed messages below which a job stops.
    """

    rate: float | None = None
    batch: int = BATCH
    timeout: float = TIMEOUT
    least_share: float = LEAST_SHARE
