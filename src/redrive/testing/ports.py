"""TCP ports that nobody has."""

import os
import random
import socket
import sys
from collections import deque
from contextlib import ExitStack

# Below the range from which Linux and macOS take the near end of outgoing connections: a broker
# that is down for a while must find its port free when it comes back.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 1_000
_MOST_RESERVED = 64

_reserved: deque[int] = deque()
"""The sockets, by their file descriptors, that keep others from the ports that were given out
last; they are open until this process ends."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return as many different TCP ports as asked for, free on `host` at this moment.

    Nobody who asks here is given one of them for a while: it may take seconds until somebody
    listens there. On Linux that holds for all processes of the machine.
    """
    chosen: list[int] = []
    with ExitStack() as held:
        for _ in range(_TRIES):
            if len(chosen) == count:
                return chosen
            port = random.randrange(_LOWEST, _HIGHEST)
            candidate = held.enter_context(socket.socket())
            try:
                candidate.bind((host, port))
            except OSError:
                continue
            if _reserve(port):
                chosen.append(port)
    raise OSError(f"no {count} free TCP ports between {_LOWEST} and {_HIGHEST} on {host}")


def _reserve(port: int) -> bool:
    """Whether nobody was given this port a moment ago."""
    if sys.platform != "linux":
        return True  # only chance keeps two apart
    # An abstract address: there is no file to leave behind, and it goes with its process.
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0redrive-port-{port}")
    except OSError:
        reservation.close()
        return False
    _reserved.append(reservation.detach())
    while len(_reserved) > _MOST_RESERVED:
        os.close(_reserved.popleft())
    return True
