"""Runs the contenders in turn, each run in a process of its own. Knows nothing of any client."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.contenders import c_client
from benchmarks.measure import Place
from benchmarks.places import declare, fresh_place, over_tls, past_the_proxy, settled_depth
from benchmarks.plan import SIZE, Entry, Scenario
from benchmarks.results import Result, Run
from redrive.testing import Broker
from redrive.topology.broker_version import BrokerVersion

_LONGEST_RUN_SECONDS = 900

Say = Callable[[str], None]


class RunFailed(Exception):
    """A contender's process failed, or did not do all of its work."""


def measure(
    scenario: Scenario,
    broker: Broker,
    *,
    runs: int,
    messages: int,
    say: Say,
    tls_port: int | None = None,
) -> Result:
    """Runs a scenario's contenders round by round, so that a slow minute of the machine hits them
    all, and each round begins with another: A B C, B C A, since who comes first may have it easier.

    Args:
        scenario: what they do.
        broker: where.
        runs: how many rounds.
        messages: how many in each.
        say: is told how far it is.
        tls_port: where the broker has TLS. With it, those without TLS go the same way.
    """
    result = Result(scenario, broker.version)
    runs = scenario.runs or runs
    why_not = {entry: _why_not(entry, broker.version) for entry in scenario.entries}
    entries = [entry for entry in scenario.entries if why_not[entry] is None]
    for entry, reason in why_not.items():
        if reason is not None:
            say(f"{scenario.name} on {broker.version}: {entry.name}: left out: {reason}")
    for number in range(1, runs + 1):
        for entry in _beginning_with(number - 1, entries):
            count = max(1, int((scenario.messages or messages) * entry.share))
            name = f"{scenario.name} on {broker.version}, round {number} of {runs}: {entry.name}"
            try:
                run = _run(scenario, entry, broker, count, _way(entry, tls_port))
            except RunFailed as error:
                result.failures.append(f"{name}: {error}")
                say(f"{name}: FAILED: {error}")
                continue
            result.add(entry, run)
            say(
                f"{name}: {run.rate:,.0f}/s, {run.cpu_us:.0f} µs of CPU a message, peak "
                f"{run.peak_mb:.0f} MB"
            )
    return result


def _beginning_with(number: int, entries: list[Entry]) -> list[Entry]:
    first = number % max(1, len(entries))
    return entries[first:] + entries[:first]


def _why_not(entry: Entry, version: str) -> str | None:
    """Why a contender does not take part; None where it does."""
    if entry.retry_via == "broker" and not BrokerVersion.parse(version).holds_failed_messages_back:
        return "not on this version"
    return c_client.why_not() if entry.module == "c_client" else None


def _way(entry: Entry, tls_port: int | None) -> Callable[[str], str]:
    if tls_port is None:
        return past_the_proxy
    # Its certificate is for this machine's name: not past the proxy, and so is what it is beside.
    return (lambda url: over_tls(url, tls_port)) if entry.tls else str


def _run(
    scenario: Scenario, entry: Entry, broker: Broker, count: int, reached: Callable[[str], str]
) -> Run:
    with fresh_place(broker, entry.prefetch, reached, scenario.queue_type) as place:
        module = f"benchmarks.contenders.{entry.module}"
        expected = count
        if scenario.action == "requeue":
            _child("benchmarks.failures", "fill", place, count)
        elif not entry.own_queue:
            declare(place, entry.retry_via)
        if scenario.action == "consume":
            _child(
                module if entry.own_queue else "benchmarks.contenders.pika_in_flight",
                "publish",
                place,
                count,
            )
            expected = 0
        run = _child(module, entry.action or scenario.action, place, count)
        if run.done != count:
            raise RunFailed(f"{run.done} of {count} messages")
        if (depth := settled_depth(place, expected)) != expected:
            raise RunFailed(
                f"the queue holds {depth} messages afterwards, and should hold {expected}"
            )
        return run


def _child(module: str, action: str, place: Place, count: int) -> Run:
    task = {
        "module": module,
        "action": action,
        "place": asdict(place),
        "count": count,
        "size": SIZE,
    }
    try:
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.child"],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=_LONGEST_RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"it did not end within {_LONGEST_RUN_SECONDS} s") from error
    if process.returncode != 0:
        reason = process.stderr.strip().rpartition("\n")[2]
        raise RunFailed(
            f"exit status {process.returncode}: {reason}\n{process.stderr.strip()[-3000:]}"
        )
    try:
        return Run(**json.loads(process.stdout.strip().rpartition("\n")[2]))
    except ValueError as error:
        raise RunFailed(f"it ended without a result\n{process.stderr.strip()[-3000:]}") from error
