"""One step of a job, as an entry of the shared journal: JSON with a format version.

Anybody with write access to the stream may append to it, so entries are checked when read. Invalid
text and entries of newer versions raise different errors, so that readers can skip either. An entry
contains no credentials, and no bodies except edited ones.
"""

import base64
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, Self, cast

from redrive.errors import RedriveError
from redrive.failures.jobs.cause_remark import CauseRemark
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.queue.order import Order
from redrive.pubsub.reports import MOST_IDS
from redrive.redaction import redact

FORMAT = 3
"""The newest format that can be read.

Each step is written in the first format that has it, so an older version can read every step it
knows.
"""
LONGEST_ENTRY = 8 * 1024 * 1024
"""Bytes of the longest entry that is read. Source: max_message_size is 16 MiB by default since
RabbitMQ 4.0."""
LONGEST_BODY = 4 * 1024 * 1024
"""Bytes of the longest body kept in an entry, or of all edited bodies of a job together."""

_ID = re.compile(r"[0-9A-Za-z._:%-]{1,100}")
_DIGEST_SIZE = 32
_DIGEST = re.compile("[0-9a-f]{64}")
_LONGEST_TEXT = 64 * 1024
_LARGEST_NUMBER = 2**53
"""Far more than any number of messages; sums of such numbers still fit into SQLite's integers."""
_DEEPEST = 4


class JobStep(StrEnum):
    """A step of a job."""

    BEGUN = "begun"
    """The job begins; its record has the plan."""
    RESUMED = "resumed"
    """Somebody resumes the job."""
    TAKEN_UP = "taken-up"
    """The messages that earlier runs sent have been determined."""
    CANARY = "canary"
    """The canary was sent, and is being watched."""
    PROGRESS = "progress"
    SENDING = "sending"
    """Messages are about to be handed to the broker."""
    SETTLED = "settled"
    """Only the listed messages are still in flight."""
    ORIGINAL = "original"
    """A message as it was before it was edited."""
    HEARD = "heard"
    """New reports from subscribers about its messages."""
    STOPPED = "stopped"
    """The job stopped by itself."""
    ENDED = "ended"
    """The job is done, interrupted or failed, as its record says."""
    ASKED = "asked"
    """Somebody asks for somebody else's approval; the record has the plan."""
    DECLINED = "declined"
    """The job was not approved."""
    FORGOTTEN = "forgotten"
    """Somebody has said that nobody runs this job."""
    STOP = "stop"
    """Somebody asks the job's process to stop it."""
    READ = "read"
    """Somebody reads the journal: all entries before this one existed by then."""
    REMARK = "remark"
    """A note on a cause; belongs to no job."""


WITH_RECORD = frozenset(
    (
        JobStep.BEGUN,
        JobStep.RESUMED,
        JobStep.TAKEN_UP,
        JobStep.CANARY,
        JobStep.PROGRESS,
        JobStep.STOPPED,
        JobStep.ENDED,
        JobStep.HEARD,
        JobStep.ASKED,
        JobStep.DECLINED,
        JobStep.FORGOTTEN,
    )
)
"""The steps whose entries contain the job's record."""
WHOLE = frozenset(
    (
        JobStep.BEGUN,
        JobStep.RESUMED,
        JobStep.TAKEN_UP,
        JobStep.STOPPED,
        JobStep.ENDED,
        JobStep.ASKED,
        JobStep.DECLINED,
        JobStep.FORGOTTEN,
    )
)
"""The steps whose entries describe a job completely, with its order and the messages in flight.

A reader needs no earlier entries.
"""
_OF_NO_JOB = frozenset((JobStep.READ, JobStep.REMARK))
_SINCE = {
    **dict.fromkeys((JobStep.ASKED, JobStep.DECLINED, JobStep.REMARK, JobStep.STOP), 2),
    JobStep.FORGOTTEN: 3,
}
"""The first format that has a step, if it isn't format 1. Such an entry tells older versions that
they must not run the job."""


class Unreadable(ValueError):
    """The text is not a valid entry."""


class NewerEntry(ValueError):
    """An entry of a newer version of redrive."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self.job = job


@dataclass(frozen=True, slots=True)
class Original:
    """A message before it was edited, as bytes.

    Args:
        failure_id: its failure id.
        queue: the main queue.
        parts: its exchange, routing key, properties and body; None if they were left out.
    """

    failure_id: str
    queue: str
    parts: tuple[bytes, bytes, bytes, bytes] | None


class JobEvent(NamedTuple):
    """Something that has happened to a job.

    Args:
        at: when.
        step: what.
        by: who did it.
        state: the state of the job then; empty if it is unknown.
        problem: why it has ended; empty otherwise.
    """

    at: datetime
    step: JobStep
    by: str
    state: str
    problem: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A step of a job.

    Args:
        step: the kind of step.
        job: the job's id; empty if the entry belongs to no job.
        who: the operating system's user and its host.
        user: the broker user, validated by the broker; empty if it isn't.
        id: the entry's own id: an entry that is read twice counts once.
        at: when it was written.
        run: the id of the job's run.
        record: the job at that time.
        handed_over: number of messages that the job had handed to the broker in all.
        digests: the digests of messages that are about to be sent, or still in flight.
        told: new reports of each outcome, by the names of the record's fields.
        original: a message before it was edited.
        remark: a note on a cause.
    """

    step: JobStep
    job: str = ""
    who: str = ""
    user: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run: str = ""
    record: JobRecord | None = None
    handed_over: int = 0
    digests: tuple[str, ...] = ()
    told: Mapping[str, int] = field(default_factory=dict)
    original: Original | None = None
    remark: CauseRemark | None = None

    @property
    def by(self) -> str:
        """Who wrote it, as text."""
        return f"{self.who} as {self.user}" if self.user else self.who

    def encode(self, *, bodies: bool = True) -> bytes:
        """Return the entry as the body of a message."""
        values: dict[str, object] = {
            "format": _SINCE.get(self.step, 1),
            "id": self.id,
            "step": self.step.value,
            "job": self.job,
            "who": self.who,
            "at": self.at.isoformat(),
            "run": self.run,
        }
        if self.record is not None:
            values["record"] = _record_in_json(self.record, whole=self.step in WHOLE, bodies=bodies)
        if self.handed_over:
            values["handed_over"] = self.handed_over
        # Jobs of redrive 0.1 recorded failure ids instead of digests: they stay in the file.
        if digests := [one for one in self.digests if _DIGEST.fullmatch(one)]:
            values["digests"] = _base64(b"".join(map(bytes.fromhex, digests)))
        if self.told:
            values["told"] = dict(self.told)
        if self.original is not None:
            values["original"] = _original_in_json(self.original, bodies=bodies)
        if self.remark is not None:
            values["remark"] = self.remark.as_json()
        # Half a surrogate pair, as in an argument that is not UTF-8, is no text that others read.
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "replace"
        )

    @classmethod
    def decode(cls, body: bytes, user: str = "") -> Self:
        """Read an entry from the body of a message."""
        if len(body) > LONGEST_ENTRY:
            raise Unreadable("too long")
        try:
            return cls._decoded(body, user)
        except (Unreadable, NewerEntry):
            raise
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise Unreadable(str(error)) from error
        except RedriveError as error:
            raise Unreadable(str(error)) from error

    @classmethod
    def _decoded(cls, body: bytes, user: str) -> Self:
        values = _mapping(json.loads(body.decode()))
        version = values.get("format")
        job = values.get("job", "")
        if type(version) is not int or version < 1:
            raise Unreadable("not a version of a format")
        if version > FORMAT:
            raise NewerEntry(job if isinstance(job, str) and _ID.fullmatch(job) else "")
        step = JobStep(_text(values["step"]))
        if step not in _OF_NO_JOB and not _ID.fullmatch(_text(job)):
            raise Unreadable("not an id of a job")
        record = _record_of(values["record"]) if step in WITH_RECORD else None
        if record is not None and record.id != job:
            raise Unreadable("the record of another job")
        return cls(
            step,
            "" if step in _OF_NO_JOB else _text(job),
            _text(values.get("who", "")),
            user,
            str(uuid.UUID(_text(values["id"]))),
            _time(values["at"]),
            _text(values.get("run", "")),
            record,
            _number(values.get("handed_over", 0)),
            _digests(values.get("digests", "")),
            {
                name: _number(count)
                for name, count in _mapping(values.get("told", {})).items()
                if name in _TOLD
            },
            _original_of(values["original"]) if step is JobStep.ORIGINAL else None,
            _remark_of(values, user) if step is JobStep.REMARK else None,
        )


_TOLD = ("handled", "failed_told", "retrying_told", "retried_told")
_NUMBERS = (
    *_TOLD,
    "process",
    "planned",
    "sent",
    "possible_duplicates",
    "not_sent",
    "failed_here",
)
_TIMES = ("begun_at", "changed_at")
_FLAGS = ("locked", "literal")
_BELONGS_TO_THE_ORDER = ("order", "exchanges", "plan")
_LISTS = ("duplicate_ids", "not_sent_ids")
EDITS_LEFT_OUT = "edits_left_out"
"""The key of the number of edited bodies that an order in the shared journal lacks."""


def _record_in_json(job: JobRecord, *, whole: bool, bodies: bool) -> dict[str, object]:
    values = job.as_json()
    values["reason"] = redact(job.reason)
    values["problem"] = redact(job.problem)
    if not whole:
        left_out = (*_BELONGS_TO_THE_ORDER, *_LISTS)
        return {name: one for name, one in values.items() if name not in left_out}
    edits = cast("Mapping[str, str]", job.order.get("edits") or {})
    if edits and (not bodies or sum(map(len, edits.values())) > LONGEST_BODY):
        values["order"] = {**job.order, "edits": {}, EDITS_LEFT_OUT: len(edits)}
    return values


def _record_of(found: object) -> JobRecord:
    """Return a record with the type of each value checked: people may see it, or resume the job."""
    values = _mapping(found)
    known: dict[str, Any] = {
        one.name: values[one.name] for one in fields(JobRecord) if one.name in values
    }
    for name, value in known.items():
        if name in _NUMBERS:
            _number(value)
        elif name in _TIMES:
            known[name] = _time(value)
        elif name in _BELONGS_TO_THE_ORDER:
            _flat(_mapping(value))
        elif name in _LISTS:
            known[name] = [_text(one) for one in _list(value)[:MOST_IDS]]
        elif name == "state":
            known[name] = State(_text(value))
        elif name in _FLAGS:
            known[name] = value is True
        else:
            _text(value)
    job = JobRecord(**known)
    if job.order and job.kind == "requeue":
        _check_order(job.order)
    if job.exchanges:
        _ = job.family
    return job


def _check_order(order: Mapping[str, object]) -> None:
    """Check that `Order.as_json` can have written an order; raise Unreadable or a parser's error if
    not."""
    selection = _mapping(order["selection"])
    lists = [selection["groups"], selection.get("digests", []), selection.get("ids", [])]
    texts: list[object] = [one for some in lists for one in _list(some)]
    texts += [one for one in (selection["where"], *map(order.get, _TEXTS)) if one is not None]
    edits = _mapping(order.get("edits", {}))
    texts += [*edits.values()]
    for text in texts:
        _text(text, LONGEST_ENTRY)
    for name in ("canary", "limit", EDITS_LEFT_OUT):
        if order.get(name) is not None:
            _number(order[name])
    for name in ("watch", "rate", "stop_at"):
        value = order.get(name)
        if value is not None and (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not 0 <= value < _LARGEST_NUMBER
        ):
            raise Unreadable("an order whose number is not a number")
    if not isinstance(order.get("via", False), bool):
        raise Unreadable("an order whose flag is not true or false")
    for edited in edits.values():
        base64.b64decode(cast("str", edited), validate=True)
    if not selection.get("ids"):  # ids are from redrive 0.1: resuming such a job reports it
        Order.from_json(order)


_TEXTS = ("to", "patch", "function")


def _original_in_json(original: Original, *, bodies: bool) -> dict[str, object]:
    values: dict[str, object] = {"failure_id": original.failure_id, "queue": original.queue}
    parts = original.parts
    if bodies and parts is not None and sum(map(len, parts)) <= LONGEST_BODY:
        values["parts"] = [_base64(part) for part in parts]
    return values


def _original_of(found: object) -> Original:
    values = _mapping(found)
    parts: tuple[bytes, bytes, bytes, bytes] | None = None
    if "parts" in values:
        exchange, key, properties, body = (
            base64.b64decode(_text(one, LONGEST_ENTRY), validate=True)
            for one in _list(values["parts"])
        )
        parts = (exchange, key, properties, body)
    return Original(_text(values["failure_id"]), _text(values["queue"]), parts)


def _remark_of(values: Mapping[str, object], user: str) -> CauseRemark:
    remark = _mapping(values["remark"])
    for one in remark.values():
        _text(one)
    return CauseRemark.from_json(
        remark,
        id_=str(uuid.UUID(_text(values["id"]))),
        at=_time(values["at"]),
        who=_text(values.get("who", "")),
        user=user,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _digests(found: object) -> tuple[str, ...]:
    data = base64.b64decode(_text(found, LONGEST_ENTRY), validate=True)
    if len(data) % _DIGEST_SIZE:
        raise Unreadable("half a digest")
    return tuple(
        data[start : start + _DIGEST_SIZE].hex() for start in range(0, len(data), _DIGEST_SIZE)
    )


def _mapping(found: object) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise Unreadable("not an object")
    return found


def _flat(found: object, depth: int = 0) -> None:
    """Check that values are not nested more deeply than any entry of ours, and are JSON: SQLite
    refuses the infinite numbers that Python's parser takes."""
    if depth > _DEEPEST:
        raise Unreadable("too deep")
    if isinstance(found, float) and not math.isfinite(found):
        raise Unreadable("a number that is not finite")
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for one in inner:
        _flat(one, depth + 1)


def _list(found: object) -> Sequence[object]:
    if not isinstance(found, list):
        raise Unreadable("not a list")
    return found


def _text(found: object, longest: int = _LONGEST_TEXT) -> str:
    if not isinstance(found, str) or len(found) > longest:
        raise Unreadable("not a text, or too long")
    found.encode()  # an unpaired surrogate can't be stored
    return found


def _number(found: object) -> int:
    if type(found) is not int or not 0 <= found <= _LARGEST_NUMBER:
        raise Unreadable("not a number")
    return found


def _time(found: object) -> datetime:
    time = datetime.fromisoformat(_text(found))
    if time.tzinfo is None:
        raise Unreadable("a time without a zone")
    return time.astimezone(UTC)
