"""A cluster that has just been formed answers badly for a moment, and is asked again."""

from unittest import mock

import pytest

from redrive.errors import BrokerUnavailable
from redrive.testing import Broker
from redrive.testing.address import Address
from redrive.testing.cluster import Cluster
from redrive.testing.management_client import AnsweredWithAnError
from redrive.testing.membership import Membership

BAD = AnsweredWithAnError("here", "PUT vhosts/shop was answered with 500")


def cluster_of(*answers: list[Exception | str]) -> Cluster:
    """A cluster whose nodes answer so when a virtual host is to be created."""

    def made(membership: Membership) -> Broker:
        node: mock.Mock = mock.create_autospec(Broker, instance=True)
        node.address = Address("127.0.0.1", membership.place)
        node.create_virtual_host.side_effect = answers[membership.place - 1]
        return node

    return Cluster(len(answers), made)


def test_a_virtual_host_is_created_on_a_node_that_answers_badly_at_first() -> None:
    made = ["amqp://127.0.0.1:1/shop", "amqp://127.0.0.1:2/shop"]
    cluster = cluster_of([made[0]], [BAD, BAD, made[1]])
    assert cluster.create_virtual_host("shop") == "amqp://127.0.0.1:1,127.0.0.1:2/shop"


def test_whatever_else_a_node_answers_is_an_error_at_once() -> None:
    cluster = cluster_of(
        [BrokerUnavailable("here", "answered with 404"), "amqp://127.0.0.1:1/shop"]
    )
    with pytest.raises(BrokerUnavailable, match="404"):
        cluster.create_virtual_host("shop")
