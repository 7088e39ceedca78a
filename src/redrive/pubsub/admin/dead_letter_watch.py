"""Finds out whether a broker still dead-letters: it may stop for good after a fault."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from redrive.pubsub.admin.management_api import ManagementAPI

_LONGEST_DELAY = timedelta(minutes=1)
_GRACE = timedelta(seconds=10)
_BETWEEN_LOOKS = 1.0

OnWait = Callable[[float, float], object]
"""Told how many seconds were waited so far, and how many it takes at most."""


def stuck(
    management: ManagementAPI, delays: Mapping[str, timedelta | None], on_wait: OnWait
) -> dict[str, int]:
    """The queues whose dead-lettering has stopped, and how many messages are stuck in each.

    A queue that dead-letters nothing now takes no time. Any other is watched until it has fewer of
    them; if it never has for as long as its delay, a minute at most, and ten seconds more, it is
    stuck. The broker's numbers are five seconds old.

    Args:
        management: the broker's management API.
        delays: the queues, and how long a message waits in each; None where it does not wait.
        on_wait: told how long it waits.

    Raises:
        BrokerUnavailable, PermissionDenied: the API does not answer.
    """
    began = time.monotonic()
    found = management.dead_lettering()
    most = {name: found[name] for name in delays if found.get(name)}
    stuck_now: dict[str, int] = {}
    while most:
        waited = time.monotonic() - began
        longest = max(_patience(delays[name]) for name in most)
        on_wait(min(waited, longest), longest)
        time.sleep(_BETWEEN_LOOKS)
        found = management.dead_lettering()
        for name in list(most):
            count = found.get(name, 0)
            if count < most[name]:
                del most[name]
            elif time.monotonic() - began > _patience(delays[name]):
                del most[name]
                stuck_now[name] = count
            else:
                most[name] = count
    return stuck_now


def _patience(delay: timedelta | None) -> float:
    return (min(delay or timedelta(0), _LONGEST_DELAY) + _GRACE).total_seconds()
