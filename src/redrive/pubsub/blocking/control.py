"""Write and read the pauses and rates of subscriptions."""

import getpass
import os
import socket
from datetime import UTC, datetime

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.blocking.stream_reader import StreamReader
from redrive.topology.control import Action, Control, control_queue, controls_of
from redrive.topology.durations import Duration, duration_of
from redrive.topology.names import ExchangeFamily, check_queue_name
from redrive.topology.rates import Rate, rate_of

_QUIET = 0.3
"""Seconds without an entry after which the stream counts as read."""
_ANSWERS_WITHIN = 10.0


def whoami() -> str:
    """Return the process's user and host."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # the user of a container may have no name
        name = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"


def control_for(
    queue: str,
    action: Action,
    *,
    reason: str = "",
    for_: Duration | None = None,
    rate: Rate | None = None,
    who: str = "",
) -> Control:
    """Return what is to be written for a subscription, checked."""
    check_queue_name(queue)
    now = datetime.now(UTC)
    until = None
    if for_ is not None:
        duration = duration_of(for_, "the duration of the pause")
        if duration.total_seconds() <= 0:
            raise ConfigurationError(f"the pause is for {duration}", "Give a duration above zero.")
        try:
            until = now + duration
        except OverflowError as error:
            raise ConfigurationError(
                f"the pause is for {duration}", "Leave it out for a pause without an end."
            ) from error
    return Control(
        queue,
        action,
        now,
        reason,
        until,
        None if rate is None else rate_of(rate),
        who or whoami(),
    )


def send(connector: Connector, exchanges: ExchangeFamily, control: Control) -> None:
    """Append to the control stream, and return once the broker has it."""
    with declaring(connector) as declarer:
        try:
            declarer.declare(control_queue(exchanges))
        except PermissionDenied:
            if not declarer.may_exist(control_queue(exchanges)):
                raise
        declarer.append(exchanges.control, control.encode(), connector.url.username)


def read(connector: Connector, exchanges: ExchangeFamily) -> dict[str, Control]:
    """Return what is in force, by queue.

    Raises:
        PermissionDenied: the user may not read the stream.
        BrokerUnavailable: no broker answered.
    """
    stream = exchanges.control
    with declaring(connector) as declarer:
        if not declarer.may_exist(control_queue(exchanges)):
            return {}
    entries: list[tuple[bytes, str]] = []
    with StreamReader(connector, stream, "first") as reader:
        if not reader.wait_until_begun(_ANSWERS_WITHIN):
            raise BrokerUnavailable(
                connector.url.address, f"the stream {stream!r} did not answer", "See its log."
            )
        while (row := reader.next(_QUIET)) is not None:
            entries.append((row.body, row.user))
    return controls_of(entries, datetime.now(UTC))
