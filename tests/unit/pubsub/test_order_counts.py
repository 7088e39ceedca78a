"""What ordered queues of a process wait for is told by queue."""

from dataclasses import dataclass

from redrive.pubsub.order_counts import OrderCounts, OrderedQueues


@dataclass
class Running:
    """A subscriber of an ordered queue."""

    queue: str
    order_counts: OrderCounts


def test_several_subscribers_of_a_queue_are_summed_up_and_those_that_ended_left_out() -> None:
    queues = OrderedQueues()
    ended = Running("a", OrderCounts(9, 9, 9, 9))
    for one in (Running("a", OrderCounts(1, 2, 3, 4)), Running("a", OrderCounts(1)), ended):
        queues.add(one)
    queues.add(Running("b", OrderCounts()))
    queues.remove(ended)
    queues.remove(ended)
    assert queues.counts() == {"a": OrderCounts(2, 2, 3, 4), "b": OrderCounts()}
