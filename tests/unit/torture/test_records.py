import json
from dataclasses import replace
from pathlib import Path

from torture import records
from torture.checker import Finding, Report
from torture.records import Record
from torture.run import Options, Result

CLEAN = Record(
    "2026-11-23 10:00", "1234567", "RabbitMQ 4.3.6 (container)", 1, 7, "", 400, 9_000, 3, 2, 0, {}
)


def cells_of(text: str, heading: str) -> list[dict[str, str]]:
    table = text.partition(f"## {heading}\n\n")[2].partition("\n\n")[0].splitlines()
    names, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [dict(zip(names, row, strict=True)) for row in rows]


def page_of(*those: Record) -> str:
    return "\n".join(records.page(those))


def test_runs_on_the_same_broker_are_summed_up() -> None:
    another = replace(CLEAN, seed=8, faults=700, findings={"late": 1})
    elsewhere = replace(CLEAN, nodes=3)
    rows = cells_of(page_of(CLEAN, elsewhere, another), "All runs on a broker")
    one = {row[""]: row["RabbitMQ 4.3.6 (container), 1 node"] for row in rows}
    assert (one["runs"], one["faults"], one["messages published"]) == ("2", "1,100", "18,000")
    assert (one["lost"], one["late"], one["duplicates"]) == ("0", "1", "6")
    three = {row[""]: row["RabbitMQ 4.3.6 (container), 3 nodes"] for row in rows}
    assert (three["runs"], three["faults"], three["late"]) == ("1", "400", "0")


def test_a_page_without_runs_says_so() -> None:
    assert page_of().endswith("\n\nNo run has been recorded yet.")


def test_each_run_is_there_with_what_it_found() -> None:
    losing = replace(CLEAN, seed=9, findings={"lost": 2})
    clean, lost = cells_of(page_of(CLEAN, losing), "Each run")
    assert (clean["seed"], clean["redrive"], clean["found"]) == ("7", "1234567", "nothing")
    assert (lost["seed"], lost["found"]) == ("9", "lost (2)")


def test_a_run_with_a_known_bug_counts_among_no_others() -> None:
    planted = replace(CLEAN, plant="ack-before-publish", findings={"lost": 5})
    text = page_of(CLEAN, planted, replace(planted, findings={}))
    sums = {row.pop(""): [*row.values()] for row in cells_of(text, "All runs on a broker")}
    assert (sums["runs"], sums["lost"]) == (["1"], ["0"])
    found = cells_of(text, "Known bugs that were put in place")
    assert [row["found"] for row in found] == ["lost (5)", "nothing"]


def test_a_run_is_added_to_those_before(tmp_path: Path) -> None:
    records.add(CLEAN, tmp_path)
    records.add(replace(CLEAN, seed=8), tmp_path)
    lines = (tmp_path / "reliability.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [7, 8]
    assert len(cells_of((tmp_path / "RELIABILITY.md").read_text(), "Each run")) == 2


def test_a_record_has_what_a_run_has_come_to() -> None:
    findings = (Finding("lost", "ladder@async/3", "it is gone"),)
    report = Report(900, 0, 800, 98, 1, 7, 0, ("republish@async/4",), findings)
    result = Result(Options(seed=7, nodes=3), "a broker", report, {"wire cut": 2, "node killed": 1})
    record = Record.of(result)
    assert (record.seed, record.nodes, record.faults, record.published) == (7, 3, 3, 900)
    assert (record.duplicates, record.classic, record.findings) == (7, 1, {"lost": 1})
