"""What torture runs have come to, for good: a line of JSON for each, and a page with all of them.
Runs that found something are among them."""

import fcntl
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import get_args

from torture.checker import FindingKind
from torture.run import Result

FOLDER = Path(__file__).parents[2] / "benchmarks"
_LINES = "reliability.jsonl"
_PAGE = "RELIABILITY.md"
_KINDS: tuple[FindingKind, ...] = get_args(FindingKind)
_WORDS = """\
# Reliability: what random faults have done

Each run keeps all of redrive at work in both shells (dead-letter on quorum queues, republish on
classic ones, the delay ladder, an ordered queue, scheduled messages, a filtered requeue of failed
ones, and on RabbitMQ 4.3 messages that the broker itself holds back) while nodes, wires and
processes are killed, paused, cut and restarted in a random order. A checker that imports nothing of
redrive then counts each message. Which faults there are, what is counted, and what each column
means stands in [CONTRIBUTING](../CONTRIBUTING.md). Written by `make torture ARGS="--record …"`,
which repeats a run by its seed; runs that found something are here as well.

- **lost … left over** must be 0.
- **duplicates** were in flight at a fault; delivery is at least once.
- **held up** came up to three minutes late: after a node ends, a quorum queue dead-letters again
  only then what nobody has confirmed, and what is behind it waits.
- **classic** is what classic queues of a node that was killed or restarted lost on the way of a
  retry, where the broker moves messages without a confirm. It happens without redrive as well. What
  a quorum queue lost would stand under **lost**.
- **released** is how often dead-lettering that RabbitMQ 3.10 had stopped was set free.
"""


@dataclass(frozen=True, slots=True)
class Record:
    """What one run has come to.

    Args:
        date: when it ended, in UTC.
        commit: of what, with `-dirty` where something was not committed.
        broker: on what.
        nodes: how many nodes that had.
        seed: which faults.
        plant: the bug that was put in place; empty for none.
        faults: how many there were.
        published: how many messages were sent.
        duplicates: how many of them were handled or set aside more than once.
        classic: how many a classic queue lost with its node.
        released: how often dead-lettering that had stopped was set free.
        findings: how many there were of each kind; what is 0 is left out.
        note: what was found out about it since.
        held_up: how many came late because a queue waited for what it had to dead-letter again.
    """

    date: str
    commit: str
    broker: str
    nodes: int
    seed: int
    plant: str
    faults: int
    published: int
    duplicates: int
    classic: int
    released: int
    findings: dict[str, int]
    note: str = ""
    held_up: int = 0

    @classmethod
    def of(cls, result: Result) -> "Record":
        """That of a run that has just ended."""
        report = result.report
        return cls(
            f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
            _commit(),
            result.broker,
            result.options.nodes,
            result.options.seed,
            result.options.plant,
            sum(result.faults.values()),
            report.published,
            report.duplicates,
            len(report.lost_by_classic_queues),
            result.releases,
            dict(Counter(finding.kind for finding in report.findings)),
            held_up=report.held_up,
        )


def add(record: Record, folder: Path = FOLDER) -> None:
    """Adds a run, and writes the page again."""
    with (folder / _LINES).open("a+") as lines:
        fcntl.flock(lines, fcntl.LOCK_EX)
        lines.write(f"{json.dumps(asdict(record))}\n")
        lines.seek(0)
        records = [Record(**json.loads(line)) for line in lines]
        (folder / _PAGE).write_text("\n".join(page(records)) + "\n")


def page(records: Iterable[Record]) -> Iterator[str]:
    """The lines of the page."""
    ordered = sorted(records, key=lambda record: (record.broker, record.nodes, record.date))
    runs = [record for record in ordered if not record.plant]
    yield from _WORDS.splitlines()
    if not ordered:
        yield from ("", "No run has been recorded yet.")
        return
    yield from ("", "## All runs on a broker", "")
    yield from _sums(_by_site(runs))
    yield from ("", "## Each run", "")
    yield from _each(runs)
    planted = [record for record in ordered if record.plant]
    if planted:
        yield from ("", "## Known bugs that were put in place", "")
        yield from _each(planted)


def _by_site(records: Iterable[Record]) -> dict[str, list[Record]]:
    sites: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        sites[f"{record.broker}, {_nodes(record.nodes)}"].append(record)
    return sites


def _nodes(count: int) -> str:
    return f"{count} nodes" if count > 1 else "1 node"


def _sums(sites: Mapping[str, list[Record]]) -> Iterator[str]:
    def row(name: str, count: Callable[[Record], int]) -> str:
        return _row([name, *(f"{sum(map(count, records)):,}" for records in sites.values())])

    yield _row(["", *sites])
    yield _row(["---", *(["---:"] * len(sites))])
    yield row("runs", lambda record: 1)
    yield row("faults", lambda record: record.faults)
    yield row("messages published", lambda record: record.published)
    for kind in _KINDS:
        yield row(kind, partial(_found, kind))
    yield row("duplicates", lambda record: record.duplicates)
    yield row("held up", lambda record: record.held_up)
    yield row("classic", lambda record: record.classic)
    yield row("released", lambda record: record.released)


def _found(kind: FindingKind, record: Record) -> int:
    return record.findings.get(kind, 0)


def _each(records: Iterable[Record]) -> Iterator[str]:
    names = ["broker", "nodes", "date (UTC)", "redrive", "seed", "bug", "faults", "published"]
    yield _row([*names, "found"])
    yield _row(["---"] * (len(names) + 1))
    for record in records:
        found = ", ".join(f"{kind} ({n:,})" for kind, n in sorted(record.findings.items()))
        yield _row(
            [
                record.broker,
                record.nodes,
                record.date,
                record.commit,
                record.seed,
                record.plant or "none",
                f"{record.faults:,}",
                f"{record.published:,}",
                (found or "nothing") + (f" ({record.note})" if record.note else ""),
            ]
        )


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _commit() -> str:
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=7"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:  # there is no git
        return "unknown"
    return told.stdout.strip() or "unknown"
