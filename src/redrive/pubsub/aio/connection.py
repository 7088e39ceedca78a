"""One connection to a broker, on an event loop, that comes back when it is lost."""

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
    """How aiormq connects to one broker."""

    async def connect(self, lost: Callable[[BaseException | None], None]) -> WireConnection:
        """Connects to the host that answered last, or is next in turn."""
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
        """The login and the TLS settings."""
        if self.credentials is None and not self.url.tls:
            return self.login(), None
        # A vault may be asked, and files are read: both may take their time.
        return await on_thread(lambda: (self.login(), self.tls()), "redrive-credentials")


class Link:
    """Keeps one connection open for a listener. All of it belongs to the event loop that it is made
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
        self._goodbyes: set[asyncio.Task[None]] = set()
        self._preparing = False
        self._closing = False
        self._ended = False

    @property
    def address(self) -> str:
        """The broker's address, without the password."""
        return self._connector.url.address

    def start(self) -> None:
        """Begins to connect."""
        self._persistence.began()
        self._task = self._loop.create_task(
            self._run(), name=f"redrive-link-{self._connector.name}"
        )
        self._task.add_done_callback(self._finish)

    def on_io_thread(self) -> bool:
        """Tell whether the caller runs on the event loop's thread."""
        return threading.get_ident() == self._thread

    def call(self, function: Callable[[], None]) -> None:
        """Runs `function` on the event loop, soon. After the link is closed nothing runs."""
        if self._ended:
            return
        if threading.get_ident() == self._thread:
            self._loop.call_soon(function)
        else:
            self._loop.call_soon_threadsafe(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Runs `function` in so many seconds."""
        self._loop.call_later(seconds, lambda: None if self._ended else function())

    def reconnect(self, reason: str) -> None:
        """Closes the connection; the link opens a new one."""
        if self._connection is not None and self._connection.is_open:
            logger.warning("closing the connection to %s to start over: %s", self.address, reason)
            self._say_goodbye(self._connection)

    def close(self) -> None:
        """Closes the connection and ends the link; the second call does nothing. What is being
        declared is waited for, and a broker that does not answer is left."""
        if self._closing:
            return
        self._closing = True
        if self._connection is not None:
            self._say_goodbye(self._connection)
        elif self._task is not None and self._preparing:
            # A thread can't be stopped, and after the link's end it must not bind again what
            # somebody else has unbound since.
            self._loop.call_later(CLOSING_TIME, self._task.cancel)
        elif self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Drops the socket without a word, as a crash would, and ends the link; from any thread."""
        self.call(self._abort)

    def _abort(self) -> None:
        self._closing = True
        if self._connection is not None:
            self._connection.drop()
        elif self._task is not None:
            self._task.cancel()

    def _say_goodbye(self, connection: WireConnection) -> None:
        goodbye = self._loop.create_task(connection.close())
        self._goodbyes.add(goodbye)
        goodbye.add_done_callback(self._goodbyes.discard)
        self._loop.call_later(2 * CLOSING_TIME, connection.drop)

    async def _run(self) -> None:
        try:
            await self._keep_up()
        except asyncio.CancelledError:
            # Its loop ends: aiormq's tasks must find an end too, or the loop complains of them.
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
        """A connection; None where there is none to be had."""
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
        """Waits until the next try; False where there is to be none."""
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
        """The link ends: it was closed or cancelled, gave up, or failed by a defect."""
        if self._connection is not None:
            self._connection.drop()
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a defect of ours: whoever waits must hear of it
            logger.error(
                "the connection of %s ends because of an error",
                self._connector.name,
                exc_info=error,
            )
            self._listener.gave_up(
                BrokerUnavailable(
                    self.address,
                    f"its connection ended: {error!r}",
                    "This is a defect: please report it.",
                )
            )
        self._ended = True
        self._listener.ended()


def publishing_connection(connector: Connector) -> PublishingConnection:
    """Make the connection for what publishes, which the connector names."""
    return PublishingConnection(
        connector,
        lambda connector, listener, patience: Link(connector, listener, patience=patience),
    )
