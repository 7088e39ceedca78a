"""Notes on causes, written on a console's pages."""

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError
from redrive.failures.jobs.cause_remark import SAYABLE, CauseRemark, CauseState, RemarkKind
from redrive.web.context import ConsoleContext, local_path
from redrive.web.page_request import PageRequest


def say(context: ConsoleContext, request: PageRequest) -> Response:
    """Write the note that a form sent to the journal, and return to its page."""
    if not context.settings.may_note:
        raise ConfigurationError(
            "this console does not accept notes",
            "Start it with --allow note, or use redrive causes.",
        )
    context.permissions.check_remark()
    context.journal_cache.say(_remark_of(context, request))
    return RedirectResponse(f"{request.root}{local_path(request.text('back'))}", 303)


def _remark_of(context: ConsoleContext, request: PageRequest) -> CauseRemark:
    group, words = request.text("group"), request.text("words")
    match request.text("kind"):
        case RemarkKind.STATE:
            state = request.text("state")
            if state not in SAYABLE:
                raise ConfigurationError(
                    f"there is no state {state[:40]!r}",
                    f"Choose from {', '.join(SAYABLE)}.",
                )
            return CauseRemark(
                RemarkKind.STATE,
                group,
                words,
                CauseState(state),
                fixed_in=request.text("fixed_in") if state == CauseState.FIXED else "",
                note=request.text("note"),
            )
        case RemarkKind.MERGE:
            return CauseRemark(RemarkKind.MERGE, group, words, into=request.text("into"))
        case RemarkKind.UNDO:
            undone = context.journal_cache.book.named(request.text("remark"))
            return CauseRemark(RemarkKind.UNDO, undone.group, undone.words, undoes=undone.id)
        case kind:
            raise ConfigurationError(
                f"{kind[:40]!r} is not a kind of note", "Use the console's pages."
            )
