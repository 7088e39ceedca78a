"""What of a run is sent: all that an expression picks, changed or not, and a few first."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from redrive.spark_reprocess.transforming import transform_named
from redrive.spark_reprocess.where import spark_sql_of

EVERYTHING = "true"


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a run is sent, and how it is changed.

    Args:
        where: an expression of the filter language; None for all.
        transform: `module:function`; None for none.
        now: what `now()` says in the expression.
    """

    where: str | None = None
    transform: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def condition(self) -> str:
        """Spark SQL that is true of what is sent."""
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
        return {"where": self.where, "transform": self.transform, "now": self.now.isoformat()}


@dataclass(frozen=True, slots=True)
class Canary:
    """A few messages that are sent first.

    Args:
        count: how many.
        wait: seconds after which nothing of them may be in the failed queues again.
    """

    count: int
    wait: float = 0.0
