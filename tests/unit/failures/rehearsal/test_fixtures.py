"""Which failed messages become test cases."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp.properties import Properties
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.rehearsal.fixtures import sample, shape_of
from redrive.topology.headers import Delivery


def message(body: bytes) -> FailedMessage:
    """A message with a body."""
    return FailedMessage(Delivery("shop@orders", "", "shop@orders", Properties(), body))


def test_the_first_of_each_shape_is_chosen() -> None:
    bodies = [b'{"id": 1}', b'{"id": 2}', b'{"id": "3"}', b'{"id": 4, "plan": []}']
    chosen = sample(map(message, bodies), 5)
    assert [one.body for one in chosen] == [bodies[0], *bodies[2:]]
    assert [one.body for one in sample(map(message, bodies), 2)] == [bodies[0], bodies[2]]


def test_the_order_of_names_and_the_length_of_lists_are_no_shape() -> None:
    assert shape_of(b'{"a": [1, 2], "b": null}') == shape_of(b'{"b": null, "a": [3]}')


@given(st.binary())
def test_each_body_has_a_shape(body: bytes) -> None:
    hash(shape_of(body))
