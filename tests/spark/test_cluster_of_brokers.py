"""The whole job while the node that leads one of its queues is killed."""

from collections.abc import Callable, Iterator

import pytest

from cluster.faults import killed
from redrive.spark_reprocess.archive import Archive
from redrive.testing import Cluster, private_cluster
from redrive.topology.names import failed_queue
from spark.support import QUEUE, Failures
from spark.test_killed import (
    COUNT,
    assert_each_is_there,
    drained,
    identity_of,
    job,
    sent,
    until,
)

RATE = 50
"""Messages a second, so that the sending lasts half a minute."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes."""
    with private_cluster() as cluster:
        yield cluster


def assert_each_is_there_after(
    cluster: Cluster, archive: Archive, queue: str, done_of: Callable[[Failures], int]
) -> None:
    """Kills the leader of a queue once something is done and something is left, and has the job
    go on to its end."""
    url = cluster.create_virtual_host(queue)
    failures = Failures(url).fill(COUNT)
    with job("local[1]", url, archive, rate=RATE) as process:
        until(process, lambda: done_of(failures) > 0, "the job is under way")
        assert done_of(failures) < COUNT
        killed(cluster, url, queue)
        identity = identity_of(process)
    assert_each_is_there(failures, identity)


def test_a_job_that_loses_the_leader_of_the_failed_queue_loses_no_message(
    cluster: Cluster, archive: Archive
) -> None:
    assert_each_is_there_after(cluster, archive, failed_queue(QUEUE), lambda _: drained(archive))


def test_a_job_that_loses_the_leader_of_the_main_queue_loses_no_message(
    cluster: Cluster, archive: Archive
) -> None:
    assert_each_is_there_after(cluster, archive, QUEUE, sent)
