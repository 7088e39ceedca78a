"""What waits for its time: failed messages before their next attempt, and delayed messages."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.admin.management_api import QUICK_TIMEOUT, ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Waiting, declaring, waiting
from redrive.topology.names import ExchangeFamily, retry_queue

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """Messages that wait in one queue.

    Args:
        queue: the queue.
        messages: how many wait; None if that is unknown.
        due_within: how long they wait at most from now; None if that is unknown.
    """

    queue: str
    messages: int | None
    due_within: timedelta | None

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        due = self.due_within
        return {
            "queue": self.queue,
            "messages": self.messages,
            "due_within_seconds": None if due is None else due.total_seconds(),
        }


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What waits for its time.

    Args:
        retry: what waits in the retry queue; None if there is none.
        held_back: what RabbitMQ holds back in the main queue; None if it holds nothing back there.
        is_ordered: whether messages wait for a retry in their place, held by the worker; None if
            that is unknown.
        ladder: what waits on the delay ladder, for all queues of the family together.
        problem: why the management API did not answer; empty if it did.
    """

    retry: WaitingMessages | None
    held_back: WaitingMessages | None
    is_ordered: bool | None
    ladder: Waiting
    problem: str


def scheduled(
    connector: Connector, management_url: str | None, queue: str, exchanges: ExchangeFamily
) -> Scheduled:
    """Count the messages that wait for `queue`, without taking any.

    Raises:
        ConfigurationError: there is no such queue.
    """
    name = retry_queue(queue)
    with declaring(connector) as declarer:
        retry = declarer.depth(name)
        if retry is None and declarer.depth(queue) is None:
            raise ConfigurationError(
                f"there is no queue {queue!r} at {connector.url.address}",
                "Check the name of the main queue, and the virtual host.",
            )
    main, delays, held_back, problem = _asked(connector, management_url, queue, retry is not None)
    return Scheduled(
        None
        if retry is None
        else WaitingMessages(name, retry.messages, _milliseconds(delays, "x-message-ttl")),
        None
        if main is None or "x-delayed-retry-type" not in main
        else WaitingMessages(queue, held_back, _milliseconds(main, "x-delayed-retry-max")),
        None if main is None else main.get("x-single-active-consumer") is True,
        waiting(connector, exchanges),
        problem,
    )


def _asked(
    connector: Connector, management_url: str | None, queue: str, has_retry_queue: bool
) -> tuple[dict[str, object] | None, dict[str, object], int | None, str]:
    """Return the arguments of the main and the retry queue, how many messages are held back, and
    why these are unknown."""
    try:
        with ManagementAPI.of(connector, management_url, QUICK_TIMEOUT) as management:
            delays: dict[str, object] = {}
            if has_retry_queue:
                delays = management.arguments_of(retry_queue(queue))
            main: dict[str, object] = {}
            with contextlib.suppress(ConfigurationError):  # only its retry queue is left
                main = management.arguments_of(queue)
            held_back = management.held_back() if "x-delayed-retry-type" in main else {}
            return main, delays, held_back.get(queue), ""
    except RedriveError as error:
        return None, {}, None, str(error).partition("\n")[0].rstrip(".")


def _milliseconds(arguments: Mapping[str, object], name: str) -> timedelta | None:
    value = arguments.get(name)
    return value * _MILLISECOND if isinstance(value, int) else None
