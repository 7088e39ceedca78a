"""A live subscription that is migrated: its publisher and its consumer go on all the while."""

import contextlib
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from contract.support import Recorder
from redrive import (
    ExchangeFamily,
    FailedQueue,
    GiveUp,
    Message,
    Publisher,
    RedriveError,
    RetryPolicy,
    Subscriber,
    TopologyMismatch,
)
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.topology.diff import compare
from redrive.topology.model import Subscription
from waiting import DEADLINE, wait_until

_BETWEEN_TRIES = 0.1
_PROGRAM = Path(__file__).with_name("migration_program.py")
FILE = """
subscriptions:
  shop@orders:
    routing_keys: [order.*]
    retry: {delay: 300ms}
"""
NEW = Subscription(
    "shop@orders", ("order.*",), ExchangeFamily(), RetryPolicy(3, timedelta(milliseconds=300))
)
_LONG = RetryPolicy(3, timedelta(hours=1))
OLD = {
    "another delay": replace(NEW, retry=_LONG),
    "quorum for classic": replace(NEW, retry=_LONG, queue_type="classic"),
    "the default kind for the interop kind": replace(
        NEW, retry=_LONG, queue_type="classic", retry_via="republish"
    ),
}
HELD_BACK = replace(NEW, retry_via="broker")
HELD_BACK_FILE = FILE + "    retry_via: broker\n"
EACH = 60


def _act(message: Message) -> None:
    """Fails at the first attempt with some, and gives up on others."""
    kind = message.body.partition(b" ")[0]
    if kind == b"bad":
        raise GiveUp("never")
    if kind == b"flaky" and not message.retries:
        raise ValueError("not yet")


class Shop:
    """A live subscription: a publisher that goes on publishing, a consumer that goes on
    consuming.

    Args:
        url: the broker's address.
        management_url: where its management API is.
        file: where the subscription is described as it is to be.
        old: the subscription as it is.
        new: the subscription as the file says it is to be.
        patient: whether what the broker does not take is published again, with its id, as a
            service does whose broker has faults.
    """

    def __init__(
        self,
        url: str,
        management_url: str,
        file: Path,
        old: Subscription,
        *,
        new: Subscription = NEW,
        patient: bool = False,
    ) -> None:
        self.url = url
        self.management_url = management_url
        self.file = file
        self.old = old
        self.new = new
        self._patient = patient
        self.recorder = Recorder(_act)
        self.published: dict[str, str] = {}
        self._stopping = threading.Event()
        file.write_text(HELD_BACK_FILE if new.retry_via == "broker" else FILE)
        declare(Connector(url, "test"), old)

    def publish(self, count: int) -> None:
        """Publishes some of each kind."""
        with Publisher(self.url) as publisher:
            for number in range(count):
                kind = ("good", "flaky", "bad")[number % 3]
                message_id = str(uuid.uuid4())
                self._publish(publisher, f"{kind} {number}", message_id)
                self.published[message_id] = kind

    def _publish(self, publisher: Publisher, body: str, message_id: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                publisher.publish(body, "order.paid", message_id=message_id, mandatory=True)
            except RedriveError:
                if not self._patient or time.monotonic() > deadline:
                    raise
                time.sleep(_BETWEEN_TRIES)
            else:
                return

    @contextlib.contextmanager
    def publishing(self) -> Iterator[None]:
        """Publishes all the while."""

        def go_on() -> None:
            while not self._stopping.is_set():
                self.publish(3)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    @contextlib.contextmanager
    def consuming(self, subscription: Subscription, *, declares: bool = False) -> Iterator[None]:
        """Consumes as long as the block, without declaring anything; or only until the queue is
        another one than it declares."""
        subscriber = Subscriber(
            self.url,
            subscription.queue,
            tuple(subscription.routing_keys),
            retry=subscription.retry if declares else RetryPolicy(3, timedelta(hours=1)),
            queue_type=subscription.queue_type,
            retry_via=subscription.retry_via,
            declare=declares,
        )
        subscriber.handler(self.recorder)
        subscriber.start()
        try:
            yield
        finally:
            subscriber.stop()
            with contextlib.suppress(*([TopologyMismatch] if declares else [])):
                subscriber.wait()

    @property
    def failed(self) -> FailedQueue:
        """The failed queue."""
        return FailedQueue(self.url, "shop@orders")

    def ids(self, kind: str) -> set[str]:
        """The ids of what was published of a kind."""
        return {id_ for id_, published in self.published.items() if published == kind}

    def wait_until_half_is_done(self) -> None:
        """Waits until what was published so far is handled, failed, or waits in the retry queue."""
        wait_until(
            lambda: self.failed.depth() >= EACH // 3 and len(self.recorder.attempts) >= EACH,
            "all was tried once",
        )

    def migrate(self, most: int = 0) -> int:
        """Migrates in a process of its own, which dies when it has told `most` sentences."""
        command = [
            sys.executable,
            str(_PROGRAM),
            str(self.file),
            self.url,
            self.management_url,
            str(most),
        ]
        return subprocess.run(command, timeout=300, check=False, stdout=sys.stderr).returncode

    def assert_nothing_is_lost(self, most_duplicates: int = 0) -> None:
        """Every message that was published is handled or in the failed queue, and each once."""
        wanted = self.ids("good") | self.ids("flaky")
        self.recorder.wait_for_handled(wanted, 180)
        # By id: a killed run may have left some of them twice.
        wait_until(
            lambda: {message.message_id for message in self.failed.browse()} >= self.ids("bad"),
            "every bad one is in the failed queue",
        )
        failed = [message.message_id for message in self.failed.browse()]
        assert set(failed) == self.ids("bad")
        handled = self.recorder.handled
        assert set(handled) == wanted
        assert (
            sum(handled.values()) - len(wanted) + len(failed) - len(self.ids("bad"))
            <= most_duplicates
        )
        for attempt in self.recorder.attempts:
            assert attempt.routing_key == "order.paid"
        # A consumer of the interop kind does not see what the new retry queue counts, until it is
        # one of the default kind.
        if not most_duplicates and self.old.retry_via != "republish":
            assert {self.recorder.tried[id_] for id_ in self.ids("flaky")} == {2}
        control = {self.new.exchanges.control}  # as long as the family
        wanted_queues = {queue.name for queue in self.new.topology().queues}
        with ManagementAPI(self.url, self.management_url) as management:
            # It lists a queue that was deleted a moment ago.
            wait_until(
                lambda: set(management.observe().queues) - control == wanted_queues,
                f"no queue is left but {', '.join(sorted(wanted_queues))}",
            )
            assert compare(self.new.topology(), management.observe()) == []
