"""Pauses and rates of subscriptions, as entries of the stream `master.control` that their workers
follow.

Anybody who may write to the stream may write anything: who wrote an entry is what the broker
vouches for, and an entry that can't be read is ignored.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Self

from redrive.redaction import in_one_line, redact
from redrive.topology.model import Queue
from redrive.topology.names import ExchangeFamily
from redrive.topology.rates import format_rate

Action = Literal["pause", "resume"]

_MOST_BYTES = 10_000_000
_SEGMENT_BYTES = 1_000_000
"""A broker drops old entries by whole segments. Source:
https://www.rabbitmq.com/docs/streams#retention"""
_MOST_OF_AN_ENTRY = 4096
_LONGEST_TEXT = 500
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Control:
    """What somebody wants of the workers of a subscription. The last one counts.

    Args:
        queue: its main queue.
        action: whether to stop taking messages (with a `rate`, to go slower), or to go on.
        at: when it was written, according to its author.
        reason: why; may be empty.
        until: when a pause ends by itself; None for never.
        rate: messages per second of all workers together; None for a pause.
        whoami: who its author claims to be.
        user: the broker user who wrote it, according to the broker; empty if it vouches for none.
    """

    queue: str
    action: Action
    at: datetime
    reason: str = ""
    until: datetime | None = None
    rate: float | None = None
    whoami: str = ""
    user: str = ""

    def encode(self) -> bytes:
        """Return the body of its entry."""
        return json.dumps(
            {
                "format": _FORMAT,
                "queue": self.queue,
                "action": self.action,
                "at": self.at.isoformat(),
                "reason": self.reason[:_LONGEST_TEXT],
                "until": None if self.until is None else self.until.isoformat(),
                "rate": self.rate,
                "whoami": self.whoami[:_LONGEST_TEXT],
            }
        ).encode()

    @classmethod
    def decode(cls, body: bytes, user: str) -> Self | None:
        """Return what the body of an entry says; None if it can't be read."""
        if len(body) > _MOST_OF_AN_ENTRY:
            return None
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return None
        match found:
            case {
                "format": int(number),
                "queue": str(queue),
                "action": "pause" | "resume" as action,
                "at": str(at),
            } if number == _FORMAT:
                pass
            case _:
                return None
        written, until = _moment(at), _moment(found.get("until"))
        rate = found.get("rate")
        if written is None or (until is None and found.get("until") is not None):
            return None
        if rate is not None and not _is_rate(rate):
            return None
        texts = (_text(found.get("reason")), _text(found.get("whoami")))
        return cls(queue, action, written, texts[0], until, rate, texts[1], user)

    def holds(self, now: datetime) -> bool:
        """Return whether it keeps workers from taking all messages now."""
        return self.action == "pause" and (self.until is None or now < self.until)

    @property
    def by(self) -> str:
        """Who wrote it: the broker's user, and who that user claims to be."""
        user = in_one_line(self.user) or "a user whom the broker does not vouch for"
        return f"{user} ({self.whoami})" if self.whoami else user

    def by_user(self, user: str) -> Self:
        """Return the same of a user who has just written it."""
        return replace(self, user=user)

    def __str__(self) -> str:
        """Say who wants what, why, since when and until when."""
        what = "paused" if self.rate is None else f"held to {format_rate(self.rate)}"
        until = "until resumed" if self.until is None else f"until {_told(self.until)}"
        why = f": {self.reason}" if self.reason else ""
        return f"{what} by {self.by} since {_told(self.at)}, {until}{why}"

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {
            "by": self.user or None,
            "whoami": self.whoami,
            "reason": self.reason,
            "since": self.at.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
            "rate": self.rate,
        }


def controls_of(entries: Iterable[tuple[bytes, str]], now: datetime) -> dict[str, Control]:
    """Return what is in force, by queue, from the entries of the stream and their users."""
    found = {
        one.queue: one for body, user in entries if (one := Control.decode(body, user)) is not None
    }
    return {queue: one for queue, one in found.items() if one.holds(now)}


def control_queue(exchanges: ExchangeFamily) -> Queue:
    """Return the control stream of a family."""
    return Queue(
        exchanges.control,
        {
            "x-queue-type": "stream",
            "x-max-length-bytes": _MOST_BYTES,
            "x-stream-max-segment-size-bytes": _SEGMENT_BYTES,
        },
    )


def _text(value: object) -> str:
    return in_one_line(redact(value[:_LONGEST_TEXT])) if isinstance(value, str) else ""


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _is_rate(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )


def _told(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"
