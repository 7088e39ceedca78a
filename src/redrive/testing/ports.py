"""TCP ports that nobody has."""

import contextlib
import os
import random
import socket
import sys
import tempfile
from collections import deque
from contextlib import ExitStack
from pathlib import Path

if sys.platform != "win32":
    import fcntl

# Below the range from which Linux and macOS take the near end of outgoing connections: a broker
# that is down for a while must find its port free when it comes back.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 1_000
_MOST_RESERVED = 64

_reserved: deque[int] = deque()
"""The files whose locks keep others from the ports that were given out last."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return as many different TCP ports as asked for, free on `host` at this moment.

    Nobody who asks here is given one of them for a while, in this process or in another of the same
    user: it may take seconds until somebody listens there.

    Raises:
        OSError: no free port was found.
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
    """Whether nobody was given this port a moment ago. Where no file can be locked it is so: then
    only chance keeps two apart."""
    if sys.platform == "win32":
        return True
    folder = Path(tempfile.gettempdir()) / f"redrive-ports-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        file = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    _reserved.append(file)
    while len(_reserved) > _MOST_RESERVED:
        with contextlib.suppress(OSError):
            os.close(_reserved.popleft())
    return True
