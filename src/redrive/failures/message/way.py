"""A message's way through the broker as text, according to `x-death`."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from redrive.amqp.field_table import FieldValue
from redrive.failures.message.failed_message import FailedMessage
from redrive.redaction import text_of
from redrive.topology import headers, names

_REASONS = {
    "rejected": "an attempt failed",
    "expired": "it waited",
    "maxlen": "it was pushed out because the queue was full",
    "delivery_limit": "it was returned too often",
}


def way_of(message: FailedMessage) -> list[str]:
    """Return a sentence for each stage, the oldest first.

    The broker records each stage once, with the number of times it was passed.
    """
    return [
        _begin(message),
        *reversed([_stage(message, entry) for entry in message.delivery.deaths.entries]),
        *_end(message),
    ]


def _begin(message: FailedMessage) -> str:
    at = "" if message.published_at is None else f" at {_time(message.published_at)}"
    through = (
        "" if message.exchange is None else f" to {message.exchange or 'the default exchange'}"
    )
    return f"published{through} with {text_of(message.routing_key)}{at}"


def _stage(message: FailedMessage, entry: Mapping[str, FieldValue]) -> str:
    reason, queue, count = (entry.get(name) for name in ("reason", "queue", "count"))
    what = _REASONS.get(str(reason), f"it left for the reason {_word(reason)}")
    if queue == names.retry_queue(message.queue) and reason == "expired":
        what = "it waited for its next attempt"
    times = headers.counted(count)
    often = "" if times == 1 else f", {times:,} times" if times else ", an unknown number of times"
    first = entry.get("time")
    since = (
        f", {'first ' if times > 1 else ''}at {_time(first)}" if isinstance(first, datetime) else ""
    )
    return f"in {_word(queue)} {what}{often}{since}{_came(entry)}"


def _came(entry: Mapping[str, FieldValue]) -> str:
    exchange, keys = entry.get("exchange"), entry.get("routing-keys")
    through = (
        "" if not isinstance(exchange, str) else f"through {exchange or 'the default exchange'} "
    )
    named = ", ".join(map(_word, keys)) if isinstance(keys, list) and keys else ""
    return f"; it had come {through}with {named}" if named else ""


def _end(message: FailedMessage) -> Iterator[str]:
    if message.failed_at is not None:
        by = "" if message.host is None else f" by {message.host}"
        why = message.reason or "no reason is known"
        yield (
            f"set aside in {text_of(message.failed_queue)}{by} at {_time(message.failed_at)}: {why}"
        )


def _word(value: FieldValue) -> str:
    return text_of(value) if isinstance(value, str) else "an unreadable name"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
