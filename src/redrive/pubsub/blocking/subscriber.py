"""Subscribe: a queue, a handler, and what happens when it fails."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from typing_extensions import override

from redrive.errors import ConfigurationError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.pubsub.blocking.handler_run import ThreadEngine
from redrive.pubsub.middleware import surrounded
from redrive.pubsub.publishing_connection import PublishingConnection
from redrive.pubsub.service_connection import Address
from redrive.pubsub.shared_link import SharedLink
from redrive.pubsub.signals import until_signalled
from redrive.pubsub.subscriber_base import SubscriberBase
from redrive.pubsub.tls import ContextSource
from redrive.pubsub.url import Credentials
from redrive.pubsub.work import ConsumeOptions


class Subscriber(SubscriberBase):
    """A queue with a handler; failed messages are retried, and set aside if they keep failing.

        subscriber = Subscriber("amqp://localhost/", "ucenter@user", ["user.*"])

        @subscriber.handler
        def on_user(user: UserCreated) -> None: ...

        subscriber.run()

    A handler that returns has handled the message. If it raises, it has failed, and the message
    comes back after the policy's delay. A message is handled at least once: if a worker or the
    connection dies before the ack, the message is delivered again.
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
        """The broker and the login for it.

        Raises:
            ConfigurationError: the subscriber has no broker yet.
        """
        if self._connector is None:
            raise self._no_broker_yet()
        return self._connector

    @override
    def declare(self) -> None:
        declare(self.access, self.subscription)

    @override
    def start(self) -> None:
        self._begin(None, surrounded(self._options, [self]))

    def _begin(
        self,
        shared: SharedLink | None,
        options: ConsumeOptions,
        publishing: PublishingConnection | None = None,
    ) -> None:
        """Start consuming on shared connections, or on its own if they are None."""
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

    @override
    def run(self) -> None:
        run(self)

    @override
    def stop(self) -> None:
        processing = self._processing
        if processing is not None:
            processing.stop()

    @override
    def abort(self) -> None:
        processing = self._processing
        if processing is not None:
            processing.abort()

    @property
    def ready(self) -> bool:
        """Whether it is connected and consuming."""
        processing = self._processing
        return processing is not None and processing.consuming

    def stopped(self, timeout: float = 0.0) -> bool:
        """Return whether it is not running, or stops within the given number of seconds."""
        processing = self._processing
        return processing is None or processing.finished.wait(timeout)

    def _wait_until_known(self) -> None:
        """Wait until it consumes, or it is clear that it will not."""
        processing = self._processing
        if processing is not None:
            processing.known.wait()

    @override
    def wait(self, timeout: float | None = None) -> bool:
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
    """Run several subscribers in one process until SIGTERM or SIGINT, or until one of them fails.

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
    """Run subscribers, which `start` starts, in the same way as `run`. `start` must be quick,
    because signals are only handled once it has returned."""
    check_some(subscribers)

    def stop_all() -> None:
        for subscriber in subscribers:
            subscriber.stop()

    def abort_all() -> None:
        for subscriber in subscribers:
            subscriber.abort()

    moment = 0.2 / len(subscribers)
    try:
        # A signal between the first message and the signal handlers would kill the process.
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
