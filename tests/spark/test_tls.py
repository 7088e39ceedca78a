"""The Spark job on a broker that is reached over TLS alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_support import redrive
from redrive.spark_reprocess.archive import Archive
from secured_broker import Secured, secured_broker
from spark.support import QUEUE, Failures, numbers

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """A broker with TLS."""
    with secured_broker() as secured:
        yield secured


@pytest.mark.nightly("without TLS it is tried each time")
def test_a_job_drains_sends_and_restores_over_tls(secured: Secured, archive: Archive) -> None:
    failures = Failures(secured.url).fill(100)
    done = redrive(
        *("spark", "requeue", QUEUE, "--archive", archive.storage.uri, "--yes"),
        *("--where", "error_type is null"),
        url=secured.url,
    )
    assert done.code == 0, done.err
    assert numbers(failures.in_main()) == list(range(0, 100, 5))
    assert numbers(failures.in_failed()) == [number for number in range(100) if number % 5]


@pytest.mark.nightly("without TLS it is tried each time")
def test_a_job_trusts_no_certificate_of_a_ca_that_nobody_named(
    secured: Secured, tmp_path: Path
) -> None:
    done = redrive(
        *("spark", "requeue", QUEUE, "--archive", str(tmp_path / "archive"), "--yes"),
        url=secured.place,
    )
    assert done.code == 2
    assert "certificate is not trusted" in done.error_lines[0]
    assert "cacertfile" in done.err
    assert len(done.error_lines) <= 2
