"""What workers' connections tell of their retry policies, with a management API that is a stub."""

import json

from redrive.pubsub.admin.queue_metrics import worker_texts
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.url import client_properties
from unit.pubsub.admin.test_management_api import answering

BROKER = BrokerAccess("amqp://shop:s3cr3t@localhost/orders", "status")
THREE, FIVE = "3 retries, given up 1m30s after the first failure", "5 retries"


def told(*connections: object) -> dict[str, list[str]] | None:
    """What is said of the orders' queue where the broker lists these connections."""
    with answering(200, json.dumps(connections)) as address:
        found = worker_texts(BROKER, address, ["shop@orders"])
        return None if found is None else {queue: texts.policies for queue, texts in found.items()}


def worker(policy: str) -> object:
    """A connection as the broker lists it."""
    return {"client_properties": client_properties("worker", policies={"shop@orders": policy})}


def test_workers_that_have_one_policy_are_told_of_once() -> None:
    assert told(worker(THREE), worker(THREE)) == {"shop@orders": [THREE]}


def test_each_policy_is_told_while_a_deploy_goes_on() -> None:
    assert told(worker(FIVE), worker(THREE)) == {"shop@orders": [THREE, FIVE]}


def test_who_tells_nothing_has_no_policy() -> None:
    other_queue = {"client_properties": client_properties("worker", policies={"shop@users": FIVE})}
    assert told({}, {"client_properties": {"redrive_policies": 3}}, other_queue) == {
        "shop@orders": []
    }


def test_where_the_broker_does_not_let_a_user_see_connections_nothing_is_known() -> None:
    with answering(401, "{}") as address:
        assert worker_texts(BROKER, address, ["shop@orders"]) is None


def test_what_workers_select_by_is_told_of_those_that_have_the_queue() -> None:
    where = "where headers.country = 'DE'"
    policies = {"shop@orders": FIVE}
    one = {"client_properties": client_properties("worker", where, policies)}
    other = {"client_properties": client_properties("worker", "vip", {"shop@users": FIVE})}
    with answering(200, json.dumps([one, other])) as address:
        found = worker_texts(BROKER, address, ["shop@orders", "shop@users"])
    assert found == {"shop@orders": ([FIVE], [where]), "shop@users": ([FIVE], ["vip"])}
