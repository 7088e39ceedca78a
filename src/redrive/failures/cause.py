"""Why a message failed, without what differs from one message to the next: messages of one cause
are a group."""

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from redrive.failures.failed_message import FailedMessage, cause_known_of, remember_cause

_MOST_CHARACTERS = 2000
"""Of an error's message this much tells one cause from another; a bound also keeps a hostile one
cheap."""
_ID_LENGTH = 12

MASKS = (
    # An apostrophe within a word is no quote.
    (
        re.compile(
            r"""(?<![^\W_])(?:'[^'\n]*'|"[^"\n]*"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»)(?![^\W_])"""
        ),
        "'…'",
    ),
    (
        re.compile(
            r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
        ),
        "<id>",
    ),
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
        ),
        "<time>",
    ),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "<id>"),
    (re.compile(r"\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[0-9a-fA-F]{8,}\b"), "<id>"),
    (re.compile(r"\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[0-9A-Za-z]{16,}\b"), "<id>"),
    (re.compile(r"(?:(?<!\w)[-+])?\d+(?:[.,]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)
"""What differs from one message to the next, and what stands for it; one after the other."""
_MOST_OF_A_VALIDATION = 20_000
"""It names each field that is wrong, one after the other: which these are is known only at its
end."""
_VALIDATION = re.compile(r"\s*\d+ validation errors? for ([^\n]+)\n(.*)", re.DOTALL)
"""The text of pydantic's ValidationError: the model, and then each place with what is wrong below
it."""
_OWN_VALIDATION = re.compile(r"\s*\d+ problem\(s\) in the body as ([^\n]+?): (.*)", re.DOTALL)
"""The text of redrive's InvalidMessage: the model, and then each place before what is wrong."""
_DETAILS = re.compile(r" (?:\[type=|\(type=).*", re.DOTALL)
_PLACE = re.compile(r"\.| -> ")
_INDEX = re.compile(r"\d+")
_MOST_FIELDS = 50
_FRAME = re.compile(
    r'^[ \t|]*File "(?P<file>[^"\n]+)", line \d+, in (?P<function>[^\n]+)$', re.MULTILINE
)
_FOREIGN = re.compile(
    r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python\d"
    r"|[/\\]redrive[/\\]pubsub[/\\]|^<frozen ",
    re.IGNORECASE,
)
_SLASH = re.compile(r"[/\\]")
_PATH_PARTS = 2


class Cause(NamedTuple):
    """What messages of one cause have in common; a part that is not known is empty.

    Args:
        error_type: the exception's class.
        message: its text, masked.
        frame: where in the service's own code it was raised: file and function, without the line.
    """

    error_type: str
    message: str
    frame: str

    @property
    def group_id(self) -> str:
        """Twelve hex digits that are the same for the same cause, on every machine and in every
        version."""
        return _group_id(self)

    @property
    def what(self) -> str:
        """What failed, in words: the error's type without its module, and its message."""
        said = (self.error_type.rpartition(".")[2], self.message)
        return (
            ": ".join(part for part in said if part)
            or "no error recorded (failed in a service without redrive)"
        )

    @property
    def in_words(self) -> str:
        """What failed, and where."""
        return f"{self.what} ({self.frame})" if self.frame else self.what


def cause_of(message: FailedMessage) -> Cause:
    """Why a message failed; empty where a peer set it aside and did not say."""
    known = cause_known_of(message)
    if isinstance(known, Cause):
        return known
    cause = _cause(message.error_type or "", message.error_message or "", message.traceback or "")
    remember_cause(message, cause)
    return cause


def masked(text: str) -> str:
    """A text on one line, with quoted values, ids, times and numbers replaced by what they are.

    Of a validation error, which names each wrong value and where it is, the model and the fields
    are left, without the places in lists.
    """
    validation = text[:_MOST_OF_A_VALIDATION]
    for pattern, problems_of in (
        (_VALIDATION, _pydantic_problems),
        (_OWN_VALIDATION, _own_problems),
    ):
        found = pattern.fullmatch(validation)
        if found:
            fields = sorted({_field(problem) for problem in problems_of(found[2])} - {""})
            return _masked(
                f"not valid as {found[1]}: {', '.join(fields[:_MOST_FIELDS])}".removesuffix(": ")
            )
    return _masked(text)


def _masked(text: str) -> str:
    text = text[:_MOST_CHARACTERS]
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return text.strip()


def _pydantic_problems(text: str) -> Iterator[str]:
    """The places of the problems; of one that has none, what is wrong."""
    place = ""
    for line in text.splitlines():
        if line[:1] != " ":
            place = line
        elif line[:3] != "   ":  # further down is only where to read more
            yield place or _DETAILS.sub("", line)
            place = ""


def _own_problems(text: str) -> Iterator[str]:
    for problem in text.split("; "):
        yield problem.partition(": ")[0]


def _field(place: str) -> str:
    """A place without the indexes of lists."""
    return _masked(
        ".".join(part for part in _PLACE.split(place.strip()) if not _INDEX.fullmatch(part))
    )


def frame_of(traceback: str) -> str:
    """The innermost frame of a Python traceback that is in no library, as `file in function`; empty
    where there is none.

    Of the file the last folder and the name: a service may be installed at another place on each of
    its hosts.
    """
    innermost = ""
    for frame in _FRAME.finditer(traceback):
        if not _FOREIGN.search(frame["file"]):
            folder_and_name = _SLASH.split(frame["file"])[-_PATH_PARTS:]
            innermost = f"{'/'.join(folder_and_name)} in {frame['function']}"
    return innermost


class TracebackPart(NamedTuple):
    """Some lines of a traceback.

    Args:
        text: the lines.
        frames: how many frames of libraries they are, which people may skip; 0 for frames of the
            service's own code and for what stands around frames.
    """

    text: str
    frames: int


def parts_of(traceback: str) -> list[TracebackPart]:
    """A traceback in its parts, in their order: frames of libraries that follow each other are
    one."""
    found: list[TracebackPart] = []
    is_foreign = False
    for line in traceback.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            is_foreign = _FOREIGN.search(frame["file"]) is not None
        elif line[:1] not in ("", " ", "\t", "|"):
            is_foreign = False  # the exception itself, or the heading of the next traceback
        frames = int(is_foreign and frame is not None)
        last = found[-1] if found else None
        if last is not None and bool(last.frames) == is_foreign:
            found[-1] = TracebackPart(f"{last.text}\n{line}", last.frames + frames)
        else:
            found.append(TracebackPart(line, frames))
    return found


@lru_cache(maxsize=256)
def _cause(error_type: str, message: str, traceback: str) -> Cause:
    return Cause(error_type, masked(message), _frame(traceback))


# Many messages have one traceback: looking for its frame costs more than all the rest.
_frame = lru_cache(maxsize=256)(frame_of)


@lru_cache(maxsize=1024)
def _group_id(cause: Cause) -> str:
    digest = hashlib.sha256()
    for part in cause:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()[:_ID_LENGTH]
