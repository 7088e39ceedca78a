"""Run what takes minutes by nature, in parts: `make nightly`, or `make nightly PART=cluster`.

Each part is a command that takes less than an hour. Two run at a time: one that mostly computes,
and one that mostly waits. What has passed at this commit is not run again, so a night that was
interrupted goes on where it was. The table at the end says what ran on which broker, when, and with
which result; the logs are in `.cache/nightly`.

Every test runs on each version of RabbitMQ, at the length of a day, in the container of the Debian
release that packages it. What only the night does runs on the RabbitMQ that is installed, and on
the other versions where the result depends on the version.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from text_table import aligned

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".cache" / "nightly"
VERSIONS = {"3.10": "bookworm", "4.0": "trixie", "4.3": "forky"}
"""The versions of RabbitMQ, each with the Debian release that packages it."""
_SUMMARY = re.compile(
    r"^(?:=+ )?((?:\d+ (?:passed|failed|errors?|skipped|deselected)(?:, )?)+ in [\d.]+s)",
    re.MULTILINE,
)
_BROKER = re.compile(r"^((?:a model of )?RabbitMQ \d+\.\d+\.\d+).*$", re.MULTILINE)
_MINUTE = 60
_appending = threading.Lock()


@dataclass(frozen=True, slots=True)
class Part:
    """One command of the night.

    Args:
        name: what `PART` chooses it by.
        broker: what it is to run on, for the table, where its log does not tell.
        command: a line for the shell, run at the top of the repository.
        environment: variables that it gets besides.
    """

    name: str
    broker: str
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether most of its time is waiting, so that it runs beside those that compute."""
        return self.name.startswith(("torture", "cluster", "interop", "wire", "contract-4"))


def parts() -> list[Part]:
    """All parts, in the order in which they run."""
    pytest = ".venv/bin/python -P -m pytest -q"
    memory = {"REDRIVE_TEST_BROKER": "memory"}
    rabbitmq = {"REDRIVE_TEST_BROKER": "rabbitmq"}
    long = {"REDRIVE_RUN_SECONDS": "3600", "REDRIVE_TEST_PROCESSES": "4"}
    return [
        *(
            Part(
                f"suite-{suite}",
                f"{version}, that of Debian's {suite}",
                f"make suites SUITES={suite}",
                long,
            )
            for version, suite in VERSIONS.items()
        ),
        *(
            Part(
                folder,
                "installed",
                f"{pytest} -n 6 --dist worksteal tests/{folder}",
                rabbitmq if folder == "contract" else {},
            )
            for folder in ("integration", "web", "contract", "interop", "security", "packaging")
        ),
        *(
            Part(
                f"{name}-{version}",
                version,
                f"tests/brokers/matrix.sh {version} -- {tests}",
                {**rabbitmq, **long},
            )
            for version in ("4.0", "4.3")
            for name, tests in (
                ("contract", "tests/contract"),
                ("wire", "tests/integration tests/interop tests/web --versions"),
            )
        ),
        *(
            Part(
                f"cluster-{version}",
                version,
                f"tests/brokers/matrix.sh {version} -- tests/cluster",
                long,
            )
            for version in VERSIONS
        ),
        *(Part(f"torture-{version}", version, _torture(version)) for version in VERSIONS),
        Part("torture-cluster", "4.3, three nodes", _torture("4.3", "--nodes 3")),
        Part("unit", "none", f"{pytest} -n 2 tests/unit tests/typing"),
        *(
            Part(
                f"memory-{version}",
                f"a model of {version}",
                f"{pytest} -n 4 tests/contract",
                {**memory, "REDRIVE_TEST_MEMORY_VERSION": version},
            )
            for version in VERSIONS
        ),
        Part("spark", "installed", "make test-spark"),
        Part("lowest", "installed", "make lowest"),
        Part(
            "incident",
            "installed",
            ".venv/bin/python -m benchmarks.console --count 100000",
        ),
    ]


def _torture(version: str, more: str = "") -> str:
    return f'make torture ARGS="--seed 7 --minutes 10 --version {version} {more}"'


@dataclass(frozen=True, slots=True)
class Result:
    """How a part ended."""

    commit: str
    part: str
    broker: str
    began: str
    minutes: str
    said: str

    @property
    def has_passed(self) -> bool:
        return self.said.startswith("passed")


def results() -> list[Result]:
    """How the parts ended that ran here, the latest last."""
    file = FOLDER / "results.tsv"
    if not file.exists():
        return []
    return [Result(*line.split("\t")) for line in file.read_text(encoding="utf-8").splitlines()]


def run(part: Part, commit: str) -> Result:
    """Run a part, and write down how it ended."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{part.name}.log"
    _say(f"{part.name} begins: {part.command} > {log.relative_to(ROOT)}")
    began, clock = datetime.now().astimezone(), time.monotonic()
    with log.open("wb") as output:
        code = subprocess.call(
            part.command,
            shell=True,
            cwd=ROOT,
            env={**os.environ, "REDRIVE_TEST_NIGHTLY": "1", **part.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    printed = log.read_text(encoding="utf-8", errors="replace")
    summaries, brokers = _SUMMARY.findall(printed), dict.fromkeys(_BROKER.findall(printed))
    outcome = "passed" if code == 0 else f"failed with {code}"
    result = Result(
        commit,
        part.name,
        "; ".join(brokers) or part.broker,
        began.isoformat(" ", "minutes"),
        f"{(time.monotonic() - clock) / _MINUTE:.0f}",
        f"{outcome}: {'; '.join(summaries)}" if summaries else outcome,
    )
    line = "\t".join(
        (result.commit, result.part, result.broker, result.began, result.minutes, result.said)
    )
    with _appending, (FOLDER / "results.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    _say(f"{part.name} {result.said}, {result.minutes} minutes")
    return result


def _say(line: str) -> None:
    # In one piece: two threads print.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def table(commit: str) -> str:
    """How the parts ended at a commit, as text; a part that did not run says so."""
    latest = {result.part: result for result in results() if result.commit == commit}
    rows = [("part", "RabbitMQ", "began", "minutes", "result")]
    for part in parts():
        found = latest.get(part.name)
        told = (found.began, found.minutes, found.said) if found else ("", "", "not run")
        rows.append((part.name, part.broker, *told))
    return aligned(rows)


def main(chosen: str) -> int:
    """Run the parts whose names begin so and that have not passed at this commit."""
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.check_output(asked, cwd=ROOT, text=True).strip()
    wanted = [part for part in parts() if part.name.startswith(chosen)]
    if not wanted:
        print(f"There is no part {chosen!r}: {', '.join(part.name for part in parts())}.")
        return 2
    passed = {one.part for one in results() if one.commit == commit and one.has_passed}
    if commit.endswith("-dirty"):  # it stands for more than one tree
        passed = set()
    lanes = {waits: ThreadPoolExecutor(1) for waits in (False, True)}
    runs = [
        lanes[part.waits].submit(run, part, commit) for part in wanted if part.name not in passed
    ]
    try:
        ended = [one.result() for one in runs]
    except KeyboardInterrupt:  # the parts that are running have been told, too
        for lane in lanes.values():
            lane.shutdown(cancel_futures=True)
        print(table(commit))
        return 130
    print(table(commit))
    return int(not all(result.has_passed for result in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
