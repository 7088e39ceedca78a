"""`redrive spark` as people use it, and what must not show anywhere."""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli_support import redrive, run_redrive
from redrive.spark_reprocess.archive import Archive
from spark.support import QUEUE, Failures, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


def test_all_phases_end_with_the_identity_and_a_report(archive: Archive, rabbitmq_url: str) -> None:
    failures = Failures(rabbitmq_url).fill(100)
    place = archive.storage.uri
    looked = redrive("spark", "requeue", QUEUE, "--archive", place, "--dry-run", url=rabbitmq_url)
    assert looked.code == 0, looked.err
    assert "100 messages" in looked.out
    assert failures.depths() == (0, 100)
    unasked = redrive("spark", "requeue", QUEUE, "--archive", place, url=rabbitmq_url)
    assert unasked.code == 2
    assert "--yes" in unasked.err
    # It was drained, and nobody was there to ask: the next one goes on with that run.
    done = redrive(
        "spark", "requeue", QUEUE, "--archive", place, "--yes", "--rate", "1000/s", url=rabbitmq_url
    )
    assert done.code == 0, done.err
    assert (
        done.out.splitlines()[-1]
        == "100 drained = 100 requeued + 0 restored + 0 kept + 0 discarded"
    )
    assert "Continuing run" in done.err
    report = json.loads(next(Path(place, "reports").glob("*.json")).read_text())
    assert report["holds"]
    assert report["requeued"] == 100
    page = next(Path(place, "reports").glob("*.html")).read_text()
    assert "TimeoutError" in page
    assert "<script" not in page
    assert "http" not in page.replace('http-equiv="', "")
    verified = redrive("spark", "verify", "--archive", place, "--output", "json", url=rabbitmq_url)
    assert verified.json()["drained"] == 100


def test_a_file_is_sent_by_spark_and_what_is_not_chosen_stays_in_the_archive(
    archive: Archive, rabbitmq_url: str, tmp_path: Path
) -> None:
    failures = Failures(rabbitmq_url).fill(30)
    file, place = tmp_path / "failed.jsonl", archive.storage.uri
    moved = redrive("failed", "discard", QUEUE, "-o", str(file), "--yes", url=rabbitmq_url)
    assert (moved.code, failures.depths()) == (0, (0, 0)), moved.err
    asked = ("requeue", "--from", str(file), "--archive", place, "--where", "error_type is null")
    looked = redrive("spark", *asked, "--dry-run", url=rabbitmq_url)
    assert "30 messages" in looked.out
    assert "in the file; 6 (" in looked.out
    done = redrive("spark", *asked, "--yes", url=rabbitmq_url)
    assert done.code == 0, done.err
    assert (
        done.out.splitlines()[-1] == "30 drained = 6 requeued + 0 restored + 24 kept + 0 discarded"
    )
    assert numbers(failures.in_main()) == list(range(0, 30, 5))
    # What is left is in the archive, which is read without Spark, too.
    listed = redrive("failed", "list", place, "--limit", "100", "--output", "json")
    assert len(listed.json()["messages"]) == 24
    back = redrive("failed", "restore", place, "--yes", url=rabbitmq_url)
    assert back.code == 0, back.err
    assert numbers(failures.in_failed()) == [number for number in range(30) if number % 5]


@pytest.mark.nightly("the phases of a queue are tried each time")
def test_a_file_is_restored_by_spark_once(
    archive: Archive, rabbitmq_url: str, tmp_path: Path
) -> None:
    failures, file = Failures(rabbitmq_url).fill(20), tmp_path / "failed.parquet"
    moved = redrive("failed", "discard", QUEUE, "-o", str(file), "--yes", url=rabbitmq_url)
    assert (moved.code, failures.depths()) == (0, (0, 0)), moved.err
    asked = ("spark", "restore", "--from", str(file), "--archive", archive.storage.uri)
    done = redrive(*asked, url=rabbitmq_url)
    assert done.code == 0, done.err
    assert "20 drained = 0 requeued + 20 restored + 0 kept + 0 discarded" in done.out
    again = redrive(*asked, url=rabbitmq_url)
    assert again.code == 2
    assert "has already dealt with all messages of" in again.err
    found = failures.in_failed()
    assert numbers(found) == list(range(20))
    assert {one.failure_id for one in found if one.number % 5} == {
        id_ for number, id_ in enumerate(failures.ids(20)) if number % 5
    }


def test_no_password_is_in_the_archive_the_spark_ui_or_what_is_printed(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(20)
    secret = "guest:guest"
    assert secret in rabbitmq_url
    done = redrive(
        "spark", "requeue", QUEUE, "--archive", archive.storage.uri, "--yes", url=rabbitmq_url
    )
    assert done.code == 0, done.err
    for where, text in [
        ("what is printed", done.out + done.err),
        *_archive(archive),
        *_user_interface(spark),
    ]:
        assert secret not in text, where


def test_what_does_not_add_up_is_an_error(archive: Archive, rabbitmq_url: str) -> None:
    Failures(rabbitmq_url).fill(20)
    place = archive.storage.uri
    drained = redrive(
        "spark", "drain", QUEUE, "--archive", place, "--partitions", "2", url=rabbitmq_url
    )
    assert drained.code == 0, drained.err
    next(Path(place, "messages").rglob("*.parquet")).unlink()
    counted = redrive("spark", "verify", "--archive", place, url=rabbitmq_url)
    assert counted.code == 1
    assert (
        counted.out.splitlines()[-1]
        == "It does not add up: 20 drained ≠ 0 requeued + 0 restored + 10 kept + 0 discarded"
    )
    assert not json.loads(next(Path(place, "reports").glob("*.json")).read_text())["holds"]


@pytest.mark.nightly("a process of its own, with a Java of its own")
def test_a_process_of_its_own_is_quiet_and_keeps_the_password_to_itself(
    archive: Archive, rabbitmq_url: str, tmp_path: Path
) -> None:
    Failures(rabbitmq_url).fill(20)
    (logs := tmp_path / "logs").mkdir()
    asked = (
        "spark",
        "requeue",
        QUEUE,
        "--archive",
        archive.storage.uri,
        "--yes",
        "--master",
        "local[1]",
        "--partitions",
        "2",
    )
    done = run_redrive(*asked, url=rabbitmq_url, environment={"TMPDIR": str(logs)})
    assert done.code == 0, done.err
    assert (
        done.out.splitlines()[-1] == "20 drained = 20 requeued + 0 restored + 0 kept + 0 discarded"
    )
    assert done.err == ""
    lost = run_redrive(
        *asked, url="amqp://me:secret-word@127.0.0.1:1/", environment={"TMPDIR": str(logs)}
    )
    assert lost.code == 2
    assert len(lost.error_lines) <= 2
    written = [
        done.out,
        lost.out,
        lost.err,
        *(file.read_text(errors="replace") for file in logs.rglob("*") if file.is_file()),
    ]
    assert not [text for text in written if "guest:guest" in text or "secret-word" in text]


def _archive(archive: Archive) -> Iterator[tuple[str, str]]:
    for file in Path(archive.storage.uri).rglob("*"):
        if file.is_file():
            yield str(file), file.read_bytes().decode("latin-1")


def _user_interface(spark: "SparkSession") -> Iterator[tuple[str, str]]:
    address = spark.sparkContext.uiWebUrl
    assert address is not None
    rest = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    pages = [
        "/jobs/",
        "/stages/",
        "/environment/",
        "/SQL/",
        f"{rest}/environment",
        f"{rest}/sql?details=true&length=1000",
        f"{rest}/jobs",
    ]
    for page in pages:
        with urllib.request.urlopen(f"{address}{page}", timeout=120) as answer:
            yield page, answer.read().decode()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan", "--archive", "{new}"), "nothing has been drained into the archive"),
        (
            ("plan", "--archive", "{new}", "--where", "colour = 1"),
            "'colour = 1' is wrong at character 1",
        ),
        (("plan", "--archive", "s3a://key:secret-word@bucket/x"), "has credentials in it"),
        (
            ("drain", QUEUE, "--archive", "{new}", "--url", "amqp://me:secret-word@127.0.0.1:1/"),
            "nothing listens there",
        ),
        (
            ("drain", QUEUE, "--archive", "{new}", "--url", "http://me:secret-word@host/"),
            "is not a broker address",
        ),
        (("send", "--archive", "{new}", "--rate", "fast"), "the rate 'fast' can't be read"),
        (("requeue", "--archive", "{new}"), "no queue is given"),
        (
            ("requeue", QUEUE, "--archive", "{new}", "--from", "{new}.jsonl"),
            "queues and a file are both given",
        ),
        (("restore", "--archive", "{new}", "--from", "{new}.jsonl"), "there is no file"),
        (
            ("send", "--archive", "{new}", "--transform", "nowhere", "--run", "x"),
            "does not name a function",
        ),
    ],
)
def test_what_is_wrong_is_told_in_two_lines(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = redrive("spark", *(argument.format(new=tmp_path / "new") for argument in arguments))
    assert done.code == 2
    assert told in done.err
    assert len(done.error_lines) <= 2
    assert "secret-word" not in done.out + done.err


def test_a_missing_java_is_told_of(tmp_path: Path) -> None:
    done = run_redrive(
        "spark",
        "plan",
        "--archive",
        str(tmp_path / "new"),
        environment={"PATH": "/nowhere", "JAVA_HOME": ""},
    )
    assert done.code == 2
    assert done.error_lines[0] == "Error: Spark needs Java, and there is no java on PATH"
    assert "openjdk-17-jre-headless" in done.error_lines[1]
    assert not os.path.exists(tmp_path / "new")
