"""What people say of causes on the pages of a console."""

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError
from redrive.failures.cause_remark import SAYABLE, CauseRemark, CauseState, RemarkKind
from redrive.web.asked import Asked
from redrive.web.desk import Desk, local_path


def say(desk: Desk, asked: Asked) -> Response:
    """Writes down what a form says of a cause, and shows the page that it was on.

    Raises:
        ConfigurationError: this console takes no remarks, or this is none.
        PermissionDenied: the broker does not let the user.
    """
    if not desk.settings.may_note:
        raise ConfigurationError(
            "this console takes no remarks",
            "Start it with --allow note, or use redrive causes.",
        )
    desk.check_remark()
    desk.memory.say(_remark_of(desk, asked))
    return RedirectResponse(f"{asked.root}{local_path(asked.text('back'))}", 303)


def _remark_of(desk: Desk, asked: Asked) -> CauseRemark:
    group, words = asked.text("group"), asked.text("words")
    match asked.text("kind"):
        case RemarkKind.STATE:
            state = asked.text("state")
            if state not in SAYABLE:
                raise ConfigurationError(
                    f"there is no state {state[:40]!r}",
                    f"Give one of {', '.join(SAYABLE)}.",
                )
            return CauseRemark(
                RemarkKind.STATE,
                group,
                words,
                CauseState(state),
                fixed_in=asked.text("fixed_in") if state == CauseState.FIXED else "",
                note=asked.text("note"),
            )
        case RemarkKind.MERGE:
            return CauseRemark(RemarkKind.MERGE, group, words, into=asked.text("into"))
        case RemarkKind.UNDO:
            undone = desk.memory.book.named(asked.text("remark"))
            return CauseRemark(RemarkKind.UNDO, undone.group, undone.words, undoes=undone.id)
        case kind:
            raise ConfigurationError(f"{kind[:40]!r} is no remark", "Use the pages.")
