"""The archive's places and the storage under it."""

import json
import os
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.queue.failed_source import FailedSource
from redrive.spark_reprocess.archive import (
    Archive,
    check_folder_name,
    escaped,
    file_name,
    rows_of,
    session_of,
)
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.spark_reprocess.storage import Storage
from redrive.topology.names import ExchangeFamily

BROKER = "amqp://guest@localhost:5672/%2F"


def test_a_run_is_found_again(tmp_path: Path) -> None:
    begun = Archive(str(tmp_path)).begin("amqp://guest@localhost:5672/%2F", {"shop@orders": 5})
    found = Archive(str(tmp_path)).run()
    assert found == begun
    assert found.queues == ["shop@orders"]


def test_a_run_keeps_its_exchange_family_unless_it_is_the_usual_one(tmp_path: Path) -> None:
    archive, orders = Archive(str(tmp_path)), ExchangeFamily("orders", "@retry", "@failed")
    usual = archive.begin("amqp://guest@localhost:5672/%2F", {"a@b": 1}, ExchangeFamily())
    other = archive.begin("amqp://guest@localhost:5672/%2F", {"a@b": 1}, orders)
    assert (archive.run(usual.id).family, archive.run(other.id).family) == (
        ExchangeFamily(),
        orders,
    )
    # An older redrive refuses what it does not know.
    assert b"exchanges" not in (archive.storage.read(f"runs/{usual.id}/run.json") or b"exchanges")


@pytest.mark.parametrize(
    "exchanges",
    [
        {"main": "shop"},
        {"main": "", "retry_suffix": ".r", "failed_suffix": ".f", "tick_ms": 1000},
        {"main": "a", "retry_suffix": ".r", "failed_suffix": ".f", "tick_ms": 10**30},
        {"main": "a", "retry_suffix": ".r", "failed_suffix": ".f", "tick_ms": "1"},
    ],
)
def test_a_family_that_somebody_has_damaged_is_refused_and_never_guessed(
    tmp_path: Path, exchanges: dict[str, object]
) -> None:
    archive = Archive(str(tmp_path))
    run = archive.begin("amqp://guest@localhost:5672/%2F", {"a@b": 1})
    path = tmp_path / "runs" / run.id / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "exchanges": exchanges}))
    with pytest.raises(ConfigurationError):
        _ = archive.run(run.id).family
    path.write_text(json.dumps({**json.loads(path.read_text()), "exchanges": ["shop"]}))
    with pytest.raises(ConfigurationError, match="is damaged"):
        archive.run(run.id)


def test_the_latest_run_counts_unless_one_is_named(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    runs = [
        archive.begin("amqp://guest@localhost:5672/%2F", {"shop@orders": number})
        for number in range(3)
    ]
    assert {run.id for run in archive.runs()} == {run.id for run in runs}
    assert archive.run(runs[0].id) == runs[0]
    with pytest.raises(ConfigurationError, match="has no run 20200101T000000Z-000000"):
        archive.run("20200101T000000Z-000000")


def test_an_empty_archive_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing has been drained"):
        Archive(str(tmp_path / "new")).run()


def test_a_folder_with_something_else_in_it_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="is not empty, and is not a redrive archive"):
        Archive(str(tmp_path))


def test_an_archive_of_a_newer_redrive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "redrive-archive.json").write_text('{"format": 2}')
    with pytest.raises(ConfigurationError, match="has the format 2"):
        Archive(str(tmp_path))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "redrive-archive.json").write_text('{"format"')
    with pytest.raises(ConfigurationError, match=r"redrive-archive\.json is damaged"):
        Archive(str(tmp_path))


@pytest.mark.parametrize(
    "place",
    [
        "s3a://key:secret-word@bucket/folder",
        "s3://key@bucket/folder",
        "hdfs://me:secret-word@host/folder",
    ],
)
def test_credentials_in_the_archives_place_are_refused_and_not_shown(place: str) -> None:
    with pytest.raises(ConfigurationError, match="has credentials in it") as raised:
        Storage.at(place)
    assert "secret-word" not in str(raised.value)


@pytest.mark.parametrize(
    "place",
    [
        "abfss://box@account.example/folder?sv=1&sig=secret-word",
        "s3a://bucket/folder#secret-word",
        "s3a://bucket/a%20b",
    ],
)
def test_a_uri_that_would_show_a_secret_or_is_read_in_two_ways_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError, match=r"has a [?#%] in it") as raised:
        Storage.at(place)
    assert "secret-word" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("incident:42", "incident:42"),
        ("file:a%20b", "a%20b"),
        ("file:///srv/a#b", "/srv/a#b"),
        ("file://localhost/srv/a?b", "/srv/a?b"),
        ("file:/srv/a", "/srv/a"),
        ("/srv/a[1]/", "/srv/a[1]"),
    ],
)
def test_a_folder_is_named_as_it_is_written(place: str, path: str) -> None:
    storage = Storage.at(place)
    assert storage.is_local
    assert storage.uri == os.path.abspath(path)


@pytest.mark.parametrize(
    "place",
    ["", "gopher://host/folder", "s3a://[half/folder", "file://elsewhere/srv/archive"],
)
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError):
        Storage.at(place)


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write("a/b/c", b"first")
    storage.write("a/b/c", b"second")
    assert storage.read("a/b/c") == b"second"
    assert os.listdir(tmp_path / "a/b") == ["c"]
    assert storage.read("a/b/d") is None
    assert storage.names("a/b") == ["c"]
    assert storage.names("nowhere") == []


def test_what_can_not_be_written_is_told_in_two_lines_and_leaves_nothing(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    (tmp_path / "a").write_bytes(b"a file where a folder is to be")
    with pytest.raises(ConfigurationError, match="the archive can't be written") as raised:
        storage.write("a/b", b"x")
    assert len(str(raised.value).splitlines()) == 2


def test_names_tell_session_and_rows() -> None:
    name = file_name("part-1a2b-00003-17-0", 4, 2000)
    assert (session_of(name), rows_of(name)) == ("part-1a2b-00003-17-0", 2000)


def test_a_queues_name_is_written_as_spark_reads_it() -> None:
    assert escaped("shop@orders") == "shop@orders"
    assert escaped("a/b=c%d e:f") == "a%2Fb%3Dc%25d e%3Af"


def test_a_ledger_knows_what_each_part_has_settled(tmp_path: Path) -> None:
    ledger = ArchiveLedger(Storage.at(str(tmp_path)), "run", "job")
    assert (ledger.settled("part-00000"), ledger.outcomes(), ledger.stopped()) == ({}, 0, None)
    ledger.write("part-00000", 7, 0, [Entry("a", Event.SENDING), Entry("b", Event.SENDING)])
    ledger.write(
        "part-00000",
        7,
        1,
        [Entry("a", Event.SENT), Entry("c", Event.REFUSED, "why"), Entry("d", Event.SENDING)],
    )
    ledger.write("part-00001", 8, 0, [Entry("e", Event.SENT)])
    assert ledger.settled("part-00000") == {"a": Event.SENT, "c": Event.REFUSED}
    assert ledger.outcomes() == 3
    ledger.stop("too few")
    assert ledger.stopped() == "too few"


def test_a_ledger_counts_what_may_have_been_delivered_twice(tmp_path: Path) -> None:
    ledger = ArchiveLedger(Storage.at(str(tmp_path)), "run", "job")
    ids = ("sent", "in doubt", "sent by the second attempt", "never settled", "refused")
    ledger.write("part-0", 0, 0, [Entry(id_, Event.SENDING) for id_ in ids])
    outcomes = [
        Entry("sent", Event.SENT),
        Entry("in doubt", Event.SENT, again=True),
        Entry("refused", Event.REFUSED, "too large"),
    ]
    ledger.write("part-0", 0, 1, outcomes)
    ledger.write("part-0", 1, 0, [Entry("sent by the second attempt", Event.SENDING)])
    ledger.write("part-0", 1, 1, [Entry("sent by the second attempt", Event.SENT)])
    assert ledger.possible_duplicates() == 3


def test_a_run_knows_which_of_its_queues_are_dead_letter_queues(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.begin(BROKER, {"a@b": 1, "c.dlq": 2}, dead_letter_queues=["c.dlq"])
    run = Archive(str(tmp_path)).run()
    assert run.sources == [FailedSource("a@b@failed", "a@b"), FailedSource("c.dlq")]
    assert (run.main_queues, run.dead_letter_queues) == (["a@b"], ["c.dlq"])


def test_a_run_of_subscriptions_alone_is_written_as_before(tmp_path: Path) -> None:
    run = Archive(str(tmp_path)).begin(BROKER, {"a@b": 1})
    written = json.loads((tmp_path / "runs" / run.id / "run.json").read_text())
    assert "dead_letter_queues" not in written


@pytest.mark.parametrize("found", [5, "c.dlq", [5], ["elsewhere"], {"c.dlq": 1}])
def test_dead_letter_queues_that_are_none_of_the_run_are_damage(
    tmp_path: Path, found: object
) -> None:
    run = Archive(str(tmp_path)).begin(BROKER, {"c.dlq": 1, "5": 1}, dead_letter_queues=["c.dlq"])
    file = tmp_path / "runs" / run.id / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "dead_letter_queues": found}))
    with pytest.raises(ConfigurationError, match="is damaged"):
        Archive(str(tmp_path)).runs()


def test_a_queue_whose_name_makes_no_folder_is_refused() -> None:
    check_folder_name("q" * 249)
    check_folder_name("a/b*c")
    for name in ("q" * 250, "/" * 100):
        with pytest.raises(ConfigurationError, match="too long for the name of a folder"):
            check_folder_name(name)
