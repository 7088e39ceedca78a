from redrive.topology.queue_role import QueueRole, queue_roles


def test_the_queues_of_a_subscription_are_known_by_their_names() -> None:
    assert queue_roles({"a@b", "a@b@retry", "a@b@failed", "plain"}) == [
        QueueRole("a@b", "main", "a@b"),
        QueueRole("a@b@retry", "retry", "a@b"),
        QueueRole("a@b@failed", "failed", "a@b"),
    ]


def test_a_queue_that_is_not_there_has_no_role() -> None:
    assert queue_roles({"a@b@failed"}) == [QueueRole("a@b@failed", "failed", "a@b")]


def test_levels_and_the_unrouted_queue_are_of_a_ladder() -> None:
    queues = {"master.delay.0", "master.delay-100ms.12", "master.unrouted", "other.unrouted"}
    assert queue_roles(queues) == [
        QueueRole("master.delay-100ms.12", "delay"),
        QueueRole("master.delay.0", "delay"),
        QueueRole("master.unrouted", "unrouted"),
    ]


def test_a_dead_letter_queue_of_others_is_told_of_while_it_is_there() -> None:
    assert queue_roles({"orders.dlq"}, ["orders.dlq", "gone.dlq"]) == [
        QueueRole("orders.dlq", "dead-letter")
    ]
