"""A counter that each thread adds to without a lock, and that is read when metrics are collected.

A metrics library takes six microseconds for an increment: of five for each message, a service has
little time left for the message.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

_Attributes = tuple[tuple[str, str], ...]
_MOST_SHARDS = 64


class _Shard(threading.local):
    counts: Counter[_Attributes] | None = None


class ThreadCounter:
    """Counts by attributes. What one thread adds, no other thread writes to."""

    def __init__(self) -> None:
        self._own = _Shard()
        self._lock = threading.Lock()
        self._shards: list[tuple[threading.Thread, Counter[_Attributes]]] = []
        self._ended: Counter[_Attributes] = Counter()
        """What threads have counted that have ended."""

    def add(self, amount: int, attributes: Mapping[str, str]) -> None:
        """Adds to the count of these attributes, which stand in the same order each time."""
        counts = self._own.counts
        if counts is None:
            counts = self._new_shard()
        counts[tuple(attributes.items())] += amount

    def totals(self) -> Counter[_Attributes]:
        """What all threads have counted."""
        with self._lock:
            total = self._ended.copy()
            for _, counts in self._shards:
                # A copy: a dict that its thread adds to meanwhile can't be gone through.
                total.update(dict(counts))
            return total

    def observe(self, _: "CallbackOptions") -> Iterator["Observation"]:
        """The counts, for an observable instrument."""
        from opentelemetry.metrics import Observation

        for attributes, count in self.totals().items():
            yield Observation(count, dict(attributes))

    def _new_shard(self) -> Counter[_Attributes]:
        counts = self._own.counts = Counter()
        with self._lock:
            if len(self._shards) >= _MOST_SHARDS:
                ended = [one for one in self._shards if not one[0].is_alive()]
                self._shards = [one for one in self._shards if one not in ended]
                for _, counted in ended:
                    self._ended.update(counted)
            self._shards.append((threading.current_thread(), counts))
        return counts


_known: "WeakKeyDictionary[MeterProvider, dict[str, ThreadCounter]]" = WeakKeyDictionary()


def counter_of(
    provider: "MeterProvider", name: str, unit: str, description: str, *, falls: bool = False
) -> ThreadCounter:
    """The counter of this name, which a provider reads; the same one each time, since a provider
    takes an observable instrument once.

    Args:
        provider: who reads it.
        name: the instrument's.
        unit: what is counted.
        description: for people.
        falls: whether it may become less.
    """
    counters = _known.setdefault(provider, {})
    if name not in counters:
        counter = counters[name] = ThreadCounter()
        meter = provider.get_meter("redrive")
        create = (
            meter.create_observable_up_down_counter if falls else meter.create_observable_counter
        )
        create(name, [counter.observe], unit, description)
    return counters[name]
