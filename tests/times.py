"""Measure what each test costs, and print it by file: the pytest plugin behind `make test-times`.

With `--times FILE` each process of a run appends a line of JSON for each test, and
`python tests/times.py FILE` prints the table. Seconds of our processor are those of the process
that runs the test and of all that it has started, a broker of its own among them once that has
ended. The processor time of brokers that run is divided among the tests that run at that moment.
Waiting is the rest of the wall time; on a busy machine that includes waiting for a processor.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_BROKER = "beam.smp"
_SCAN_EVERY = 2.0
_SLOWEST = 60


class TimesPlugin:
    """Append a line for each test to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._brokers: list[int] = []
        self._scanned = float("-inf")
        self._setup = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._setup = 0.0
        before = self._reading()
        result = yield
        after = self._reading()
        line = {
            "file": item.nodeid.partition("::")[0],
            "function": getattr(item, "originalname", item.name),
            "id": item.nodeid,
            "start": before[0],
            "end": after[0],
            "ours": after[1] - before[1],
            "broker_start": before[2],
            "broker_end": after[2],
            "setup": self._setup,
        }
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            self._setup += report.duration

    def _reading(self) -> tuple[float, float, dict[int, float]]:
        """The time, the processor seconds of this process and its children, those of brokers."""
        now = time.monotonic()
        if now - self._scanned > _SCAN_EVERY:
            self._scanned = now
            self._brokers = [
                int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _is_broker(entry)
            ]
        brokers = {pid: seconds for pid in self._brokers if (seconds := _seconds(pid)) is not None}
        return now, _tree_seconds(os.getpid()), brokers


def _stat(pid: int | str) -> tuple[str, list[str]] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()


def _is_broker(pid: int | str) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] == _BROKER


def _seconds(pid: int, *, with_ended_children: bool = False) -> float | None:
    stat = _stat(pid)
    if stat is None:
        return None
    return sum(map(int, stat[1][11 : 15 if with_ended_children else 13])) * _TICK


def _tree_seconds(pid: int) -> float:
    """Add up a process and all that it has started, without brokers."""
    if _is_broker(pid):
        return 0.0
    total = _seconds(pid, with_ended_children=True) or 0.0
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            total += sum(_tree_seconds(int(child)) for child in children)
    return total


@dataclass(slots=True)
class Cost:
    """Seconds of one test, or of several."""

    runs: int = 0
    wall: float = 0.0
    ours: float = 0.0
    broker: float = 0.0
    setup: float = 0.0
    functions: Counter[str] = field(default_factory=Counter)

    def add(self, other: Cost) -> None:
        """Count another one in."""
        self.runs += other.runs
        self.wall += other.wall
        self.ours += other.ours
        self.broker += other.broker
        self.setup += other.setup
        self.functions += other.functions

    @property
    def waiting(self) -> float:
        """What neither we nor the broker worked."""
        return max(0.0, self.wall - self.ours - self.broker)


def costs(lines: Iterable[dict[str, Any]]) -> dict[str, tuple[str, Cost]]:
    """What each test cost, with the name of its function, by its id."""
    tests = list(lines)
    shares = _broker_shares(tests)
    found: dict[str, tuple[str, Cost]] = {}
    for number, test in enumerate(tests):
        key = f"{test['file']}::{test['function']}"
        cost = Cost(
            1,
            test["end"] - test["start"],
            test["ours"],
            shares[number],
            test["setup"],
            Counter({key: 1}),
        )
        if test["id"] in found:
            found[test["id"]][1].add(cost)
        else:
            found[test["id"]] = (key, cost)
    return found


def _broker_shares(tests: list[dict[str, Any]]) -> list[float]:
    """Divide what each broker worked among the tests that ran at that moment."""
    shares = [0.0] * len(tests)
    moments = sorted(
        (test[when], when == "start", number)
        for number, test in enumerate(tests)
        for when in ("start", "end")
    )
    running: set[int] = set()
    last: dict[str, float] = {}
    for _, starts, number in moments:
        worked = 0.0
        for pid, seconds in tests[number]["broker_start" if starts else "broker_end"].items():
            worked += max(0.0, seconds - last.get(pid, 0.0 if running else seconds))
            last[pid] = seconds
        for other in running:
            shares[other] += worked / len(running)
        if starts:
            running.add(number)
        else:
            running.discard(number)
    return shares


def table(lines: Iterable[dict[str, Any]]) -> str:
    """The costs by file, and those of the slowest functions, as text."""
    files: dict[str, Cost] = {}
    functions: dict[str, Cost] = {}
    whole = Cost()
    for key, cost in costs(lines).values():
        files.setdefault(key.partition("::")[0], Cost()).add(cost)
        functions.setdefault(key, Cost()).add(cost)
        whole.add(cost)
    head = f"{'wall':>8}{'ours':>8}{'broker':>8}{'waiting':>8}{'set-up':>8}{'runs':>7}{'tests':>7}"
    rows = ["Seconds by file", head, _row(whole, "all")]
    rows += [_row(cost, name) for name, cost in _slowest(files)]
    rows += ["", f"The slowest {_SLOWEST} functions, all their runs together", head]
    rows += [_row(cost, name) for name, cost in _slowest(functions)[:_SLOWEST]]
    rows += ["", "The functions with the most runs", head]
    most = sorted(functions.items(), key=lambda entry: entry[1].runs, reverse=True)
    rows += [_row(cost, name) for name, cost in most[:_SLOWEST]]
    return "\n".join(rows)


def _slowest(costs: dict[str, Cost]) -> list[tuple[str, Cost]]:
    return sorted(costs.items(), key=lambda entry: entry[1].wall, reverse=True)


def _row(cost: Cost, name: str) -> str:
    seconds = (cost.wall, cost.ours, cost.broker, cost.waiting, cost.setup)
    numbers = "".join(f"{value:8.1f}" for value in seconds)
    return f"{numbers}{cost.runs:7}{len(cost.functions):7}  {name}"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(table(map(json.loads, file)))
