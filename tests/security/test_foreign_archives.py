"""Archives that somebody else made: they name no path outside of themselves, and what is damaged is
said to be damaged."""

import json
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.spark_reprocess.archive import Archive

BROKER = "amqp://guest@localhost:5672/%2F"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive with one run."""
    place = tmp_path / "archive"
    Archive(str(place)).begin(BROKER, {"shop@orders": 5})
    return place


def damaged(folder: Path, text: str) -> str:
    """What is said of an archive whose run.json is this text."""
    (found,) = folder.glob("runs/*/run.json")
    found.write_text(text)
    with pytest.raises(ConfigurationError, match=r"run\.json is damaged") as raised:
        Archive(str(folder)).runs()
    assert len(str(raised.value).splitlines()) == 2
    return str(raised.value)


@pytest.mark.parametrize(
    "id_", ["../../outside/pwn", "/tmp/pwn", "", "20200101T000000Z-000000", None, 17, ["x"]]
)
def test_a_run_is_called_as_its_folder_and_nothing_else(folder: Path, id_: object) -> None:
    damaged(folder, json.dumps({"id": id_, "address": BROKER, "depths": {}}))


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"address": None},
        {"address": 5},
        {"depths": []},
        {"depths": {"q": "5"}},
        {"depths": {"q": -1}},
        {"depths": {"q": True}},
        {"began_at": {}},
    ],
)
def test_a_run_with_other_keys_or_types_is_damaged(folder: Path, change: dict[str, object]) -> None:
    name = next(folder.glob("runs/*")).name
    damaged(
        folder, json.dumps({"id": name, "address": BROKER, "depths": {"shop@orders": 5}, **change})
    )


@pytest.mark.parametrize(
    "text", ["[]", "5", "null", "", "{", "[" * 200_000, '{"id":' * 200_000, "\0"]
)
def test_a_run_that_is_no_object_is_damaged(folder: Path, text: str) -> None:
    damaged(folder, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("drained.json", '{"rows": "5"}'), ("choice.json", '{"where": 5}'), ("choice.json", "{}")],
)
def test_what_is_noted_of_a_run_has_its_types(folder: Path, name: str, text: str) -> None:
    archive = Archive(str(folder))
    run = archive.run()
    (folder / "runs" / run.id / name).write_text(text)
    with pytest.raises(ConfigurationError, match=f"{name} is damaged"):
        archive.rows_noted(run) if name == "drained.json" else archive.choice(run)


@pytest.mark.parametrize(
    "place",
    ["runs/20200101T000000Z-000000", "messages", "messages/queue=q/run=r/x.parquet", "reports"],
)
def test_a_link_that_leads_out_of_the_archive_is_refused(
    folder: Path, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = folder / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    with pytest.raises(ConfigurationError, match="is a link to"):
        Archive(str(folder))


def test_an_archive_may_be_reached_through_a_link_and_have_links_in_it(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "latest").symlink_to(folder / "runs")
    (tmp_path / "link").symlink_to(folder)
    assert Archive(str(tmp_path / "link")).run().queues == ["shop@orders"]
