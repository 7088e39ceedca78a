"""redrive's apps beside its subscribers by themselves: a handler that takes the body and the
message, by their types."""

import asyncio
import threading
from typing import Any

from benchmarks.measure import Ledger, Place
from redrive import App, AsyncApp, AsyncSubscriber, Message, Subscriber


def consume(place: Place, ledger: Ledger) -> None:
    """An app with one subscriber, whose handler is typed."""
    app = App(place.url, place.exchange)

    @app.subscriber(place.queue, place.pattern, prefetch=place.prefetch)
    def on_message(body: bytes, message: Message) -> None:
        ledger.note(body)

    _run_until_complete(ledger, app)


def consume_by_subscriber(place: Place, ledger: Ledger) -> None:
    """The same without an app, and a handler that takes the message as it comes."""
    subscriber = Subscriber(
        place.url, place.queue, [place.pattern], place.exchange, prefetch=place.prefetch
    )

    @subscriber.handler
    def on_message(message: Message) -> None:
        ledger.note(message.body)

    _run_until_complete(ledger, subscriber)


def consume_async(place: Place, ledger: Ledger) -> None:
    """An app on an event loop."""
    app = AsyncApp(place.url, place.exchange)

    @app.subscriber(place.queue, place.pattern, prefetch=place.prefetch)
    async def on_message(body: bytes, message: Message) -> None:
        ledger.note(body)

    ledger.when_complete(app.stop)
    asyncio.run(app.run())


def consume_by_async_subscriber(place: Place, ledger: Ledger) -> None:
    """The same without an app, and a handler that takes the message as it comes."""

    async def run() -> None:
        subscriber = AsyncSubscriber(
            place.url, place.queue, [place.pattern], place.exchange, prefetch=place.prefetch
        )

        @subscriber.handler
        async def on_message(message: Message) -> None:
            ledger.note(message.body)

        ledger.when_complete(subscriber.stop)
        await subscriber.run()

    asyncio.run(run())


def _run_until_complete(ledger: Ledger, one: Any) -> None:
    def stop() -> None:
        ledger.complete.wait()
        one.stop()

    threading.Thread(target=stop, daemon=True).start()
    one.run()
