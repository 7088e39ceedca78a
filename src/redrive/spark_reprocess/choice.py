"""What of a run is sent: all that an expression means, changed or not."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from redrive.errors import ConfigurationError
from redrive.failures.edit import patching
from redrive.spark_reprocess.spark_filter import check_filter, is_chosen
from redrive.spark_reprocess.transform import Transform, of_each, transform_named
from redrive.topology.rewrite import MOST_REDRIVES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHOSEN = "chosen"
STAYS = "stays"


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a run is sent, and how it is changed.

    Args:
        where: an expression of the filter language; None for all.
        transform: `module:function`, which changes bodies; None for none.
        now: what `now()` says in the expression.
        force: whether messages go that were requeued too often already.
        patch: the text of a JSON patch or merge patch of the bodies; None for none.
    """

    where: str | None = None
    transform: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    force: bool = False
    patch: str | None = None

    def change(self) -> Transform | None:
        """Return what changes the bodies; None if they are sent as they are.

        Raises:
            ConfigurationError: the patch or the function can't be used, or both are given.
        """
        if self.patch is None:
            return None if self.transform is None else transform_named(self.transform)
        if self.transform is not None:
            raise ConfigurationError("--patch and --transform exclude each other", "Give one.")
        return of_each(patching(self.patch))

    @property
    def changed_by(self) -> str | None:
        """What changes the bodies, in words; None if they are sent as they are."""
        return self.transform if self.patch is None else f"the patch {self.patch}"

    def marked(self, messages: "DataFrame") -> "DataFrame":
        """The messages with two further columns: whether each is `chosen`, which is what is sent,
        and whether it `stays` although it is meant, because it was requeued too often."""
        from pyspark.sql import functions as F

        meant = F.lit(True) if self.where is None else is_chosen(self.where, self.now)
        too_often = F.lit(False) if self.force else F.col("redrive_count") >= MOST_REDRIVES
        return (
            messages.withColumn(CHOSEN, meant)
            .withColumn(STAYS, F.col(CHOSEN) & too_often)
            .withColumn(CHOSEN, F.col(CHOSEN) & ~too_often)
        )

    def of(self, messages: "DataFrame") -> "DataFrame":
        """Those of the messages that are sent."""
        from pyspark.sql import functions as F

        chosen = messages if self.where is None else messages.where(is_chosen(self.where, self.now))
        return chosen if self.force else chosen.where(F.col("redrive_count") < MOST_REDRIVES)

    @property
    def key(self) -> str:
        """The same for the same choice made at the same time."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Check that it can be used.

        Raises:
            ConfigurationError: the expression or the patch can't be read, or there is no such
                function.
        """
        if self.where is not None:
            check_filter(self.where, self.now)
        self.change()

    @classmethod
    def from_dict(cls, noted: Mapping[str, str | None]) -> Self:
        """What `to_dict` has given."""
        return cls(
            noted["where"],
            noted["transform"],
            datetime.fromisoformat(noted["now"] or ""),
            noted.get("force") is not None,
            noted.get("patch"),
        )

    def to_dict(self) -> dict[str, str | None]:
        """For the archive."""
        # Written only where it is so: what an older version has chosen keeps its key.
        others = {"force": "yes" if self.force else None, "patch": self.patch}
        return {
            "where": self.where,
            "transform": self.transform,
            "now": self.now.isoformat(),
            **{name: value for name, value in others.items() if value is not None},
        }
