"""A broker connection on its own thread that reconnects when it is lost."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cached_property

import pika
from pika import exceptions
from pika.adapters.select_connection import IOLoop

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.blocking import client_errors
from redrive.pubsub.blocking.connection_pool import ConnectionPool, close
from redrive.pubsub.blocking.pika_log import own_use
from redrive.pubsub.blocking.wire import WireConnection
from redrive.pubsub.lifecycle import (
    CLOSING_TIME,
    BrokerAccess,
    Listener,
    ReconnectPolicy,
    default_name,
)
from redrive.pubsub.login_renewal import LoginRenewal
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.url import Endpoint, Login

logger = logging.getLogger("redrive")

__all__ = ["Connector", "Link", "default_name"]

_BLOCKED_SECONDS = 10.0
"""Seconds after which a short-lived connection that the broker blocks is abandoned."""


class Connector(BrokerAccess):
    """A factory of pika connections to one broker."""

    def parameters(self, login: Login | None = None) -> pika.ConnectionParameters:
        """Return pika's parameters for the host that answered last, or the next one in turn, with
        the given login or a newly requested one. This may block."""
        endpoint = self.endpoint
        parameters = pika.ConnectionParameters(
            host=endpoint.host,
            port=endpoint.port,
            virtual_host=self.url.virtual_host,
            credentials=self._pika_credentials(login),
            heartbeat=self.url.heartbeat,
            socket_timeout=self.url.connection_timeout,
            stack_timeout=self.longest_opening,
            connection_attempts=1,
            client_properties=self.client_properties,
        )
        context = self.tls()
        if context is not None:
            parameters.ssl_options = pika.SSLOptions(context, self.server_hostname)
        _look_up(endpoint)
        return parameters

    def _pika_credentials(
        self, login: Login | None
    ) -> pika.PlainCredentials | pika.credentials.ExternalCredentials:
        if self.url.auth_mechanism == "external":
            return pika.credentials.ExternalCredentials()
        username, password, _ = login or self.login()
        return pika.PlainCredentials(username, password)

    @contextlib.contextmanager
    def blocking(self) -> Iterator[pika.BlockingConnection]:
        """Open a short-lived connection for declaring and inspecting; each host is tried once.
        pika's connection errors inside the block are converted to redrive's."""
        with own_use():
            connection = self._first_that_answers()
            try:
                yield connection
            except (KeyboardInterrupt, SystemExit):
                # This may have interrupted pika, which then can't close properly: a reply is
                # lost, or a channel is half open. Only the socket is dropped.
                raise
            except (exceptions.AMQPConnectionError, OSError) as error:
                close(connection)
                raise client_errors.of_connection(error, self.url) from error
            except BaseException:
                close(connection)
                raise
            close(connection)

    @contextlib.contextmanager
    def shared(self) -> Iterator[pika.BlockingConnection]:
        """Provide a connection as `blocking` does; with a pool, it may have been used before.

        Use `blocking` to rely on the connection's end, or to check the user's current rights.
        """
        pool = ConnectionPool.current
        if pool is None:
            with self.blocking() as connection:
                yield connection
            return
        key = (self.url, self.credentials, self.ssl_context)
        with own_use():
            try:
                with pool.connection(key, self._first_that_answers) as connection:
                    yield connection
            except (exceptions.AMQPConnectionError, OSError) as error:
                raise client_errors.of_connection(error, self.url) from error

    def _first_that_answers(self) -> pika.BlockingConnection:
        for remaining in reversed(range(len(self.url.endpoints))):
            try:
                parameters = self.parameters()
                # A broker with a resource alarm does not answer connections that have published,
                # and write permissions are checked by publishing.
                parameters.blocked_connection_timeout = _BLOCKED_SECONDS
                return _opened(parameters)
            except Exception as error:
                # pika has two exception families, and passes on errors of sockets and TLS
                refused = client_errors.of_connection(error, self.url)
                self.next_host()
                if not remaining or not isinstance(refused, BrokerUnavailable):
                    raise refused from error
        raise AssertionError("a URL has at least one host")


def _look_up(endpoint: Endpoint) -> None:
    """Check that a host has an address. pika would do so on its own thread and log its own error
    there."""
    socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)


def _opened(parameters: pika.ConnectionParameters) -> pika.BlockingConnection:
    """Open a connection, making sure that it is really open.

    pika also returns a connection that the broker closed together with the reply that opened it: it
    has forgotten the reason, and never closes the sockets of its event loop. Source: pika 1.3.2 and
    1.4.4, where BlockingConnection listens for a close only once its connection is made; seen on
    RabbitMQ 3.10.8, 4.0.5 and 4.3.6 when a user was deleted.
    """
    connection = pika.BlockingConnection(parameters)
    if connection.is_open:
        return connection
    connection._impl.ioloop.close()
    raise exceptions.AMQPConnectionError("the broker closed it as soon as it was open")


class Link:
    """A connection that is kept open for a listener, with an I/O thread of its own."""

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
        self._thread = threading.Thread(
            target=self._run, name=f"redrive-io-{connector.name}", daemon=True
        )
        self._connection: WireConnection | None = None
        self._renewal = LoginRenewal(connector, self.call, self.call_later, self.reconnect)
        self._preparing = False
        self._closing = False
        self._closed = threading.Event()

    @cached_property
    def _loop(self) -> IOLoop:
        """Created on demand: it has sockets, which a link that never starts would not close."""
        return IOLoop()

    @property
    def address(self) -> str:
        """The broker's address without the password."""
        return self._connector.url.address

    def start(self) -> None:
        """Start the I/O thread, which connects."""
        self._persistence.began()
        assert self._loop is not None  # created here, and not by two threads at the same time
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the I/O thread soon, or never if the link has ended."""
        if not self._closed.is_set():
            self._loop.add_callback_threadsafe(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` on the I/O thread after the given number of seconds. Call it only from the
        I/O thread."""
        self._loop.call_later(seconds, function)

    def on_io_thread(self) -> bool:
        """Return whether the caller runs on the I/O thread."""
        return threading.current_thread() is self._thread

    def reconnect(self, reason: str) -> None:
        """Close the connection, so that the link opens a new one. Call it only from the I/O
        thread."""
        if self._connection is not None and self._connection.is_open:
            logger.warning("closing the connection to %s to start over: %s", self.address, reason)
            self._connection.close(200, reason[:200])

    def close(self) -> None:
        """Close the connection and end the thread; a second call does nothing.

        A declaration in progress is waited for, but not if the broker does not answer.
        """
        if not self._thread.is_alive():
            return
        self.call(self._close)
        if not self.on_io_thread():
            self._thread.join(2 * CLOSING_TIME)
            if self._thread.is_alive():
                self.call(self._end)
                self._thread.join(CLOSING_TIME)

    def abort(self) -> None:
        """Drop the socket without closing the connection, as a crash would, and end the thread."""
        self.call(self._abort)

    def _run(self) -> None:
        try:
            with own_use():
                self._connect()
                self._loop.start()
        except BaseException as error:
            # a bug in redrive or a callback, including SystemExit: whoever waits has to be told
            logger.exception("the I/O thread of %s ended because of an error", self._connector.name)
            if self._connection is not None:
                # otherwise the broker would keep its deliveries for a worker that is gone
                self._connection.hang_up()
            self._listener.gave_up(
                BrokerUnavailable(
                    self.address,
                    f"the I/O thread ended: {error!r}",
                    "This is a bug: please report it.",
                )
            )
        finally:
            self._closed.set()
            try:
                self._listener.ended()
            finally:
                self._loop.close()

    def _connect(self) -> None:
        if self._closing:
            self._end()
            return
        self._preparing = self._prepare is not None
        # The I/O thread must be able to handle a `close` in the meantime: a broker may be slow, and
        # so may a vault that is asked for a password.
        threading.Thread(
            target=self._get_ready, name=f"redrive-connect-{self._connector.name}", daemon=True
        ).start()

    def _get_ready(self) -> None:
        try:
            with own_use():
                if self._prepare is not None:
                    try:
                        self._prepare()
                    finally:
                        self._preparing = False
                login = self._connector.login()
                parameters = self._connector.parameters(login)
        except RedriveError as error:
            refused = error
            self.call(lambda: self._failed(refused))
        except OSError as error:  # the host name can't be resolved
            unknown = error
            self.call(lambda: self._not_opened(unknown))
        except BaseException as error:  # noqa: BLE001 - a bug in redrive: raised on the I/O thread, which reports it
            defect = error
            self.call(lambda: _raise(defect))
        else:
            self.call(lambda: self._open(parameters, login))

    def _open(self, parameters: pika.ConnectionParameters, login: Login) -> None:
        if self._closing:
            self._end()
            return
        try:
            self._connection = WireConnection(
                parameters,
                on_open_callback=lambda connection: self._opened(connection, login),
                on_open_error_callback=lambda _, error: self._not_opened(error),
                on_close_callback=lambda _, error: self._lost(error),
                custom_ioloop=self._loop,
            )
        except Exception as error:  # noqa: BLE001 - whatever pika raises when it can't start opening, retry later
            self._not_opened(error)

    def _opened(self, connection: pika.connection.Connection, login: Login) -> None:
        assert isinstance(connection, WireConnection)
        self._persistence.connected()
        self._renewal.connected(connection, login)
        self._listener.connected(connection)
        if self._closing:
            self._close()

    def _not_opened(self, error: BaseException) -> None:
        self._connector.next_host()
        self._failed(client_errors.of_connection(error, self._connector.url))

    def _failed(self, error: RedriveError) -> None:
        """Handle a failed connection attempt."""
        self._connection = None
        if self._closing:
            self._end()
        else:
            self._again(error)

    def _lost(self, error: BaseException) -> None:
        """Handle the loss of the open connection."""
        self._connection = None
        self._renewal.disconnected()
        if self._closing:
            self._end()
            return
        lost = client_errors.of_connection(error, self._connector.url)
        self._connector.next_host()
        self._listener.disconnected(lost)
        self._again(lost)

    def _again(self, error: RedriveError) -> None:
        delay = self._persistence.failed(error)
        if delay is None:
            self._listener.gave_up(error)
            self._end()
        else:
            self._loop.call_later(delay, self._connect)

    def _close(self) -> None:
        self._closing = True
        if self._connection is None and not self._preparing:
            self._end()
            return
        if self._connection is not None and self._connection.is_open:
            self._connection.close()
        # A connection that is being opened is closed once it is open or has failed; pika can't be
        # stopped in the middle of its handshake. Nor can a declaration, and after the link has
        # ended it must not restore a binding that somebody else has removed in the meantime.
        self._loop.call_later(CLOSING_TIME, self._abort)

    def _abort(self) -> None:
        self._closing = True
        if self._connection is None or not self._connection.drop():
            self._end()

    def _end(self) -> None:
        self._closing = True
        self._loop.stop()


def publishing_connection(connector: Connector) -> PublishingConnection:
    """Create the connection for publishing, named after the connector."""
    return PublishingConnection(
        connector,
        lambda connector, listener, patience: Link(connector, listener, patience=patience),
    )


def _raise(error: BaseException) -> None:
    raise error
