"""How often somebody may try a password.

Nobody is locked out: a wrong password only has the next try from the same place wait, at most half
a minute, and tries in that time change nothing. A user who comes from elsewhere does not wait for
what others have tried under the name.
"""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

_FREE = {True: 5, False: 30}
"""How many tries fail before one waits: of one user from one address, and of all users from it."""
_LONGEST = 30.0
_FORGOTTEN_AFTER = 900.0
_MOST = 10_000


@dataclass(slots=True)
class _Tries:
    failed: int = 0
    last: float = 0.0
    again_at: float = 0.0


class LoginThrottle:
    """Counts failed logins, by address, and by address and user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tries: OrderedDict[tuple[str, str | None], _Tries] = OrderedDict()

    def wait(self, address: str, user: str) -> float:
        """Seconds until this may be tried; 0 for now."""
        now = time.monotonic()
        with self._lock:
            known = [self._tries.get(key) for key in _keys(address, user)]
            return max([0.0, *(one.again_at - now for one in known if one is not None)])

    def failed(self, address: str, user: str) -> None:
        """Notes a try that failed."""
        now = time.monotonic()
        with self._lock:
            for key in _keys(address, user):
                tries = self._tries.setdefault(key, _Tries())
                if now - tries.last > _FORGOTTEN_AFTER:
                    tries.failed = 0
                tries.failed += 1
                tries.last = now
                over = tries.failed - _FREE[key[1] is not None]
                if over >= 0:
                    tries.again_at = now + min(_LONGEST, float(2 ** min(over, 10)))
                self._tries.move_to_end(key)
            while len(self._tries) > _MOST:
                self._tries.popitem(last=False)

    def succeeded(self, address: str, user: str) -> None:
        """Forgets what this user has tried from there. What was tried of others stays: else one
        account would buy tries at all."""
        with self._lock:
            self._tries.pop((address, user), None)


def _keys(address: str, user: str) -> tuple[tuple[str, str | None], ...]:
    return ((address, user), (address, None))
