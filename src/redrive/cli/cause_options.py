"""What a team has said of causes, as commands group and choose by it."""

from redrive.errors import RedriveError
from redrive.failures.cause_note import CauseNote
from redrive.failures.cause_notes import CauseNotes
from redrive.failures.filter import Filter


def book_at(url: str) -> CauseNotes:
    """Return what was said of causes at a broker; nothing where the journal can't be read, which is
    no reason not to look."""
    # SQLite takes a while to load, and most looks are for no group.
    from redrive.failures.journal import Journal

    try:
        with Journal(url, on_notice=lambda _: None) as journal:
            return journal.causes()
    except (RedriveError, ModuleNotFoundError):
        return CauseNotes()


def resolved(url: str, filter_: Filter) -> Filter:
    """Return a filter that means the messages of its groups as the team has said what they are."""
    return book_at(url).resolved(filter_) if filter_.groups else filter_


def words_of(remark: CauseNote) -> str:
    """Return what a remark says, in words."""
    match remark.kind.value:
        case "merge":
            return f"the same as {remark.into}"
        case "split":
            return f"not used any more: the split of {remark.name}, {remark.where}"
        case _:
            fixed_in = f" in {remark.fixed_in}" if remark.fixed_in else ""
            return f"{remark.state.value}{fixed_in}{f': {remark.note}' if remark.note else ''}"
