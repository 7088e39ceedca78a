"""TCP ports that nobody has."""

import random
import socket
from contextlib import ExitStack

# Below the range from which Linux and macOS take the near end of outgoing connections: a broker
# that is down for a while must find its port free when it comes back.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 1_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return as many different TCP ports as asked for, free on `host` at this moment.

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
            chosen.append(port)
    raise OSError(f"no {count} free TCP ports between {_LOWEST} and {_HIGHEST} on {host}")
