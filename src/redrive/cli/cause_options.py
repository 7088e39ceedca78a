"""The team's remarks on causes, as commands use them to group and select messages."""

from redrive.errors import RedriveError
from redrive.failures.jobs.cause_remark import CauseRemark
from redrive.failures.jobs.cause_remarks import CauseRemarks
from redrive.failures.store.filter import Filter


def book_at(url: str) -> CauseRemarks:
    """Return the remarks on causes at a broker; none if the journal can't be read, which must not
    prevent a look."""
    # SQLite takes a while to load, and most looks don't need it.
    from redrive.failures.jobs.journal import Journal

    try:
        with Journal(url, on_notice=lambda _: None) as journal:
            return journal.causes()
    except (RedriveError, ModuleNotFoundError):
        return CauseRemarks()


def resolved(url: str, filter_: Filter) -> Filter:
    """Return a filter that matches the messages of its groups as the team has defined them."""
    return book_at(url).resolved(filter_) if filter_.groups else filter_


def words_of(remark: CauseRemark) -> str:
    """Return a remark as text."""
    match remark.kind.value:
        case "merge":
            return f"the same as {remark.into}"
        case "split":
            return f"not used any more: the split of {remark.name}, {remark.where}"
        case _:
            fixed_in = f" in {remark.fixed_in}" if remark.fixed_in else ""
            return f"{remark.state.value}{fixed_in}{f': {remark.note}' if remark.note else ''}"
