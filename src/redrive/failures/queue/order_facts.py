"""A complete description of an order, for people who approve or resume it."""

import base64
from typing import NamedTuple

from redrive.duration_text import format_duration
from redrive.failures.queue.canary import Unknown
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.failures.store.stored_message import text_of


class OrderFact(NamedTuple):
    """One fact about an order.

    Args:
        name: the name of the fact.
        text: the fact itself; may have several lines, and contain control characters.
    """

    name: str
    text: str


def filter_facts(filter_: Filter) -> list[OrderFact]:
    """Return facts about which messages a filter of the journal chooses."""
    where = filter_.where if isinstance(filter_.where, str) else ""
    facts = [OrderFact("where", where)] if where else []
    facts += [OrderFact("group", group) for group in filter_.groups]
    count = len(filter_.digests)
    facts += [OrderFact("messages", f"{count:,} by {'its id' if count == 1 else 'their ids'}")] * (
        count > 0
    )
    return facts


def order_facts(order: Order) -> list[OrderFact]:
    """Return all facts about an order, without its filter and default values."""
    guards = order.guards
    canary = ""
    if guards.canary:
        watch = (
            "" if guards.watch is None else f", watched for {format_duration(guards.watch)} at most"
        )
        unknown = ", going on when unknown" if guards.unknown is Unknown.GO_ON else ""
        canary = f"{guards.canary:,}{watch}{unknown}"
    pace = order.pace_by_depth
    facts = (
        ("limit", "" if order.limit is None else f"{order.limit:,}"),
        ("to", order.to or ""),
        ("via", "the exchange that each was first published to" if order.via else ""),
        ("unchecked", "includes what the broker could not confirm" if order.unchecked else ""),
        ("rate", "" if order.rate is None else f"{order.rate:g}/s"),
        (
            "pace",
            "" if pace is None else f"while fewer than {pace:,} messages are ready in their queue",
        ),
        ("canary", canary),
        ("stop at", "" if guards.stop_at is None else f"{guards.stop_at:.1%}"),
        ("patch", order.patch or ""),
        ("transform", order.function or ""),
        *(
            (f"edited {digest[:12]}", text_of(base64.b64decode(body)))
            for digest, body in sorted(order.edits.items())
        ),
        ("force", "includes what was requeued too often" if order.force else ""),
    )
    return [OrderFact(name, text) for name, text in facts if text]
