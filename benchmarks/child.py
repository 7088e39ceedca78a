"""One run in a process of its own. Reads what to do as JSON from standard input, and writes what it
measured as JSON."""

import importlib
import json
import sys
from typing import Any

from benchmarks.measure import Clock, Ledger, Load, Place, peak_memory_mb


def main() -> None:
    """Does one run."""
    task: dict[str, Any] = json.load(sys.stdin)
    place, load = Place(**task["place"]), Load(task["count"], task["size"])
    module = importlib.import_module(task["module"])
    function = getattr(module, task["action"])
    if task["action"].startswith("consume"):
        ledger = Ledger(load.count)
        function(place, ledger)
        clock, done = ledger.clock, ledger.distinct
    elif task["action"].startswith("publish"):
        clock = Clock()
        done = function(place, load, clock)
    elif task["action"].startswith("requeue"):
        clock = Clock()
        done = function(place, clock)
    else:
        clock = Clock()
        with clock:
            done = function(place, load)
    json.dump(
        {
            "done": done,
            "seconds": clock.seconds,
            "cpu_seconds": clock.cpu_seconds,
            "peak_mb": peak_memory_mb(),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
