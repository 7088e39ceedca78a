"""Runs random faults against redrive while every mechanism is at work, and counts each message.

make torture ARGS="--seed 7 --minutes 30 --version 4.3 --nodes 3"
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from typing import get_args

from torture import records
from torture.checker import FindingKind
from torture.plants import PLANTS
from torture.run import Options, Result, TortureRun

_MOST_FINDINGS = 20


def main() -> int:
    """Runs, prints the table, and returns the exit code."""
    told = parsed(sys.argv[1:])
    options = options_of(told)
    # A shell has what it runs in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = TortureRun(options, _tell).result()
    except KeyboardInterrupt:
        _tell("stopped")
        return 130
    if told.record:
        records.add(records.Record.of(result))
    print(result.as_json() if told.output == "json" else "\n".join(table(result)))
    return exit_code(result)


def exit_code(result: Result) -> int:
    """1 on any finding; with a planted bug, 1 without one."""
    planted = result.options.plant
    if not planted:
        return 1 if result.report.findings else 0
    found = ", ".join(sorted({finding.kind for finding in result.report.findings}))
    _tell(f"the planted {planted} was {f'found: {found}' if found else 'not found'}")
    return 0 if found else 1


def table(result: Result) -> Iterator[str]:
    """The lines of what a run has come to."""
    report = result.report
    yield f"seed {result.options.seed} on {result.broker}, {result.seconds:.0f} s"
    rows: list[tuple[str, object]] = [
        (f"fault: {kind}", n) for kind, n in sorted(result.faults.items())
    ]
    rows += [
        ("faults", sum(result.faults.values())),
        ("releases of stuck dead-lettering", result.releases),
        ("processes that died by themselves", sum(result.deaths.values())),
        ("messages published", report.published),
        ("never confirmed", report.unconfirmed),
        ("handled", report.handled),
        ("set aside", report.set_aside),
        ("parked: nobody wanted them", report.parked),
        ("duplicates, all in flight at a fault", report.duplicates),
        ("held up for three minutes by the broker", report.held_up),
        ("lost by a classic queue with its node", len(report.lost_by_classic_queues)),
        *((kind, report.count(kind)) for kind in get_args(FindingKind)),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        yield f"  {name:<{width}}  {value:>8}"
    yield from (f"  note: {note}" for note in result.notes)
    yield from (f"  died: {name}, {n} times" for name, n in sorted(result.deaths.items()))
    yield from (f"  {finding}" for finding in report.findings[:_MOST_FINDINGS])
    if len(report.findings) > _MOST_FINDINGS:
        yield f"  and {len(report.findings) - _MOST_FINDINGS} more"
    if result.folder:
        yield f"The journals, the logs and the plan are in {result.folder}"


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    usual = Options()
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=usual.seed, help="which faults")
    parser.add_argument("--minutes", type=float, default=usual.minutes, help="for how long")
    parser.add_argument("--faults", type=int, help="how many faults at most")
    parser.add_argument(
        "--version", default="", help="which RabbitMQ, as 4.3; by default the one there is"
    )
    parser.add_argument("--nodes", type=int, default=usual.nodes, help="how many nodes")
    parser.add_argument("--plant", choices=sorted(PLANTS), default="", help="a known bug")
    parser.add_argument(
        "--record", action="store_true", help="add the result to benchmarks/RELIABILITY.md"
    )
    parser.add_argument("--output", choices=["table", "json"], default="table")
    return parser.parse_args(arguments)


def options_of(told: argparse.Namespace) -> Options:
    """What is to be run."""
    return Options(told.seed, told.minutes, told.faults, told.version, told.nodes, told.plant)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
