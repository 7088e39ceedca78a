"""Check the identity drained = requeued + restored + discarded + kept, id by id."""

from collections import Counter
from dataclasses import asdict, dataclass, field

from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archived_messages import KEPT, ArchivedMessages
from redrive.spark_reprocess.drain import rows_drained
from redrive.spark_reprocess.ledger import Event
from redrive.spark_reprocess.run_plan import RunPlan
from redrive.spark_reprocess.spark_errors import explained


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The outcome of a run's messages, as counts.

    Args:
        run: the run's id.
        queues: the main queues, and dead-letter queues that redrive did not make.
        depths: the number of failed messages of each queue when the run began.
        drained: messages in the archive.
        requeued: messages that reached the queue they were sent to.
        restored: messages that are back in the queue they came from.
        discarded: messages marked as unwanted.
        kept: messages that are in the archive only.
        refused: kept messages that could not be sent.
        rows: rows in the archive; more than messages if a session was interrupted.
        possible_duplicates: messages that may have been sent twice.
        unknown: ids that are in the ledger but not in the archive.
        shared_ids: failure ids that several different messages share; at most one of the messages
            is genuine.
        refusals: the ids of some refused messages, with the reasons.
        too_often: messages that were selected but not sent, because they had been requeued too
            often.
        no_way_back: kept messages that were selected but not sent, because nothing says which queue
            they failed in.
        contradicted: the same, because the broker's topology contradicts what they say.
        unchecked: the same, because the broker could not confirm what they say.
        left: the messages of the last three counts by the way they would go, with the reason why
            they stay.
        without_way_back: some of these messages: the id, the dead-letter queue, and the cause.
    """

    run: str
    queues: list[str]
    depths: dict[str, int]
    drained: int
    requeued: int
    restored: int
    discarded: int
    kept: int
    refused: int
    rows: int
    possible_duplicates: int
    unknown: int
    shared_ids: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)
    too_often: int = 0
    no_way_back: int = 0
    contradicted: int = 0
    unchecked: int = 0
    left: list[dict[str, object]] = field(default_factory=list)
    without_way_back: list[dict[str, str | None]] = field(default_factory=list)

    @property
    def in_doubt(self) -> int:
        """Number of selected messages that were not sent because their way back is not sure."""
        return self.no_way_back + self.contradicted + self.unchecked

    @property
    def holds(self) -> bool:
        """Whether the counts add up and the ledger has no id that the archive lacks."""
        return (
            self.drained == self.requeued + self.restored + self.discarded + self.kept
            and not self.unknown
        )

    def __str__(self) -> str:
        sign = "=" if self.holds else "≠"
        return (
            f"{self.drained:,} drained {sign} {self.requeued:,} requeued + {self.restored:,} "
            f"restored + {self.kept:,} kept"
            f" + {self.discarded:,} discarded"
        )

    def to_dict(self) -> dict[str, object]:
        """Return the values for report.json."""
        return {**asdict(self), "holds": self.holds, "identity": str(self)}


def verify(
    kept: ArchivedMessages,
    archive: Archive,
    run: Run,
    whole: RunPlan | None = None,
    *,
    is_chosen: bool = True,
) -> Reconciliation:
    """Count, id by id, what became of a run's messages, and store the result as the run's JSON
    report.

    Each side is counted independently: drained messages by the number recorded when draining ended,
    outcomes from the ledger, and kept messages from the archive's files. A missing file therefore
    shows up as a difference. The plan of the whole run only adds to the report which messages stay,
    because they were requeued too often or have no sure way back. Like refused messages, those
    without a sure way back do not keep the run open, provided that a selection was made
    (`is_chosen`).
    """
    with explained():
        counted = kept.counts()
        # Most runs have none, and searching for them takes as long again.
        some_refused = any(row.here and row.state == Event.REFUSED for row in counted)
        refusals = kept.refusals() if some_refused else []
    noted = archive.rows_noted(run)
    rows = rows_drained(archive, run) if noted is None else noted
    drained = rows - kept.copies()
    # Messages sent by another run matter only if they are in this run as well.
    unknown = sum(row.ids for row in counted if not row.here and row.mine)
    by_state: Counter[str] = Counter()
    for row in counted:
        by_state[row.state] += row.ids if row.here else 0
    identity = Reconciliation(
        run.id,
        run.queues,
        run.depths,
        drained=drained,
        requeued=by_state[Event.SENT],
        restored=by_state[Event.RESTORED],
        discarded=by_state[Event.DISCARDED],
        kept=by_state[KEPT] + by_state[Event.REFUSED],
        refused=by_state[Event.REFUSED],
        rows=rows,
        possible_duplicates=sum(
            row.unsure for row in counted if row.here and row.state in (Event.SENT, Event.RESTORED)
        ),
        unknown=unknown,
        shared_ids=kept.shared_ids(),
        refusals=[{"id": id_, "error": detail} for id_, detail in refusals],
        too_often=0 if whole is None else whole.too_often,
        no_way_back=0 if whole is None else whole.no_way_back,
        contradicted=0 if whole is None else whole.contradicted,
        unchecked=0 if whole is None else whole.unchecked,
        left=[] if whole is None else whole.left,
        without_way_back=[] if whole is None else whole.without_way_back,
    )
    archive.write_report(run, identity.to_dict())
    stays = identity.refused + (identity.in_doubt if is_chosen else 0)
    if archive.is_drained(run) and identity.holds and identity.kept == stays:
        archive.end(run)
    return identity
