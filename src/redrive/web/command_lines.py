"""The command lines that do the same as a page, for people to copy."""

import shlex
from collections.abc import Iterable

from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.web.page_request import QueuePlace


def groups_command(place: QueuePlace, filter_: Filter) -> str:
    """Return the command that lists the causes of a queue."""
    return command("failed", "groups", *_source(place), *_where(filter_))


def list_command(place: QueuePlace, filter_: Filter) -> str:
    """Return the command that lists messages."""
    return command("failed", "list", *_source(place), *_filter(filter_))


def snapshot_command(place: QueuePlace, path: str) -> str:
    """Return the command that copies the messages of a queue to a file."""
    return command("failed", "snapshot", *_source(place), "-o", path)


def show_command(place: QueuePlace, id_: str) -> str:
    """Return the command that shows a message."""
    return command("failed", "show", *_source(place), id_)


def query_command(place: QueuePlace, sql: str) -> str:
    """Return the command that runs a query."""
    return command("failed", "query", *_source(place), sql)


def requeue_command(place: QueuePlace, order: Order, reason: str) -> str:
    """Return the command for an order; its patch, if any, is in the file `patch.json`."""
    guards = order.guards
    words = [*_source(place), *_filter(order.filter)]
    words += [] if order.limit is None else ["--limit", str(order.limit)]
    words += [] if order.to is None else ["--to", order.to]
    words += ["--via"] if order.via else []
    words += ["--unchecked"] if order.unchecked else []
    words += ["--canary", str(guards.canary)] if guards.canary else []
    words += [] if guards.stop_at is None else ["--stop-at", f"{guards.stop_at * 100:g}%"]
    words += [] if guards.unknown == "stop" else ["--unknown", guards.unknown.value]
    words += [] if order.rate is None else ["--rate", f"{order.rate:g}/s"]
    words += [] if order.pace_by_depth is None else ["--pace-by-depth", str(order.pace_by_depth)]
    words += [] if order.patch is None else ["--patch", "patch.json"]
    words += [] if order.function is None else ["--transform", order.function]
    words += ["--force"] if order.force else []
    words += ["--reason", reason] if reason else []
    return command("failed", "requeue", *words)


def try_command(place: QueuePlace, order: Order) -> str:
    """Return the command that tries a handler on the messages of an order; `APP` is a
    placeholder."""
    limit = [] if order.limit is None else ["--limit", str(order.limit)]
    words = [*_source(place), *_filter(order.filter), *limit, "--handler", "APP"]
    return command("failed", "try", *words)


def expire_command(place: QueuePlace, older_than: str, folder: str, reason: str) -> str:
    """Return the command that moves old messages of a queue into a file in a folder."""
    words = ["--older-than", older_than, "-o", f"{folder}/expired.parquet", "--reason", reason]
    return command("failed", "expire", *_source(place), *words)


def discard_command(place: QueuePlace, filter_: Filter, reason: str) -> str:
    """Return the command that moves messages to a file."""
    words = [*_source(place), *_filter(filter_), "-o", "discarded.jsonl", "--reason", reason]
    return command("failed", "discard", *words)


def edit_command(place: QueuePlace, id_: str, reason: str) -> str:
    """Return the command that edits one message's body and requeues the message."""
    words = ["--id", id_, "--edit", *(["--reason", reason] if reason else [])]
    return command("failed", "requeue", *_source(place), *words)


def say_command(group: str, state: str, fixed_in: str, note: str) -> str:
    """Return the command that sets a cause's state and note."""
    words = ["--state", state]
    words += ["--fixed-in", fixed_in] if fixed_in else []
    words += ["--note", note] if note else []
    return command("causes", "say", group, *words)


def _source(place: QueuePlace) -> list[str]:
    # A name that begins with a dash would be taken for an option.
    named = ["--", place.name] if place.name.startswith("-") else [place.name]
    return [*(["--literal"] if place.literal else []), *named]


def _where(filter_: Filter) -> list[str]:
    return ["--where", filter_.where] if isinstance(filter_.where, str) else []


def _filter(filter_: Filter) -> list[str]:
    groups = [word for group in filter_.groups for word in ("--group", group)]
    return [*groups, *_where(filter_)]


def command(*words: str) -> str:
    """Return a command of redrive, quoted for a shell."""
    return " ".join(("redrive", *_quoted(words)))


def _quoted(words: Iterable[str]) -> list[str]:
    return [shlex.quote(word) for word in words]
