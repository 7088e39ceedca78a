import json
from pathlib import Path

import torture.__main__ as command
from torture.checker import Finding, Report
from torture.run import Options, Result

CLEAN = Report(900, 0, 800, 99, 1, 7, 0, (), ())
LOSING = Report(900, 0, 799, 99, 1, 7, 0, (), (Finding("lost", "ladder@async/3", "it is gone"),))


def result_of(report: Report, folder: Path | None = None) -> Result:
    return Result(
        Options(seed=7),
        "RabbitMQ 4.3.6 (container)",
        report,
        {"wire cut": 2, "node killed": 1},
        1,
        {"worker-async-1 (1)": 3},
        ["async: nothing handled for 180 s"],
        61.0,
        folder,
    )


def rows_of(report: Report, folder: Path | None = None) -> dict[str, str]:
    lines = command.table(result_of(report, folder))
    return {name: value for name, _, value in (line.strip().rpartition("  ") for line in lines)}


def test_the_table_counts_faults_messages_and_findings() -> None:
    rows = {name.strip(): value for name, value in rows_of(CLEAN).items()}
    assert rows["faults"] == "3"
    assert rows["fault: wire cut"] == "2"
    assert rows["messages published"] == "900"
    assert rows["releases of stuck dead-lettering"] == "1"
    assert rows["lost"] == "0"


def test_the_table_says_what_was_found_and_where_the_evidence_is(tmp_path: Path) -> None:
    text = "\n".join(command.table(result_of(LOSING, tmp_path)))
    assert "lost: ladder@async/3: it is gone" in text
    assert str(tmp_path) in text
    assert "nothing handled for 180 s" in text
    assert "worker-async-1 (1), 3 times" in text


def test_json_has_what_the_table_has(tmp_path: Path) -> None:
    values = json.loads(result_of(LOSING, tmp_path).as_json())
    assert values["options"]["seed"] == 7
    assert values["faults"] == {"wire cut": 2, "node killed": 1}
    assert values["report"]["findings"][0]["kind"] == "lost"
    assert values["folder"] == str(tmp_path)


def test_a_run_is_told_by_options() -> None:
    told = command.parsed(["--seed", "7", "--minutes", "30", "--version", "4.3", "--nodes", "3"])
    assert command.options_of(told) == Options(7, 30.0, None, "4.3", 3)
    assert (told.output, told.record) == ("table", False)
    told = command.parsed(["--plant", "ack-before-publish", "--output", "json", "--record"])
    assert command.options_of(told) == Options(plant="ack-before-publish")
    assert (told.output, told.record) == ("json", True)


def test_a_finding_is_a_failure_and_a_found_plant_is_none() -> None:
    assert command.exit_code(result_of(CLEAN)) == 0
    assert command.exit_code(result_of(LOSING)) == 1
    planted = Options(plant="ttl-per-message")
    for report, code in ((CLEAN, 1), (LOSING, 0)):
        result = result_of(report)
        result.options = planted
        assert command.exit_code(result) == code
