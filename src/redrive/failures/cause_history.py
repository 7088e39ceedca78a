"""What was done with the messages of a cause before."""

from collections.abc import Iterable, Iterator, Mapping

from redrive.failures.job_record import JobRecord


def jobs_of(records: Iterable[JobRecord], group_ids: set[str]) -> Iterator[JobRecord]:
    """Those jobs that have meant messages of a cause, as far as the journal says it.

    Args:
        records: the jobs.
        group_ids: the group ids of all causes that are one with it.
    """
    return (record for record in records if _groups_in(record) & group_ids)


def _groups_in(record: JobRecord) -> set[str]:
    """The group ids that a job's plan or order names in full."""
    found: set[str] = set()
    causes = record.plan.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, Mapping):
            found.add(str(cause.get("group_id")))
    selection = record.order.get("selection")
    groups = selection.get("groups") if isinstance(selection, Mapping) else None
    found.update(map(str, groups if isinstance(groups, list) else ()))
    return found
