"""The results for people: a table on the terminal, and RESULTS.md."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.results import Result, Verdict

RESULTS = Path(__file__).with_name("RESULTS.md")
_ON_A_TERMINAL = {True: "[green]met[/]", False: "[bold red]MISSED[/]", None: "not known"}
_ON_A_PAGE = {True: "met", False: "**missed**", None: "not known"}

_HEADINGS = (
    "contender",
    "messages/s",
    "lowest–highest",
    "ratio",
    "CPU µs a message",
    "peak MB",
    "runs",
)


def rows_of(result: Result) -> list[tuple[str, ...]]:
    """A scenario's table, a row for each contender."""
    rows: list[tuple[str, ...]] = []
    for entry in result.scenario.entries:
        if entry.name not in result.runs:
            rows.append((entry.name, "failed", "", "", "", "", "0"))
            continue
        low, high = result.spread(entry.name)
        ratio = result.ratio(entry.name, result.scenario.reference)
        in_the_broker = entry.module == "shovel"
        rows.append(
            (
                entry.name,
                f"{result.rate(entry.name):,.0f}",
                f"{low:,.0f}–{high:,.0f}",
                "" if ratio is None else f"{ratio:.2f}",
                "" if in_the_broker else f"{result.cpu_us(entry.name):.0f}",
                "" if in_the_broker else f"{result.peak_mb(entry.name):.0f}",
                f"{len(result.runs[entry.name])} × {result.runs[entry.name][0].done:,}",
            )
        )
    return rows


def show(console: Console, result: Result) -> None:
    """Prints a scenario's table."""
    table = Table(*_HEADINGS, title=_title(result), title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows_of(result):
        table.add_row(*row)
    console.print(table)


def show_verdicts(console: Console, verdicts: Iterable[Verdict]) -> None:
    """Prints the promises beside what was measured."""
    table = Table("target", "RabbitMQ", "measured", "")
    for verdict in verdicts:
        table.add_row(
            verdict.target.promise,
            verdict.broker_version,
            verdict.measured,
            _ON_A_TERMINAL[verdict.met],
        )
    console.print(table)


def write(
    path: Path,
    command: str,
    machine: list[tuple[str, str]],
    results: list[Result],
    verdicts: list[Verdict],
) -> None:
    """Writes the record of one run of the benchmarks."""
    lines = [
        "# Results",
        "",
        (
            "Written by the benchmarks; [README.md](README.md) says what is measured and how to "
            "read it."
        ),
        "",
    ]
    lines += ["```", command, "```", ""]
    lines += _markdown(("", ""), [(f"**{name}**", value) for name, value in machine])
    lines += ["## Targets", ""]
    lines += _markdown(
        ("target", "RabbitMQ", "measured", ""),
        [
            (
                verdict.target.promise,
                verdict.broker_version,
                verdict.measured,
                _ON_A_PAGE[verdict.met],
            )
            for verdict in verdicts
        ],
    )
    for result in results:
        lines += [
            f"## {_title(result)}",
            "",
            f"The ratio is to *{result.scenario.reference}*, round by round, the median.",
            "",
        ]
        lines += _markdown(_HEADINGS, rows_of(result), right=1)
    failures = [failure for result in results for failure in result.failures]
    if failures:
        lines += [
            "## Runs that failed",
            "",
            *(f"- {failure.splitlines()[0][:300]}" for failure in failures),
            "",
        ]
    path.write_text("\n".join(lines).rstrip() + "\n")


def _title(result: Result) -> str:
    title = result.scenario.title
    return f"{title[0].upper()}{title[1:]} (RabbitMQ {result.broker_version})"


def _markdown(
    headings: tuple[str, ...], rows: Iterable[tuple[str, ...]], right: int | None = None
) -> list[str]:
    rules = [
        "---" if right is None or number < right else "---:" for number in range(len(headings))
    ]
    return [f"| {' | '.join(row)} |" for row in (headings, tuple(rules), *rows)] + [""]
