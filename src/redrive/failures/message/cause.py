"""Why a message failed, without the details that vary between messages, so that messages with the
same cause form a group."""

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from redrive.failures.message.failed_message import FailedMessage, cause_known_of, remember_cause
from redrive.redaction import text_of

_MOST_CHARACTERS = 2000
"""How much of an error's message is used to distinguish causes. The limit also keeps a hostile
message cheap."""
_ID_LENGTH = 12

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?:{'|'.join(_MONTHS)})"
_DIGITS = tuple("0123456789")
_CLOCK = r"[ T:]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: (?:AM|PM))?"


class Mask(NamedTuple):
    """A pattern for text that varies between messages of the same cause.

    Args:
        pattern: matches the varying text.
        instead: what replaces it.
        needs: substrings, one of which a text must contain to match; empty for any text.
    """

    pattern: re.Pattern[str]
    instead: str
    needs: tuple[str, ...] = ()

    def is_possible(self, text: str, digits: bool) -> bool:
        """Return whether the pattern could match a text, at a fraction of the cost of a search.

        Args:
            text: the text.
            digits: whether it contains digits.
        """
        if self.needs is _DIGITS:
            return digits
        return not self.needs or any(map(text.__contains__, self.needs))


_KEPT = "\ue000\ue001\ue002\ue003\ue004\ue005\ue006\ue007\ue008\ue009"
"""Placeholders for the digits of a code while numbers are masked."""
_TO_KEPT = str.maketrans("0123456789", _KEPT)
_FROM_KEPT = str.maketrans(_KEPT, "0123456789")
_CODE = re.compile(
    r"(?i)\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?:[ _-]?code)?|(?:error|exit|reply|return)[ _-]?code"
    r"|code|SQLSTATE|errno|ORA|ERROR|exit(?: status)?|signal)[ :=(\[#'\"-]{0,3}"
    r"(?:\d{1,5}|[0-9A-Z]{5})\b|\bE\d{4,5}\b"
)
"""Codes distinguish causes, other numbers do not."""
_QUOTED = re.compile(
    # An apostrophe within a word is not a quote.
    r"""(?<![^\W_])(?:'[^'\n]*'|"[^"\n]*"|`(?![A-Za-z_][\w$]*(?:\.[\w$]+)+`)[^`\n]*`|“[^”\n]*”|«[^»\n]*»)(?![^\W_])"""
)
MASKS = (
    Mask(_QUOTED, "'…'"),
    # PostgreSQL constraint violations: keep the columns, mask the values.
    Mask(re.compile(r"(?<=\)=)\([^()\n]*\)"), "(…)", (")=(",)),
    Mask(
        re.compile(
            r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
        ),
        "<id>",
        ("-",),
    ),
    Mask(re.compile(r"\b[\w.+%-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}\b"), "<mail>", ("@",)),
    Mask(re.compile(r"\barn:[\w-]*:[\w-]*:[^\s'\",;)\]]*"), "<arn>", ("arn:",)),
    Mask(
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
        ),
        "<time>",
        ("-",),
    ),
    Mask(
        re.compile(
            rf"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:\d\d?[ /-]{_MONTH}[ /-]\d{{2,4}}"
            rf"|{_MONTH} \d\d?,? \d{{4}}|{_MONTH} [ \d]?\d(?={_CLOCK}))(?:{_CLOCK})?"
            r"(?: (?:[+-]\d{4}|UTC|GMT|CES?T|[EP][DS]T))?(?: \d{4}\b)?"
        ),
        "<time>",
        _MONTHS,
    ),
    # Pods of replica sets and jobs: Kubernetes suffixes contain no vowels and no 0, 1 or 3. Digits
    # alone are a number: of order-10000 and order-45678, only the second could be a suffix.
    Mask(
        re.compile(
            r"(?<=[a-z0-9])-(?:(?=\d*-?\d*[a-z])[0-9a-f]{8,10}-|(?=[a-z]*\d)(?=\d*[a-z]))"
            r"[2456789bcdfghjklmnpqrstvwxz]{5}\b"
        ),
        "-<pod>",
        ("-",),
    ),
    Mask(
        re.compile(r"((?:/home|/Users|\\Users)[/\\])[^/\\\s'\":]+"),
        r"\1<user>",
        ("/home", "/Users", "\\Users"),
    ),
    Mask(
        re.compile(r"\btmp[a-z0-9_]{8}\b|(?<=/T/)[\w.-]+|(?<=/var/folders/)\w\w/\w+"),
        "<tmp>",
        ("tmp", "/T/", "/var/folders/"),
    ),
    Mask(
        re.compile(
            r"(?<=[-_.])(?=[A-Za-z]{0,5}[A-Z\d])(?=[A-Z\d]{0,5}[a-z])[A-Za-z\d]{6}(?=[/\s]|$)"
        ),
        "<tmp>",
        ("-", "_", "."),
    ),
    Mask(re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "<id>", ("0x", "0X")),
    Mask(re.compile(r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"), "<id>", (":", "-")),
    Mask(
        re.compile(
            r"(?<![\w:])\[?(?:(?:[0-9a-fA-F]{1,4}:){1,6}(?::[0-9a-fA-F]{1,4}){1,6}"
            r"|(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|::1)(?:\]|(?![\w:]))"
        ),
        "<n>",
        (":",),
    ),
    Mask(
        re.compile(
            r"\b(?=[\w-]{20})(?=[\w-]{0,64}[A-Z])(?=[\w-]{0,64}[a-z])"
            r"(?=(?:[A-Za-z_-]{0,32}\d){3})[\w-]+"
        ),
        "<id>",
        _DIGITS,
    ),
    Mask(re.compile(r"\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[0-9a-fA-F]{8,}\b"), "<id>", _DIGITS),
    Mask(re.compile(r"\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[0-9A-Za-z]{16,}\b"), "<id>", _DIGITS),
    # Go durations, in any units.
    Mask(
        re.compile(r"\b(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:ns|[uµ]s|ms|s)\b|\b\d+h\d+m\b"),
        "<n>s",
        _DIGITS,
    ),
    # Alternating letters and digits, as in no word.
    Mask(
        re.compile(
            r"\b(?=[A-Za-z]{1,3}\d{1,4}[A-Za-z]|\d{1,4}[A-Za-z]{1,3}\d)"
            r"(?![A-Za-z\d]{0,15}[A-Za-z]{4})[A-Za-z\d]{5,15}\b"
        ),
        "<id>",
        _DIGITS,
    ),
    Mask(re.compile(r"(?:(?<!\w)[-+])?\d+(?:[.,]\d+)*"), "<n>", _DIGITS),
    Mask(re.compile(r"\s+"), " "),
)
"""Patterns for varying text and their replacements, applied in this order."""
_MOST_OF_A_VALIDATION = 20_000
"""A validation error lists all invalid fields, so the list is complete only at the end of the
text."""
_VALIDATION = re.compile(r"\s*\d+ validation errors? for ([^\n]+)\n(.*)", re.DOTALL)
"""The text of pydantic's ValidationError: the model, then each location with its problem on the
next line."""
_OWN_VALIDATION = re.compile(r"\s*\d+ problem\(s\) in the body as ([^\n]+?): (.*)", re.DOTALL)
"""The text of redrive's InvalidMessage: the model, then each location followed by its problem."""
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
_SPACE = re.compile(r"\s+")
_MOST_OF_A_PLACE = 300


class Cause(NamedTuple):
    """What messages with the same cause have in common; unknown parts are empty.

    Args:
        error_type: the exception's class.
        message: its text, masked.
        frame: the file and function of the service's own code that raised it, without the line. If
            nothing is known about the error, the type of the message and the queue it failed in.
    """

    error_type: str
    message: str
    frame: str

    @property
    def group_id(self) -> str:
        """Twelve hex digits, the same for the same cause on every machine and in every version."""
        return _group_id(self)

    @property
    def what(self) -> str:
        """The error's type without its module, and its message."""
        said = (self.error_type.rpartition(".")[2], self.message)
        return (
            ": ".join(part for part in said if part)
            or "no error recorded (failed in a service without redrive)"
        )

    @property
    def in_words(self) -> str:
        """The error, and where it was raised."""
        return f"{self.what} ({self.frame})" if self.frame else self.what


_UNKNOWN = Cause("", "", "")


def cause_of(message: FailedMessage) -> Cause:
    """Return why a message failed.

    If a peer set it aside without giving an error, the queue and the task or message type
    distinguish causes.
    """
    known = cause_known_of(message)
    if isinstance(known, Cause):
        return known
    cause = cause_from(
        message.error_type or "", message.error_message or "", message.traceback or ""
    )
    if cause == _UNKNOWN:
        cause = cause._replace(frame=_place_of(message))
    remember_cause(message, cause)
    return cause


def _place_of(message: FailedMessage) -> str:
    """Return the queue in which a message failed, with its task or type if known."""
    task = message.properties.headers.scalar("task")  # Celery's
    kind = task if isinstance(task, str) else message.properties.type
    place = f"{kind} in {message.queue}" if kind else message.queue
    return _SPACE.sub(" ", text_of(place))[:_MOST_OF_A_PLACE]


def masked(text: str) -> str:
    """Return a text on one line, with quoted values, ids, times and numbers replaced by
    placeholders.

    A validation error, which lists each invalid value and its location, is reduced to the model and
    the fields, without list indexes.
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
    text = with_codes_hidden(text[:_MOST_CHARACTERS])
    digits = _has_digits(text)
    for mask in MASKS:
        if mask.is_possible(text, digits):
            text = mask.pattern.sub(mask.instead, text)
    return with_codes(text).strip()


def with_codes_hidden(text: str) -> str:
    """Hide the codes in a text so that no mask takes them for numbers."""
    if not _has_digits(text):
        return text
    return _CODE.sub(lambda code: code[0].translate(_TO_KEPT), text)


def _has_digits(text: str) -> bool:
    return any(map(text.__contains__, _DIGITS))


def with_codes(text: str) -> str:
    """Restore the codes hidden by `with_codes_hidden`."""
    return text if text.isascii() else text.translate(_FROM_KEPT)


def _pydantic_problems(text: str) -> Iterator[str]:
    """Yield the location of each problem, or its description if it has no location."""
    place = ""
    for line in text.splitlines():
        if line[:1] != " ":
            place = line
        elif line[:3] != "   ":  # deeper lines only link to documentation
            yield place or _DETAILS.sub("", line)
            place = ""


def _own_problems(text: str) -> Iterator[str]:
    for problem in text.split("; "):
        yield problem.partition(": ")[0]


def _field(place: str) -> str:
    """Return a location without list indexes."""
    return _masked(
        ".".join(part for part in _PLACE.split(place.strip()) if not _INDEX.fullmatch(part))
    )


def frame_of(traceback: str) -> str:
    """Return the innermost frame of a Python traceback outside libraries, as `file in function`;
    empty if there is none.

    The file is its last folder and name only, because a service may be installed at a different
    path on each host.
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
        frames: how many library frames they contain, which readers may skip; 0 for frames of the
            service's own code and for lines outside frames.
    """

    text: str
    frames: int


def parts_of(traceback: str) -> list[TracebackPart]:
    """Split a traceback into parts, in order; consecutive library frames form one part."""
    found: list[TracebackPart] = []
    is_foreign = False
    for line in traceback.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            is_foreign = _FOREIGN.search(frame["file"]) is not None
        elif line[:1] not in ("", " ", "\t", "|"):
            is_foreign = False  # the exception, or the heading of the next traceback
        frames = int(is_foreign and frame is not None)
        last = found[-1] if found else None
        if last is not None and bool(last.frames) == is_foreign:
            found[-1] = TracebackPart(f"{last.text}\n{line}", last.frames + frames)
        else:
            found.append(TracebackPart(line, frames))
    return found


@lru_cache(maxsize=256)
def cause_from(error_type: str, message: str, traceback: str) -> Cause:
    """Return the cause that an error's type, text and Python traceback tell."""
    return Cause(error_type, masked(message), _frame(traceback))


# Many messages share a traceback, and finding its frame costs more than everything else.
_frame = lru_cache(maxsize=256)(frame_of)


@lru_cache(maxsize=1024)
def _group_id(cause: Cause) -> str:
    digest = hashlib.sha256()
    for part in cause:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()[:_ID_LENGTH]
