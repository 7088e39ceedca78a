"""The exclusive right to look at a failed queue."""

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

import pika
from pika import exceptions

from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.failures.queue.failed_source import FailedSource
from redrive.pubsub import broker_errors
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.wire import WireConnection
from redrive.pubsub.wire_protocol import Wire

HOLDER, SINCE = "redrive-held-by", "redrive-held-since"
"""Arguments of the lock that say who holds it. No broker permission depends on them."""

_ACCESS_REFUSED, _LOCKED = 403, 405
_BETWEEN_TRIES = 0.1
_GLANCE = 0.2
_BETWEEN_QUESTIONS = 2.0

Waiting = Callable[[str], None]


class LookLock:
    """The exclusive right to hold messages of a failed queue; a context manager that waits for it.

    A user who may not declare the lock goes without it, and may then see only part of the queue.

    Raises (on entering):
        ConfigurationError: another look did not end in time.
        BrokerUnavailable, PermissionDenied: the broker can't be reached, or refused access.
    """

    def __init__(
        self,
        connector: Connector,
        source: FailedSource,
        *,
        management_url: str | None,
        patience: float,
        waiting: Waiting,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connector = connector
        self._source = source
        self._lock = source.lock
        self._management_url = management_url
        self._patience = patience
        self._waiting = waiting
        self._stop = stop
        self._link = Link(connector, self)
        self._come = threading.Event()
        self._taken = threading.Event()
        self._failure: RedriveError | None = None
        self._closing = False
        self._holder = ""
        self.waited = False
        """Whether another look had the lock first."""

    def __enter__(self) -> Self:
        self._link.start()
        try:
            self._wait()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._closing = True
        self._link.close()

    def _wait(self) -> None:
        began = time.monotonic()
        asking: threading.Thread | None = None
        while not self._come.wait(_GLANCE):
            if self._stop():
                return
            if not self._taken.is_set():
                continue
            self.waited = True
            if not self._holder and (asking is None or not asking.is_alive()):
                # On a separate thread, so that a slow API does not delay a caller whose turn has
                # come.
                asking = threading.Thread(
                    target=self._ask_who_has_it, name="redrive-who-looks", daemon=True
                )
                asking.start()
            self._waiting(self._holder)
            if time.monotonic() - began > self._patience:
                raise ConfigurationError(
                    f"{self._holder or 'somebody else'} is reading {self._source.queue!r}, "
                    f"and did not finish within {self._patience:g} s",
                    "Wait until it finishes, and try again: two readers at once would each see "
                    "only a part of the queue.",
                )
        if self._failure is not None:
            raise self._failure

    def _ask_who_has_it(self) -> None:
        """Note who holds the lock, as its arguments say. It takes at least two seconds."""
        with (
            contextlib.suppress(RedriveError),
            ManagementAPI.of(self._connector, self._management_url) as management,
        ):
            arguments = management.arguments_of(self._lock)
            who, since = arguments.get(HOLDER), arguments.get(SINCE)
            if isinstance(who, str) and who:
                self._holder = who + (f" (since {since})" if isinstance(since, str) else "")
        self._come.wait(_BETWEEN_QUESTIONS)

    # --- on the I/O thread ------------------------------------------------------------------------

    def connected(self, connection: Wire) -> None:
        """Ask for the lock until it is free."""
        assert isinstance(connection, WireConnection)
        connection.channel(on_open_callback=lambda channel: self._ask(connection, channel))

    def disconnected(self, error: RedriveError) -> None:
        """Do nothing: the lock is lost with the link, and is requested again when the link is
        back."""

    def gave_up(self, error: RedriveError) -> None:
        """Fail: there is no link."""
        self._failed(error)

    def ended(self) -> None:
        """Fail: the I/O thread has ended."""
        self._failed(BrokerUnavailable(self._link.address, "the connection was closed"))

    def _ask(self, connection: WireConnection, channel: pika.channel.Channel) -> None:
        channel.add_on_close_callback(lambda _, reason: self._refused(connection, reason))
        who = f"{self._connector.name} as {self._connector.url.username}"
        arguments = {
            "x-queue-type": "classic",
            HOLDER: who,
            SINCE: f"{datetime.now(UTC):%H:%M:%S} UTC",
        }
        channel.queue_declare(
            self._lock, exclusive=True, arguments=arguments, callback=lambda _: self._come.set()
        )

    def _refused(self, connection: WireConnection, reason: BaseException) -> None:
        if (
            self._closing
            or not isinstance(reason, exceptions.ChannelClosedByBroker)
            or not connection.is_open
        ):
            return
        if reason.reply_code == _LOCKED:
            self._taken.set()
            self._link.call_later(_BETWEEN_TRIES, lambda: self._again(connection))
        elif reason.reply_code == _ACCESS_REFUSED:
            # Users who may not lock can still look; what others hold is then reported as missing.
            self._come.set()
        else:
            self._failed(
                broker_errors.of_channel(
                    reason.reply_code,
                    reason.reply_text,
                    f"lock {self._lock!r} with an exclusive queue",
                )
            )

    def _again(self, connection: WireConnection) -> None:
        if connection.is_open and not self._closing:
            self.connected(connection)

    def _failed(self, error: RedriveError) -> None:
        self._failure = self._failure or error
        self._come.set()
