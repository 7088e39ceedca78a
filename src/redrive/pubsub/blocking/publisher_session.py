"""The connection of a publisher whose callers are threads."""

import threading
from datetime import timedelta

from redrive.errors import BrokerUnavailable
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare_exchanges
from redrive.pubsub.confirms import Outgoing, PublisherSession
from redrive.pubsub.lifecycle import CLOSING_TIME
from redrive.pubsub.mailbox import Mailbox
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.topology.names import ExchangeFamily


class Session(PublisherSession):
    """A publisher's use of the shared publishing connection, which has an I/O thread."""

    def __init__(
        self,
        connector: Connector,
        publishing: PublishingConnection,
        exchanges: ExchangeFamily | None,
        window: int,
        patience: timedelta = timedelta(0),
    ) -> None:
        super().__init__(window)
        self._began = threading.Event()
        self._ended = threading.Event()
        self._publishing = publishing
        prepare = (
            (lambda: declare_exchanges(connector, exchanges)) if exchanges is not None else None
        )
        self._link = publishing.link_for(self, prepare, patience)
        self._mailbox: Mailbox[list[Outgoing]] = Mailbox(
            self._link, self._outbox.enqueue, self._outbox.pump
        )

    def wait_until_up(self, timeout: float) -> None:
        """Wait for the first connection, or raise the reason why there is none."""
        if not self._began.wait(timeout):
            raise BrokerUnavailable(self._link.address, f"it did not answer within {timeout:g} s")
        if self.failure is not None:
            raise self.failure

    def on_io_thread(self) -> bool:
        """Return whether the caller runs on the connection's thread."""
        return self._link.on_io_thread()

    def send(self, batch: list[Outgoing]) -> None:
        """Publish a batch; can be called from any thread."""
        self._mailbox.put(batch)

    def close(self) -> None:
        """Close the connection unless others use it, and wait for that."""
        self._link.close()
        if not self._link.on_io_thread():
            self._ended.wait(3 * CLOSING_TIME)

    def ended(self) -> None:
        """Note that the link has ended: nothing is confirmed any more."""
        super().ended()
        self._publishing.when_closed(self._ended.set)

    def _begun(self) -> None:
        self._began.set()
