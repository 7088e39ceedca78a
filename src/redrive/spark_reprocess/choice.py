"""What of a run is sent: all that an expression picks, changed or not, and a few first."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from redrive.failures.canary import Unknown
from redrive.spark_reprocess.transforming import transform_named
from redrive.spark_reprocess.where import spark_sql_of
from redrive.topology.moves import MOST_REDRIVES

EVERYTHING = "true"


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a run is sent, and how it is changed.

    Args:
        where: an expression of the filter language; None for all.
        transform: `module:function`; None for none.
        now: what `now()` says in the expression.
        force: whether messages go that were sent back too often already.
    """

    where: str | None = None
    transform: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    force: bool = False

    @property
    def condition(self) -> str:
        """Spark SQL that is true of what is sent."""
        return self._meant if self.force else f"({self._meant}) AND redrive_count < {MOST_REDRIVES}"

    @property
    def too_often(self) -> str:
        """Spark SQL that is true of what is meant, and stays because it was sent back too often."""
        return "false" if self.force else f"({self._meant}) AND redrive_count >= {MOST_REDRIVES}"

    @property
    def _meant(self) -> str:
        return EVERYTHING if self.where is None else spark_sql_of(self.where, self.now)

    @property
    def key(self) -> str:
        """The same for the same choice made at the same time."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Looks whether it can be used.

        Raises:
            ConfigurationError: the expression can't be read, there is no such transform.
        """
        _ = self.condition
        if self.transform is not None:
            transform_named(self.transform)

    def to_dict(self) -> dict[str, str | None]:
        """For the archive."""
        # Written only where it is so: what an older version has chosen keeps its key.
        force = {"force": "yes"} if self.force else {}
        return {"where": self.where, "transform": self.transform, "now": self.now.isoformat(), **force}


@dataclass(frozen=True, slots=True)
class Guards:
    """What stops a sending.

    Args:
        canary: how many messages are sent first, each of which must succeed; 0 for none.
        watch: how long they are watched at most; None for as long as their retries would take.
        stop_at: the share of what was sent that may be failing; None for any.
        unknown: what happens when nothing is known of some of the canary at the end of the watch.
    """

    canary: int = 0
    watch: timedelta | None = None
    stop_at: float | None = None
    unknown: Unknown = Unknown.STOP

    @property
    def are_up(self) -> bool:
        """Whether it has to be seen what becomes of messages while they are sent."""
        return bool(self.canary) or self.stop_at is not None


NONE = Guards()
