"""One look at a failed queue at a time.

Two that hold messages of one queue at once each see a part of it, and each takes its part for all.
So whoever holds some of a failed queue holds a lock too: an exclusive queue, which the broker gives
to one connection at a time and takes away with it. Source: measured on RabbitMQ 3.10.8, 4.0.5 and
4.3.6: declaring another connection's exclusive queue is refused with 405.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

import pika
from pika import exceptions

from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.failures.failed_source import FailedSource
from redrive.pubsub import broker_errors
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector, Link
from redrive.pubsub.blocking.wire import WireConnection
from redrive.pubsub.wire_protocol import Wire

HOLDER, SINCE = "redrive-held-by", "redrive-held-since"
"""Arguments of the lock that say who has it. No right of the broker depends on them."""

_ACCESS_REFUSED, _LOCKED = 403, 405
_BETWEEN_TRIES = 0.1
_GLANCE = 0.2
_BETWEEN_QUESTIONS = 2.0

Waiting = Callable[[str], None]


class LookLock:
    """The right to hold messages of a failed queue; a context manager that waits for it.

    A user who may not declare the lock does without it, and may then see a part of the queue only.

    Args:
        connector: how to connect.
        source: the queue.
        management_url: where the management API is, which knows who is waited for.
        patience: seconds that somebody else's look is waited for.
        waiting: told, while it waits, who that is; an empty text where it is not known.
        stop: asked, while it waits, whether to wait no longer.

    Raises (on entering):
        ConfigurationError: somebody else's look did not end in time.
        BrokerUnavailable, PermissionDenied: the broker can't be reached.
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
        """Whether somebody else had it first."""

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
                # Aside: an API that is slow to answer must not keep anybody waiting whose turn has
                # come.
                asking = threading.Thread(
                    target=self._ask_who_has_it, name="redrive-who-looks", daemon=True
                )
                asking.start()
            self._waiting(self._holder)
            if time.monotonic() - began > self._patience:
                raise ConfigurationError(
                    f"{self._holder or 'somebody else'} is reading {self._source.queue!r}, "
                    f"and did not end within {self._patience:g} s",
                    "Wait until that has ended, and try again: two at once would each see only a "
                    "part of the queue.",
                )
        if self._failure is not None:
            raise self._failure

    def _ask_who_has_it(self) -> None:
        """Notes who has the lock, as it says itself; it takes two seconds at least."""
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
        """The link is up: ask for the lock, until it is free."""
        assert isinstance(connection, WireConnection)
        connection.channel(on_open_callback=lambda channel: self._ask(connection, channel))

    def disconnected(self, error: RedriveError) -> None:
        """The link is down, and the lock gone with it; it is asked for again."""

    def gave_up(self, error: RedriveError) -> None:
        """There is no link."""
        self._failed(error)

    def ended(self) -> None:
        """The I/O thread ends."""
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
            # who may not lock may look all the same: what others hold is then said to be missing
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
