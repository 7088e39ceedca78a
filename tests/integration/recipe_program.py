"""Runs a recipe of docs/recipes.md, which is the module `recipe`, on a broker in memory, and prints
what came of it, as JSON. A process of its own, since Sentry and structlog change theirs for good.

python recipe_program.py sentry
"""

import asyncio
import functools
import importlib
import importlib.util
import json
import logging
import os
import runpy
import signal
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from line_trace import LineTrace
from page_code import addressed
from redrive import App, AsyncApp, Message, RetryPolicy, current_message
from redrive.testing import MemoryBroker
from waiting import DEADLINE, wait_until


class Publication(NamedTuple):
    """A message to publish."""

    body: Mapping[str, object]
    routing_key: str
    headers: dict[str, Any] | None = None


def run(app: App | AsyncApp, publications: Sequence[Publication]) -> list[Message]:
    """Has an app handle these messages, with all retries; returns those that were set aside."""
    with MemoryBroker() as broker, app.override(broker.url):
        if isinstance(app, AsyncApp):
            asyncio.run(_handle_async(app, broker, publications))
        else:
            with app:
                for body, key, headers in publications:
                    app.publisher.publish(body, key, headers=headers)
                broker.turn("1h")
        return [
            message
            for subscriber in app.subscribers
            for message in broker.messages(subscriber.subscription.failed_queue)
        ]


async def _handle_async(
    app: AsyncApp, broker: MemoryBroker, publications: Sequence[Publication]
) -> None:
    async with app:
        for body, key, headers in publications:
            await app.publisher.publish(body, key, headers=headers)
        await broker.turn_async("1h")


def add_handler(
    app: App | AsyncApp, queue: str, key: str, handle: Callable[[Message], Any], **options: Any
) -> None:
    """Has an app handle a further queue by a plain function, in either shell."""
    if isinstance(app, App):
        app.subscriber(queue, key, **options)(handle)
        return

    async def handle_async(message: Message) -> None:
        result = handle(message)
        if isinstance(result, Awaitable):
            await result

    app.subscriber(queue, key, **options)(handle_async)


def _body(message: Message) -> Any:
    return message.json()


def attempt_now() -> int:
    """Which attempt at the current message this is."""
    message = current_message()
    assert message is not None
    return message.attempt


# --- the recipes ----------------------------------------------------------------------------------


def sentry() -> object:
    """Order 1 never succeeds, order 2 does on its second attempt, order 3 on its first; and one
    handler hangs. Gives what Sentry was told."""
    import sentry_sdk

    events: list[dict[str, Any]] = []

    class Capturing(sentry_sdk.Transport):
        def capture_envelope(self, envelope: Any) -> None:
            event = envelope.get_event()
            if event is not None:
                events.append(event)

    init = functools.partial(sentry_sdk.init, dsn="http://key@localhost/1", transport=Capturing)
    with mock.patch.object(sentry_sdk, "init", init):
        recipe: Any = importlib.import_module("recipe")
    released = threading.Event()

    def works(_: str, order: int) -> None:
        sentry_sdk.add_breadcrumb(message=f"order {order}, attempt {attempt_now()}")
        if order == 1 or (order == 2 and attempt_now() == 1):
            raise ConnectionError("the stock is down")

    def hangs(_: Message) -> object:
        if isinstance(recipe.app, AsyncApp):
            return asyncio.sleep(DEADLINE)
        released.wait(DEADLINE)
        return None

    recipe.print = works
    add_handler(
        recipe.app,
        "shop@hung",
        "hung.*",
        hangs,
        handler_timeout="200ms",
        retry=RetryPolicy(max_retries=0),
    )
    run(
        recipe.app,
        [*(Publication({"id": n}, "order.new") for n in (3, 2, 1)), Publication({}, "hung.new")],
    )
    # Of a handler that hangs, a thread of its own tells.
    wait_until(lambda: any("logentry" in e or "message" in e for e in events), "Sentry is told")
    released.set()
    return [
        {
            "errors": [
                f"{one['type']}: {one['value']}"
                for one in event.get("exception", {}).get("values", ())
            ],
            "message": event.get("message"),
            "level": event.get("level"),
            "queue": event["tags"]["queue"],
            "about": {k: v for k, v in event["contexts"]["message"].items() if k != "type"},
            "breadcrumbs": [one.get("message") for one in event["breadcrumbs"]["values"]],
        }
        for event in events
    ]


def sqlalchemy() -> object:
    """The charge for order 1 never succeeds, for order 2 on the second attempt; order 3 comes
    twice; order 4 can't be committed. Gives the rows of the end, which attempts found their order
    in the database, and why which was set aside."""
    recipe: Any = importlib.import_module("recipe")
    charges = recipe.charge
    found: dict[int, list[bool]] = {}

    def rows() -> dict[int, int]:
        connection = sqlite3.connect("shop.db", timeout=DEADLINE)
        try:
            return dict(connection.execute("SELECT id, total FROM orders"))
        finally:
            connection.close()

    def charge(order: Any) -> None:
        found.setdefault(order.id, []).append(order.id in rows())
        if order.id == 1 or (order.id == 2 and attempt_now() == 1):
            raise ConnectionError("the bank is down")
        charges(order)

    recipe.charge = charge
    orders = [{"id": n, "total": 2**63 if n == 4 else 10 * n} for n in (1, 2, 3, 4)]
    set_aside = run(recipe.app, [Publication(order, "order.new") for order in orders])
    run(recipe.app, [Publication(orders[2], "order.new")])
    return {
        "rows": rows(),
        "found": found,
        "set aside": {
            _body(message)["id"]: message.headers["redrive-error-type"] for message in set_aside
        },
    }


def tenants() -> object:
    """Orders of two tenants, several at a time, and two without one. Gives for each invoice the
    order, the tenants of its folder, its header and its handler; and what was set aside."""
    recipe: Any = importlib.import_module("recipe")
    invoices: list[list[object]] = []

    def on_invoice(message: Message) -> None:
        body = _body(message)
        tenant = recipe.tenant.get()
        invoices.append([body["order"], body["folder"], message.headers["tenant"], tenant])

    add_handler(recipe.app, "shop@invoices", "invoice.*", on_invoice, concurrency=4)
    set_aside = run(
        recipe.app,
        [
            *(
                Publication({"id": n}, "order.new", {"tenant": "north" if n % 2 else "south"})
                for n in range(20)
            ),
            Publication({"id": 20}, "order.new"),
            Publication({"id": 21}, "order.new", {"tenant": 7}),
        ],
    )
    return {
        "invoices": sorted(invoices),
        "set aside": sorted(
            [_body(message)["id"], message.headers["redrive-error-message"]]
            for message in set_aside
        ),
        "outside": recipe.tenant.get(None),
    }


def structlog() -> object:
    """A handler logs, itself and by a library, and fails once. What is logged is on standard
    error."""
    recipe: Any = importlib.import_module("recipe")

    def tries(message: Message) -> None:
        recipe.log.info("tries")
        logging.getLogger("a.library").warning("is slow")
        if message.attempt == 1:
            raise ConnectionError("the stock is down")

    add_handler(
        recipe.app, "shop@stock", "stock.*", tries, retry=RetryPolicy(max_retries=1, delay="30s")
    )
    recipe.log.info("starts")
    run(recipe.app, [Publication({"id": 121}, "order.new"), Publication({}, "stock.new")])
    return None


RECIPES = {one.__name__: one for one in (sentry, sqlalchemy, tenants, structlog)}


def to_the_last_line() -> object:
    """Run the recipe as a program, and ask it to leave once it consumes. Gives whether it did, and
    whether it left by itself then."""
    asked = threading.Event()

    def ask() -> None:
        wait_until(
            lambda: getattr(getattr(sys.modules["__main__"], "app", None), "ready", False),
            "it consumes",
        )
        asked.set()
        os.kill(os.getpid(), signal.SIGTERM)

    with MemoryBroker() as broker:
        program = Path("program.py")
        program.write_text(addressed(Path("recipe.py").read_text("utf-8"), broker.url), "utf-8")
        threading.Thread(target=ask, daemon=True).start()
        runpy.run_path(str(program), run_name="__main__")
    return {"asked to leave": asked.is_set()}


def tried(recipe: str) -> object:
    """What comes of a recipe, of which each line has to run but the one that runs its app."""
    spec = importlib.util.find_spec("recipe")
    assert spec is not None
    assert spec.origin is not None
    code = compile(Path(spec.origin).read_text("utf-8"), spec.origin, "exec")
    lines = LineTrace()
    lines.add(code)
    lines.start()
    found = RECIPES[recipe]()
    never_run = [line for line in lines.never_run() if "app.run()" not in line]
    assert never_run == []
    return found


if __name__ == "__main__":
    what = sys.argv[1]
    print(json.dumps(to_the_last_line() if what == "program" else tried(what)))
