"""How commands print the dead-letter queues that redrive did not make."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby

from redrive.cli.output import Cell, TableColumn
from redrive.number_text import count_of
from redrive.pubsub.admin.dead_letter_survey import CountedQueue
from redrive.topology.dead_letter_queues import DeadLetterQueue, Origin

_MOST_ORIGINS = 3
"""Number of origins that a cell names: hundreds of queues may share one dead-letter queue."""


def fullest_first(found: Sequence[CountedQueue]) -> list[CountedQueue]:
    """Return the queues, the fullest first."""
    return sorted(found, key=lambda one: (-(one.messages or 0), one.queue.name))


def columns(*, in_detail: bool = False) -> dict[TableColumn, Callable[[CountedQueue], str | Cell]]:
    """Return the columns of a table of the queues; in detail, with their dialects and oldest
    messages."""
    found: dict[TableColumn, Callable[[CountedQueue], str | Cell]] = {
        TableColumn("queue", give=True, wrap=True, least=24): lambda one: one.queue.name,
        TableColumn("messages", "right"): lambda one: depth_cell(one.messages),
        TableColumn("consumers", "right", hide=2): lambda one: (
            "–" if one.consumers is None else f"{one.consumers:,}"
        ),
        TableColumn("comes from", give=True, wrap=True, least=20): lambda one: _origins(one.queue),
    }
    details: dict[TableColumn, Callable[[CountedQueue], str | Cell]] = {
        TableColumn("dialect", give=True, wrap=True, least=12, hide=3): lambda one: (
            " or ".join(one.queue.dialects) or "unknown until read"
        ),
        TableColumn("oldest (UTC)", hide=1): lambda one: (
            "–" if one.oldest is None else one.oldest.strftime("%Y-%m-%d %H:%M:%S")
        ),
    }
    return found | details if in_detail else found


def depth_cell(messages: int | None) -> Cell:
    """Return a cell with the number of messages, or `unknown`."""
    if messages is None:
        return Cell("unknown", "yellow")
    return Cell(f"{messages:,}", "bold yellow" if messages else "")


def _origins(queue: DeadLetterQueue) -> str:
    """Return where messages come from as text: `orders, payments by policy dlx`."""
    shown = [
        f"{', '.join(one.queue for one in alike)} by {how}"
        for how, alike in groupby(queue.origins[:_MOST_ORIGINS], key=_how)
    ]
    if len(queue.origins) > _MOST_ORIGINS:
        shown.append(count_of(len(queue.origins) - _MOST_ORIGINS, "more queue"))
    if queue.shared:
        shown.append("perhaps publishers")
    return "; ".join(shown) or "unknown"


def _how(origin: Origin) -> str:
    if origin.known_by == "name":
        return "name"
    how = f"policy {origin.policy}" if origin.known_by == "policy" else "argument"
    return how if origin.certain else f"{how}, perhaps"


def next_command(queue: DeadLetterQueue) -> str | None:
    """Return the command that shows what is in a queue; None for a stream, which redrive does not
    read."""
    return None if queue.kind == "stream" else f"redrive failed groups {shlex.quote(queue.name)}"


def json_of(one: CountedQueue) -> dict[str, object]:
    """Return a queue as JSON values, with null for what is unknown."""
    return {
        "queue": one.queue.name,
        "type": one.queue.kind or None,
        "messages": one.messages,
        "consumers": one.consumers,
        "oldest": None if one.oldest is None else one.oldest.isoformat(),
        "certain": one.queue.certain,
        "shared": one.queue.shared,
        "dialects": list(one.queue.dialects),
        "origins": [asdict(origin) for origin in one.queue.origins],
        "next": next_command(one.queue),
    }
