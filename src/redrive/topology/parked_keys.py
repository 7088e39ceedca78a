"""The keys of an ordered queue that are parked: one of their messages was given up, and later ones
are set aside behind it until they are all requeued.

Each message that is parked has a place, a number that grows: it keeps it in its headers when it is
requeued. A message with a place from that of the last one that was given up is handled again; any
other one of its key is parked behind all so far. When the one with the last place is handled, the
key is no longer parked.

What is known is a log, which the worker that handles the queue appends to before it acts. A worker
that takes over appends a fence, reads up to it, and from then on nobody else's entries count.
"""

import json
from typing import NamedTuple

MOST_ENTRIES = 10_000
"""Entries after which a worker sums up the log, so that its oldest ones are not needed."""


class ParkedPlace(NamedTuple):
    """Where a message is among those that are parked.

    Args:
        key: its key.
        number: its place; larger than that of any earlier message of the key.
    """

    key: str
    number: int


class _Parked(NamedTuple):
    """The places of the last message that was given up, and of the last one behind it."""

    first: int
    last: int


class ParkedKeys:
    """The parked keys of one queue.

    Args:
        run: identifies the worker that keeps it.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._parked: dict[str, _Parked] = {}
        self._owner = ""
        self._entries = 0
        self._resuming: set[str] = set()

    def __len__(self) -> int:
        """Return the number of parked keys."""
        return len(self._parked)

    # --- what becomes of a message ----------------------------------------------------------------

    def admits(self, key: str | None, place: int) -> bool:
        """Return whether a message may be handled.

        Args:
            key: its key; None if it has none.
            place: the place that it was requeued with; 0 for none.
        """
        parked = self._parked.get(key) if key is not None else None
        return parked is None or place >= parked.first

    def goes_first(self, key: str | None, place: int) -> bool:
        """Return whether a message goes before what came since its key was parked."""
        return key in self._parked and self.admits(key, place)

    def is_resuming(self, key: str | None) -> bool:
        """Return whether a requeued message of a parked key was handled, so that the others will
        come soon, and what is new can wait for them."""
        return key in self._resuming

    def resume(self, key: str | None) -> None:
        """Note that a requeued message of a key is handled."""
        if key in self._parked:
            self._resuming.add(key)

    def wait_no_longer(self, key: str | None) -> None:
        """Park again what is new of a key."""
        self._resuming.discard(key or "")

    def give_up(self, key: str, now_ms: int) -> ParkedPlace:
        """Park a key, behind a message that was given up; `now_ms` is the time in milliseconds."""
        number = self._next(key, now_ms)
        self._parked[key] = _Parked(number, number)
        self._resuming.discard(key)
        return ParkedPlace(key, number)

    def fall_behind(self, key: str, now_ms: int) -> ParkedPlace:
        """Park a message behind the others of its key."""
        number = self._next(key, now_ms)
        parked = self._parked.get(key)
        self._parked[key] = _Parked(number if parked is None else parked.first, number)
        return ParkedPlace(key, number)

    def ends_with(self, key: str | None, place: int) -> bool:
        """Return whether a message is the last one that is parked for its key."""
        parked = self._parked.get(key) if key is not None else None
        return parked is not None and parked.last == place

    def free(self, key: str) -> None:
        """Handle all messages of a key again."""
        del self._parked[key]
        self._resuming.discard(key)

    def _next(self, key: str, now_ms: int) -> int:
        """Return a place after all others of the key, and of the last time that it was parked."""
        parked = self._parked.get(key)
        return max(now_ms, 0 if parked is None else parked.last + 1)

    # --- the log ----------------------------------------------------------------------------------

    def entry_of(self, key: str) -> bytes:
        """Return the entry that says what is known of a key now, or of all keys once in a while."""
        self._entries += 1
        if self._entries >= MOST_ENTRIES:
            return self.summary()
        return self._encoded({"keys": {key: self._parked.get(key)}})

    def summary(self) -> bytes:
        """Return the entry that says what is known of all keys."""
        self._entries = 0
        return self._encoded({"all": self._parked})

    def fence(self) -> bytes:
        """Return the entry after which nobody else's count."""
        return self._encoded({"fence": True})

    def read(self, body: bytes) -> bool:
        """Take an entry of the log, and return whether it is this worker's fence. Entries that
        can't be read, or come from a worker that was replaced, do not count."""
        entry = _decoded(body)
        if entry is None:
            return False
        if entry.get("fence") is True:
            self._owner = str(entry.get("run"))
            return self._owner == self._run
        if entry.get("run") == self._owner:
            if "all" in entry:
                self._parked = {}
            for name in ("all", "keys"):
                self._take(entry.get(name))
        return False

    def _take(self, keys: object) -> None:
        for key, value in keys.items() if isinstance(keys, dict) else ():
            match value:
                case [int(first), int(last)]:
                    self._parked[key] = _Parked(first, last)
                case None:
                    self._parked.pop(key, None)

    def _encoded(self, entry: dict[str, object]) -> bytes:
        return json.dumps({"run": self._run, **entry}).encode()


def _decoded(body: bytes) -> dict[str, object] | None:
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
