"""`python -m benchmarks`: measures redrive beside its peers and writes RESULTS.md."""

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.plan import SCENARIOS, SIZE, TARGETS, Scenario

RUNS = 5
MESSAGES = 20_000


def main() -> int:
    """Runs what the command line asks for; the exit status is 1 where a run failed, whether or not
    the targets are met."""
    options = _options()
    scenarios: list[Scenario] = options.only or list(SCENARIOS)
    missing = machine.missing({one.module for each in scenarios for one in each.entries})
    if missing:
        print(
            f"The peers to measure against are not all installed: {', '.join(missing)} missing.",
            file=sys.stderr,
        )
        print(
            "Install them: pip install -r benchmarks/requirements.txt (or uv pip install, where uv "
            "made the environment)",
            file=sys.stderr,
        )
        return 2
    return _measure(options)


def _measure(options: argparse.Namespace) -> int:
    from rich.console import Console

    from benchmarks import report
    from benchmarks.brokers import broker_of, default_brokers
    from benchmarks.harness import measure
    from benchmarks.results import Result, Verdict, verdict
    from benchmarks.secured_broker import secured_broker_of
    from redrive.testing import Broker

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    scenarios: list[Scenario] = options.only or list(SCENARIOS)
    described = machine.description()
    results: list[Result] = []
    verdicts: list[Verdict] = []
    on: list[str] = []

    def measure_on(broker: Broker, wanted: list[Scenario], tls_port: int | None = None) -> None:
        origin = f"{broker.version} ({broker.kind})"
        if origin not in on:
            on.append(origin)
        for scenario in wanted:
            result = measure(
                scenario,
                broker,
                runs=options.runs,
                messages=options.messages,
                say=console.out,
                tls_port=tls_port,
            )
            report.show(console, result)
            results.append(result)
            verdicts.extend(
                verdict(target, result) for target in TARGETS if target.scenario == scenario.name
            )
            # After each scenario: a run that is interrupted keeps what it has.
            report.write(
                options.output,
                _command(),
                [*described, ("RabbitMQ", ", ".join(on))],
                results,
                verdicts,
            )

    for position, name in enumerate(options.brokers or default_brokers()):
        wanted = [scenario for scenario in scenarios if position == 0 or scenario.every_broker]
        if plain := [scenario for scenario in wanted if not scenario.tls]:
            with broker_of(name) as broker:
                measure_on(broker, plain)
        if over_tls := [scenario for scenario in wanted if scenario.tls]:
            with secured_broker_of(name) as secured:
                measure_on(secured.broker, over_tls, secured.port)
    report.show_verdicts(console, verdicts)
    return 1 if any(result.failures for result in results) else 0


def _command() -> str:
    return shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures redrive beside its peers on a private RabbitMQ, prints tables and "
        "writes RESULTS.md.",
    )
    parser.add_argument(
        "--only",
        type=_scenarios,
        metavar="NAMES",
        help="the scenarios to measure, comma-separated, of "
        f"{', '.join(scenario.name for scenario in SCENARIOS)}; default all",
    )
    parser.add_argument(
        "--runs",
        type=_count,
        default=RUNS,
        help="rounds, each contender once in each; default %(default)s",
    )
    parser.add_argument(
        "--messages",
        type=_count,
        default=MESSAGES,
        help=f"messages of {SIZE} bytes in a run; default %(default)s",
    )
    parser.add_argument(
        "--brokers",
        type=lambda text: tuple(text.split(",")),
        metavar="NAMES",
        help="comma-separated versions (4.3), images, or `local`; the first is measured on, and "
        "requeue on every one; "
        "default 4.3,4.0,3.10 where a container engine answers, else local",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).with_name("RESULTS.md"),
        help="where to write the results",
    )
    return parser.parse_args()


def _scenarios(text: str) -> list[Scenario]:
    known = {scenario.name: scenario for scenario in SCENARIOS}
    try:
        return [known[name] for name in text.split(",")]
    except KeyError as error:
        raise argparse.ArgumentTypeError(
            f"no scenario {error}; there are {', '.join(known)}"
        ) from error


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
