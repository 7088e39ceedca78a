"""One step of a job, as it stands in the shared journal: JSON with a format's version.

Anybody who may write to the stream may append to it, so what is read is checked: text that is no
entry is told apart from an entry of a newer version, and neither raises. An entry has no
credentials in it, and a body only where somebody has edited one.
"""

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self, cast

from redrive.errors import RedriveError
from redrive.failures.cause_note import CauseNote
from redrive.failures.job_record import JobRecord, State
from redrive.failures.order import Order
from redrive.pubsub.reports import MOST_IDS
from redrive.redaction import redact

FORMAT = 3
"""The version of the newest form that is read. Each step is written in the form that has it first:
so an older version reads all but what is new to it."""
LONGEST_ENTRY = 8 * 1024 * 1024
"""Bytes of the longest entry that is read. Source: max_message_size is 16 MiB by default from
RabbitMQ 4.0 on."""
LONGEST_BODY = 4 * 1024 * 1024
"""Bytes of the longest body, or of all edited bodies of a job together, that is kept in one."""

_ID = re.compile(r"[0-9A-Za-z._:%-]{1,100}")
_DIGEST_SIZE = 32
_LONGEST_TEXT = 64 * 1024
_LARGEST_NUMBER = 2**53
"""Far more than there are messages; their sums are numbers that SQLite knows."""
_DEEPEST = 4


class JobStep(StrEnum):
    """What a job did."""

    BEGUN = "begun"
    """It begins; the plan is in its record."""
    RESUMED = "resumed"
    """Somebody has it go on."""
    TAKEN_UP = "taken-up"
    """It is known what its earlier runs have sent."""
    CANARY = "canary"
    """Its canary was sent, and is watched."""
    PROGRESS = "progress"
    SENDING = "sending"
    """Messages are about to be handed to the broker."""
    SETTLED = "settled"
    """These alone are still on their way."""
    ORIGINAL = "original"
    """A message as it was before it was edited."""
    HEARD = "heard"
    """What subscribers have told of its messages since."""
    STOPPED = "stopped"
    """By itself."""
    ENDED = "ended"
    """Done, interrupted or failed: its record says which."""
    ASKED = "asked"
    """Somebody asks for the approval of somebody else; the plan is in its record."""
    DECLINED = "declined"
    """It is not approved."""
    FORGOTTEN = "forgotten"
    """Somebody says that it is no job that anybody runs."""
    STOP = "stop"
    """Somebody asks whoever runs the job to stop it."""
    READ = "read"
    """Somebody reads the journal: what stands before it was there by then."""
    REMARK = "remark"
    """Somebody has said something of a cause; of no job."""


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
"""The steps whose entries have the job's record."""
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
"""The steps whose entries say all that there is to know of a job, its order and what is on its way
included: whoever finds nothing before them needs nothing else."""
_OF_NO_JOB = frozenset((JobStep.READ, JobStep.REMARK))
_SINCE = {
    **dict.fromkeys((JobStep.ASKED, JobStep.DECLINED, JobStep.REMARK, JobStep.STOP), 2),
    JobStep.FORGOTTEN: 3,
}
"""The form that has a step first, if that is not the first one. An older version is told by such an
entry that it must not run the job."""


class Unreadable(ValueError):
    """This is no entry."""


class NewerEntry(ValueError):
    """An entry of a newer version of redrive."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self.job = job


@dataclass(frozen=True, slots=True)
class Original:
    """A message before it was edited, as bytes.

    Args:
        failure_id: its id.
        queue: the main queue.
        parts: its exchange, routing key, properties and body; None where they were left out.
    """

    failure_id: str
    queue: str
    parts: tuple[bytes, bytes, bytes, bytes] | None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A step of a job.

    Args:
        step: which.
        job: the job's id; empty where it is about none.
        who: the operating system's user and its host.
        user: the broker's user, as the broker vouches for it; empty where it does not.
        id: the entry's own id: one that is read twice counts once.
        at: when.
        run: the id of the job's run.
        record: the job then.
        handed_over: how many messages it had handed to the broker in all.
        digests: those of messages: about to be sent, or still on their way.
        told: how much more of each kind of outcome was told, by the names of the record's fields.
        original: a message as it was.
        remark: what was said of a cause.
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
    remark: CauseNote | None = None

    @property
    def by(self) -> str:
        """Who has written it, in words."""
        return f"{self.who} as {self.user}" if self.user else self.who

    def encode(self, *, bodies: bool = True) -> bytes:
        """It as the body of a message."""
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
        if self.digests:
            values["digests"] = _base64(b"".join(map(bytes.fromhex, self.digests)))
        if self.told:
            values["told"] = dict(self.told)
        if self.original is not None:
            values["original"] = _original_in_json(self.original, bodies=bodies)
        if self.remark is not None:
            values["remark"] = self.remark.as_json()
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes, user: str = "") -> Self:
        """The entry in a message's body."""
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
            raise Unreadable("no version of a format")
        if version > FORMAT:
            raise NewerEntry(job if isinstance(job, str) and _ID.fullmatch(job) else "")
        step = JobStep(_text(values["step"]))
        if step not in _OF_NO_JOB and not _ID.fullmatch(_text(job)):
            raise Unreadable("no id of a job")
        record = _record_of(values["record"]) if step in WITH_RECORD else None
        if record is not None and record.id != job:
            raise Unreadable("the record of another job")
        return cls(
            step,
            _text(job),
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
"""How many edited bodies an order in the shared journal is without."""


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
    """A job, each value of which is what it should be: people will be shown them, and may have the
    job go on."""
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
    """Raises Unreadable, or what reading it raises, where an order can't have been written by
    `Order.as_json`."""
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
            raise Unreadable("an order with something else in place of a number")
    if not isinstance(order.get("via", False), bool):
        raise Unreadable("an order with something else in place of yes or no")
    for edited in edits.values():
        base64.b64decode(cast("str", edited), validate=True)
    if not selection.get("ids"):  # which are of redrive 0.1: whoever has it go on is told
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


def _remark_of(values: Mapping[str, object], user: str) -> CauseNote:
    remark = _mapping(values["remark"])
    for one in remark.values():
        _text(one)
    return CauseNote.from_json(
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
        raise Unreadable("no object")
    return found


def _flat(found: object, depth: int = 0) -> None:
    """Raises Unreadable where values are in one another more deeply than any of ours."""
    if depth > _DEEPEST:
        raise Unreadable("too deep")
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for one in inner:
        _flat(one, depth + 1)


def _list(found: object) -> Sequence[object]:
    if not isinstance(found, list):
        raise Unreadable("no list")
    return found


def _text(found: object, longest: int = _LONGEST_TEXT) -> str:
    if not isinstance(found, str) or len(found) > longest:
        raise Unreadable("no text, or too long")
    found.encode()  # half a surrogate pair is no text that can be kept
    return found


def _number(found: object) -> int:
    if type(found) is not int or not 0 <= found <= _LARGEST_NUMBER:
        raise Unreadable("no number")
    return found


def _time(found: object) -> datetime:
    time = datetime.fromisoformat(_text(found))
    if time.tzinfo is None:
        raise Unreadable("a time of no zone")
    return time.astimezone(UTC)
