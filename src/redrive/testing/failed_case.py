"""Failed messages as test cases: each is handled again on a broker in memory."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from redrive.pubsub.application_base import AppBase
from redrive.pubsub.handler import is_async
from redrive.testing.memory_broker import MemoryBroker
from redrive.topology.names import failed_queue

if TYPE_CHECKING:
    from redrive.pubsub.aio.application import AsyncApp
    from redrive.pubsub.blocking.application import App

_ALL_RETRIES = timedelta(days=366)


class FailedCase(NamedTuple):
    """A message that has failed, as `redrive failed fixtures` writes it.

    Args:
        id: the id of its failure.
        queue: the queue that it failed in.
        body: its body.
        headers: its headers.
        properties: its other properties, by name.
        error: the error that was recorded.
    """

    id: str
    queue: str
    body: bytes
    headers: Mapping[str, object]
    properties: Mapping[str, object]
    error: str

    def __str__(self) -> str:
        return self.id

    def errors_with(self, handler: "App | AsyncApp | Callable[..., object]") -> list[str]:
        """Handle the message on a broker in memory, with all its retries, and return the errors
        that it was set aside with; none if it was handled.

        Args:
            handler: the app with a subscriber of its queue, or the function that handles it.

        Raises:
            ConfigurationError: the app has no subscriber of its queue.
        """
        app = handler if isinstance(handler, AppBase) else _app_of(handler, self.queue)
        with MemoryBroker() as broker, app.override(broker.url):
            if app._handlers_are_async:
                asyncio.run(self._awaited(app, broker))
            else:
                self._called(app, broker)
            return [
                "{redrive-error-type}: {redrive-error-message}".format_map(one.headers)
                for one in broker.messages(failed_queue(self.queue))
            ]

    def _called(self, app: "App", broker: MemoryBroker) -> None:
        app.start(only=[self.queue])
        try:
            self._publish(broker)
            broker.turn(_ALL_RETRIES)
        finally:
            app.close()

    async def _awaited(self, app: "AsyncApp", broker: MemoryBroker) -> None:
        await app.start(only=[self.queue])
        try:
            await asyncio.to_thread(self._publish, broker)
            await broker.turn_async(_ALL_RETRIES)
        finally:
            await app.close()

    def _publish(self, broker: MemoryBroker) -> None:
        """Send the message to its queue alone, as a requeue does."""
        import pika

        properties = pika.BasicProperties(  # type: ignore[no-untyped-call]
            **cast("dict[str, Any]", self.properties), headers=dict(self.headers)
        )
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", self.queue, self.body, properties, mandatory=True)
        finally:
            connection.close()


def failed_cases(file: Path | str) -> list[FailedCase]:
    """Return the cases in a file that `redrive failed fixtures` wrote.

    Args:
        file: the file, with the suffix .json.

    Raises:
        OSError, ValueError: it can't be read.
    """
    written = json.loads(Path(file).read_text(encoding="utf-8"))
    return [
        FailedCase(
            one["id"],
            one["queue"],
            base64.b64decode(one["base64"]) if "base64" in one else one["body"].encode(),
            one["headers"],
            one["properties"],
            one["error"],
        )
        for one in written
    ]


def _app_of(function: Callable[..., object], queue: str) -> "App | AsyncApp":
    """Return an app whose only subscriber has this handler, and retries nothing."""
    from redrive.topology.policy import RetryPolicy

    if is_async(function):
        from redrive.pubsub.aio.application import AsyncApp

        awaited = AsyncApp("amqp://localhost/")
        awaited.subscriber(queue, retry=RetryPolicy(0)).handler(
            cast("Callable[..., Any]", function)
        )
        return awaited
    from redrive.pubsub.blocking.application import App

    app = App("amqp://localhost/")
    app.subscriber(queue, retry=RetryPolicy(0)).handler(cast("Callable[..., None]", function))
    return app
