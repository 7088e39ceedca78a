"""A broker connection on an event loop that reconnects when it is lost."""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable
from datetime import timedelta

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.aio import client_errors
from redrive.pubsub.aio.threads import on_thread, running_loop
from redrive.pubsub.aio.wire import WireConnection
from redrive.pubsub.lifecycle import CLOSING_TIME, BrokerAccess, Listener, ReconnectPolicy
from redrive.pubsub.login_renewal import LoginRenewal
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.url import Login

logger = logging.getLogger("redrive")


class Connector(BrokerAccess):
    """A factory of aiormq connections to one broker."""

    async def connect(self, lost: Callable[[BaseException | None], None]) -> WireConnection:
        """Connect to the host that answered last, or to the next one in turn."""
        connection = WireConnection(lost)
        try:
            connection.login, context = await self._what_it_takes()
            async with asyncio.timeout(self.longest_opening):
                await connection.open(
                    self.endpoint.host,
                    self.endpoint.port,
                    username=connection.login.username,
                    password=connection.login.password,
                    auth_mechanism=self.url.auth_mechanism,
                    virtual_host=self.url.virtual_host,
                    ssl_context=context,
                    server_hostname=self.server_hostname,
                    heartbeat=self.url.heartbeat,
                    client_properties=self.client_properties,
                )
        except Exception as error:
            self.next_host()
            raise client_errors.of_connection(
                error, self.url, said_nothing=connection.said_nothing
            ) from error
        return connection

    async def _what_it_takes(self) -> tuple[Login, ssl.SSLContext | None]:
        """Return the login and the TLS settings."""
        if self.credentials is None and not self.url.tls:
            return self.login(), None
        # This may query a vault and read files, both of which can be slow.
        return await on_thread(lambda: (self.login(), self.tls()), "redrive-credentials")


class Link:
    """A connection that is kept open for a listener. Belongs to the event loop that it is created
    in."""

    def __init__(
        self,
        connector: Connector,
        listener: Listener,
        *,
        prepare: Callable[[], None] | None = None,
        patience: timedelta = timedelta(0),
    ) -> None:
        self._connector = connector
        self._listener = listener
        self._prepare = prepare
        self._persistence = ReconnectPolicy(connector, patience)
        self._loop = running_loop()
        self._thread = threading.get_ident()
        self._connection: WireConnection | None = None
        self._renewal = LoginRenewal(connector, self.call, self.call_later, self.reconnect)
        self._gone = asyncio.Event()
        self._reason: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._closings: set[asyncio.Task[None]] = set()
        self._preparing = False
        self._closing = False
        self._ended = False

    @property
    def address(self) -> str:
        """The broker's address without the password."""
        return self._connector.url.address

    def start(self) -> None:
        """Start connecting."""
        self._persistence.began()
        self._task = self._loop.create_task(
            self._run(), name=f"redrive-link-{self._connector.name}"
        )
        self._task.add_done_callback(self._finish)

    def on_io_thread(self) -> bool:
        """Return whether the caller runs on the event loop's thread."""
        return threading.get_ident() == self._thread

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the event loop soon, or never if the link has ended."""
        if self._ended:
            return
        if threading.get_ident() == self._thread:
            self._loop.call_soon(function)
        else:
            self._loop.call_soon_threadsafe(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` after the given number of seconds."""
        self._loop.call_later(seconds, lambda: None if self._ended else function())

    def reconnect(self, reason: str) -> None:
        """Close the connection, so that the link opens a new one."""
        if self._connection is not None and self._connection.is_open:
            logger.warning("closing the connection to %s to start over: %s", self.address, reason)
            self._close_in_background(self._connection)

    def close(self) -> None:
        """Close the connection and end the link; a second call does nothing.

        A declaration in progress is waited for, but not if the broker does not answer.
        """
        if self._closing:
            return
        self._closing = True
        if self._connection is not None:
            self._close_in_background(self._connection)
        elif self._task is not None and self._preparing:
            # A thread can't be stopped, and after the link has ended it must not restore a binding
            # that somebody else has removed in the meantime.
            self._loop.call_later(CLOSING_TIME, self._task.cancel)
        elif self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Drop the socket without closing the connection, as a crash would, and end the link. Can
        be called from any thread."""
        self.call(self._abort)

    def _abort(self) -> None:
        self._closing = True
        if self._connection is not None:
            self._connection.drop()
        elif self._task is not None:
            self._task.cancel()

    def _close_in_background(self, connection: WireConnection) -> None:
        closing = self._loop.create_task(connection.close())
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)
        self._loop.call_later(2 * CLOSING_TIME, connection.drop)

    async def _run(self) -> None:
        try:
            await self._keep_up()
        except asyncio.CancelledError:
            # The loop is ending: aiormq's tasks have to end too, or the loop complains about them.
            if self._connection is not None:
                await self._connection.close()
            raise

    async def _keep_up(self) -> None:
        while True:
            connection = await self._connect()
            if connection is None:
                return
            self._persistence.connected()
            self._renewal.connected(connection, connection.login)
            self._listener.connected(connection)
            await self._gone.wait()
            self._connection = None
            self._renewal.disconnected()
            if self._closing:
                return
            lost = client_errors.of_connection(self._reason, self._connector.url)
            self._connector.next_host()
            self._listener.disconnected(lost)
            if not await self._may_try_again(lost):
                return

    async def _connect(self) -> WireConnection | None:
        """Return a connection, or None if there is no use in trying again."""
        while True:
            self._gone.clear()
            try:
                if self._prepare is not None:
                    await self._run_prepare(self._prepare)
                if self._closing:
                    return None
                self._connection = await self._connector.connect(self._on_lost)
            except RedriveError as error:
                if not await self._may_try_again(error):
                    return None
            else:
                return self._connection

    async def _run_prepare(self, prepare: Callable[[], None]) -> None:
        self._preparing = True
        try:
            await on_thread(prepare, f"redrive-declare-{self._connector.name}")
        finally:
            self._preparing = False

    async def _may_try_again(self, error: RedriveError) -> bool:
        """Wait until the next attempt; return False if there should be none."""
        if self._closing:
            return False
        delay = self._persistence.failed(error)
        if delay is None:
            self._listener.gave_up(error)
            return False
        await asyncio.sleep(delay)
        return True

    def _on_lost(self, reason: BaseException | None) -> None:
        self._reason = reason
        self._gone.set()

    def _finish(self, task: asyncio.Task[None]) -> None:
        """End the link after it was closed or cancelled, gave up, or failed because of a bug."""
        if self._connection is not None:
            self._connection.drop()
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a bug in redrive: whoever waits has to be told
            logger.error(
                "the connection of %s ended because of an error",
                self._connector.name,
                exc_info=error,
            )
            self._listener.gave_up(
                BrokerUnavailable(
                    self.address,
                    f"its connection ended: {error!r}",
                    "This is a bug: please report it.",
                )
            )
        self._ended = True
        self._listener.ended()


def publishing_connection(connector: Connector) -> PublishingConnection:
    """Create the connection for publishing, named after the connector."""
    return PublishingConnection(
        connector,
        lambda connector, listener, patience: Link(connector, listener, patience=patience),
    )
