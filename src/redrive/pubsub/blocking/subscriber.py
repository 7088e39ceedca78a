"""Subscribing: a queue, a handler, and what happens when it fails."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from redrive.errors import ConfigurationError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.pubsub.blocking.handler_run import ThreadEngine
from redrive.pubsub.blocking.signals import until_signalled
from redrive.pubsub.middleware import surrounded
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.service_connection import Address
from redrive.pubsub.shared_link import SharedLink
from redrive.pubsub.subscriber_base import SubscriberBase
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials
from redrive.pubsub.work import ConsumeOptions


class Subscriber(SubscriberBase):
    """Consumes a queue with a handler; retries what fails, and sets aside what keeps failing.

        subscriber = Subscriber("amqp://localhost/", "ucenter@user", ["user.*"])

        @subscriber.handler
        def on_user(user: UserCreated) -> None: ...

        subscriber.run()

    A handler that returns has handled the message; one that raises has failed, and the message
    comes back after the policy's delay. A message is handled at least once: where a worker or the
    connection dies before its ack, it is delivered again.
    """

    _handlers_are_async: ClassVar[Literal[False]] = False
    _connector: Connector | None = None
    _processing: ThreadEngine | None = None

    def _make_connector(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None,
        ssl_context: ContextSource | None,
    ) -> None:
        self._connector = Connector(url, name, credentials, ssl_context)

    @property
    def access(self) -> Connector:
        """The broker, and who logs in there.

        Raises:
            ConfigurationError: it has no broker yet.
        """
        if self._connector is None:
            raise self._no_broker_yet()
        return self._connector

    def declare(self) -> None:
        """Declares exchanges, queues and bindings now; a second time changes nothing.

        Raises:
            TopologyMismatch: an object is there with other arguments.
            PermissionDenied: the user may not.
            BrokerUnavailable: no broker answered.
            ConfigurationError: the broker is too old.
        """
        declare(self.access, self.subscription)

    def start(self) -> None:
        """Begins to consume, on threads of its own, and returns.

        Raises:
            ConfigurationError: there is no handler, or it runs already, or has no broker.
        """
        self._begin(None, surrounded(self._options, [self]))

    def _begin(
        self,
        shared: SharedLink | None,
        options: ConsumeOptions,
        publishing: PublishingConnection | None = None,
    ) -> None:
        """Begins to consume, on connections that it shares with others, or None for its own."""
        with self._starting:
            self._check_may_start(self.stopped())
            self._processing = ThreadEngine(
                self.subscription,
                self.access,
                self._handlers,
                options,
                dropped=self._dropped,
                longest=self._warn_of_long_waits,
                shared=shared,
                publishing=publishing,
            )
            self._processing.start()

    def run(self) -> None:
        """Consumes until `stop`, SIGTERM or SIGINT: then stops taking, finishes what runs, acks,
        leaves. A second signal leaves at once.

        Raises:
            TopologyMismatch, PermissionDenied, BrokerUnavailable, ConfigurationError: as `declare`,
                at the start.
        """
        run(self)

    def stop(self) -> None:
        """Stops taking messages, and lets `run` return once what runs has finished. From any
        thread, a handler's included."""
        processing = self._processing
        if processing is not None:
            processing.stop()

    def abort(self) -> None:
        """Drops the connection at once. What runs is delivered again."""
        processing = self._processing
        if processing is not None:
            processing.abort()

    @property
    def ready(self) -> bool:
        """Whether it is connected and consumes."""
        processing = self._processing
        return processing is not None and processing.consuming

    def stopped(self, timeout: float = 0.0) -> bool:
        """Whether it does not run, or has stopped within so many seconds."""
        processing = self._processing
        return processing is None or processing.finished.wait(timeout)

    def _wait_until_known(self) -> None:
        """Waits until it consumes, or it is clear that it will not."""
        processing = self._processing
        if processing is not None:
            processing.known.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has stopped; False where that takes more than `timeout` seconds.

        Raises:
            RedriveError: why it could not run.
        """
        processing = self._processing
        if processing is None:
            return True
        if not processing.finished.wait(timeout):
            return False
        if processing.failure is not None:
            raise processing.failure
        return True

    def __repr__(self) -> str:
        return f"<Subscriber {self._whereabouts}>"


def run(*subscribers: Subscriber) -> None:
    """Runs several subscribers in one process until SIGTERM or SIGINT, or until one of them fails.

    Raises:
        RedriveError: why one of them could not run; the others were stopped.
    """

    def start_all() -> None:
        for subscriber in subscribers:
            subscriber.start()

    run_started(subscribers, start_all)


def check_some(subscribers: Sequence[Subscriber]) -> None:
    """Check that there is a subscriber to run.

    Raises:
        ConfigurationError: there is none.
    """
    if not subscribers:
        raise ConfigurationError("there is no subscriber to run", "Give at least one.")


def run_started(subscribers: Sequence[Subscriber], start: Callable[[], object]) -> None:
    """Runs subscribers, which `start` has begin, as `run`. It must not take long: a signal waits
    for its end."""
    check_some(subscribers)

    def stop_all() -> None:
        for subscriber in subscribers:
            subscriber.stop()

    def abort_all() -> None:
        for subscriber in subscribers:
            subscriber.abort()

    moment = 0.2 / len(subscribers)
    try:
        # A signal between the first message and the handlers would take the process with it.
        until_signalled(
            lambda: any(subscriber.stopped(moment) for subscriber in subscribers),
            stop=stop_all,
            abort=abort_all,
            start=start,
        )
    finally:
        stop_all()
        until_signalled(
            lambda: all(subscriber.stopped(moment) for subscriber in subscribers),
            stop=abort_all,
            abort=abort_all,
        )
    for subscriber in subscribers:
        subscriber.wait()
