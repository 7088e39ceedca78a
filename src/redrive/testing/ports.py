"""Find free TCP ports."""

import os
import random
import socket
import sys
from collections import deque
from contextlib import ExitStack

# Below the range that Linux and macOS use for outgoing connections: a broker that is down for a
# while must find its port free when it comes back.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 1_000
_MOST_RESERVED = 64

_reserved: deque[int] = deque()
"""File descriptors of the sockets that reserve the most recently returned ports; they stay open
until this process ends."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different TCP ports that are free on `host` at this moment.

    The ports are not returned again for a while, as it may take seconds until somebody listens on
    them. On Linux that applies to all processes on the machine.
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
    """Reserve a port; return False if it was returned a moment ago."""
    if sys.platform != "linux":
        return True  # only chance keeps two apart
    # An abstract address: it leaves no file behind, and disappears with its process.
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
