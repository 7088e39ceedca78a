"""What is asked of the workers of a subscription: checked, with the time and who asks."""

import getpass
import os
import socket
from datetime import UTC, datetime

from redrive.errors import ConfigurationError
from redrive.topology.control import Action, Control
from redrive.topology.durations import Duration, duration_of
from redrive.topology.names import check_queue_name
from redrive.topology.rates import Rate, rate_of


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
