"""Watching what becomes of messages that a job on Spark has sent, by the queues that they came
from."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

from redrive.errors import ConfigurationError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.outcome_watch import Watch
from redrive.failures.return_checks import ReturnChecks
from redrive.failures.way_back import WayBack
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.lifecycle import default_name
from redrive.spark_reprocess.archive import Run
from redrive.spark_reprocess.selection import Selection
from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import OutcomeTotals


class RunWatch:
    """Several watches as one; a context manager.

    Args:
        watches: what is watched.
        comes_back_to: the dead-letter queues that what fails again comes back to; empty where
            subscribers of redrive's tell of outcomes.
    """

    def __init__(self, watches: Sequence[Watch | ReturnChecks], comes_back_to: str = "") -> None:
        self._watches = watches
        self._open = contextlib.ExitStack()
        self.comes_back_to = comes_back_to

    @property
    def standing(self) -> OutcomeTotals:
        """What was known at the last look; from any thread."""
        return sum((one.standing for one in self._watches), OutcomeTotals())

    def look(self) -> OutcomeTotals:
        """What is known by now. The queues that are looked into are nobody's while messages are
        sent: these are in the archive."""
        return sum((one.look() for one in self._watches), OutcomeTotals())

    def __enter__(self) -> Self:
        with self._open:
            for one in self._watches:
                self._open.enter_context(one)
                one.begin()
                one.sent(0)  # of what was in the queue, nothing: it was drained before
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def watch_of(
    url: str,
    run: Run,
    family: ExchangeFamily,
    choice: Selection,
    job: str,
    *,
    arrivals: Callable[[], Mapping[str, Collection[WayBack]]],
    management_url: str | None = None,
) -> RunWatch:
    """What watches messages of a run.

    Args:
        url: the broker's address.
        run: the run.
        family: its exchange family.
        choice: where they are sent to.
        job: the id that each of them carries.
        arrivals: tells by which exchanges and keys they came to which dead-letter queue.
        management_url: the management API's address.

    Raises:
        ConfigurationError: some of them tell of success, and of others only what fails is seen.
        BrokerUnavailable, PermissionDenied: the broker can't be reached.
    """
    connector = Connector(url, default_name("spark watch", job))
    if choice.to is not None:
        return RunWatch([Watch(connector, family, [choice.to], job)])
    if not run.dead_letter_queues:
        return RunWatch([Watch(connector, family, run.queues, job)])
    if run.main_queues:
        raise ConfigurationError(
            f"{', '.join(run.main_queues)}: redrive's subscribers tell what succeeded, and those "
            f"of {', '.join(run.dead_letter_queues)} do not: one canary can't be judged by both",
            "Leave out --canary and --stop-at, or drain them into archives of their own.",
        )
    came = arrivals()
    watches = [
        FailedQueue(url, queue, family, management_url=management_url, literal=True).watch(
            job, arrivals=came.get(queue, ())
        )
        for queue in run.dead_letter_queues
    ]
    return RunWatch(watches, ", ".join(run.dead_letter_queues))
