"""A cluster of three for all tests of this folder, which is whole again after each."""

import uuid
from collections.abc import Iterator

import pytest

from cluster.faults import mend
from redrive.testing import Cluster, private_cluster


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Cluster]:
    """Three nodes that are one cluster."""
    with private_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes: Cluster) -> Iterator[Cluster]:
    """The cluster, which is mended after the test whatever was done to it."""
    yield three_nodes
    for place, node in enumerate(three_nodes.nodes):
        node.start()
        three_nodes.heal(place)
    mend(three_nodes)


@pytest.fixture
def cluster_url(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A virtual host of the test's own, with all nodes as its hosts. It stays: a cluster that is
    being mended can't delete it."""
    return cluster.create_virtual_host(f"{request.node.name[:60]}-{uuid.uuid4().hex[:8]}")
