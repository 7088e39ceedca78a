from redrive.topology.flow import Flow, QueueCount, flows, on_the_ladder

QUEUES = {
    "shop@orders": QueueCount(
        ready=1, held=2, consumers=2, published=5.0, delivered=10.0, acked=5.0, held_growth=-0.5
    ),
    "shop@orders@retry": QueueCount(ready=18),
    "shop@orders@failed": QueueCount(ready=1, held=2, published=1.0, delivered=2.0, acked=1.5),
    "master.delay.3": QueueCount(ready=9),
    "plain": QueueCount(ready=1),
}


def test_a_flow_is_what_the_three_queues_of_a_subscription_tell() -> None:
    assert flows(QUEUES) == [
        Flow(
            "shop@orders",
            main=3,
            retry=18,
            failed=3,
            consumers=2,
            rate_in=5.0,
            rate_done=5.0,
            # 10 delivered, of which 5 were acked; and half a one less is held than before
            rate_retried=5.5,
            rate_failed=1.0,
            rate_redriven=1.5,
        )
    ]


def test_what_consumers_take_up_and_hold_is_not_retried() -> None:
    (flow,) = flows(
        {**QUEUES, "shop@orders": QueueCount(held=150, delivered=10.0, held_growth=10.0)}
    )
    assert flow.rate_retried == 0.0


def test_what_is_republished_for_a_retry_is_retried_and_not_done() -> None:
    queues = {
        "shop@orders": QueueCount(published=10.0, delivered=30.0, acked=30.0),
        "shop@orders@retry": QueueCount(published=20.0),
        "shop@orders@failed": QueueCount(),
    }
    (flow,) = flows(queues)
    assert (flow.rate_done, flow.rate_retried) == (10.0, 20.0)


def test_a_broker_that_keeps_no_rates_tells_none() -> None:
    (flow,) = flows(
        {
            **QUEUES,
            "shop@orders": QueueCount(ready=1, held=2, published=None, delivered=None, acked=None),
        }
    )
    assert (flow.main, flow.rate_in, flow.rate_done, flow.rate_retried) == (3, None, None, None)


def test_a_queue_that_is_not_there_has_neither_depth_nor_rates() -> None:
    (flow,) = flows({"a@retry": QueueCount(ready=1)})
    missing = ("main", "failed")
    assert flow == Flow("a", main=None, retry=1, failed=None, consumers=0, missing=missing)


def test_a_node_that_began_to_count_anew_gives_no_negative_rates() -> None:
    (flow,) = flows(
        {**QUEUES, "shop@orders": QueueCount(published=-3.0, delivered=-9.0, acked=-2.0)}
    )
    assert (flow.rate_in, flow.rate_done, flow.rate_retried) == (0.0, 0.0, 0.0)


def test_what_waits_on_delay_ladders_is_counted() -> None:
    assert on_the_ladder(QUEUES) == 9


def test_what_the_broker_is_dead_lettering_is_in_the_queue_and_counted_apart() -> None:
    moving = {
        "shop@orders": QueueCount(ready=2, dead_lettering=3),
        "shop@orders@retry": QueueCount(ready=1, held=1, dead_lettering=21),
        "shop@orders@failed": QueueCount(),
        "master.delay.3": QueueCount(dead_lettering=4),
    }
    (flow,) = flows(moving)
    assert (flow.main, flow.retry, flow.dead_lettering) == (5, 23, 24)
    assert on_the_ladder(moving) == 4


def test_what_the_broker_holds_back_in_the_main_queue_waits_for_a_retry() -> None:
    queues = {
        "shop@orders": QueueCount(ready=2, held=1, held_back=7, holds_back=True),
        "shop@orders@failed": QueueCount(),
    }
    (flow,) = flows(queues)
    assert (flow.main, flow.retry) == (3, 7)


def test_what_was_not_counted_is_not_known_and_not_missing() -> None:
    unknown = QueueCount(None, None, None, dead_lettering=None, held_back=None)
    (flow,) = flows({"a": unknown, "a@retry": unknown, "a@failed": unknown})
    assert (flow.main, flow.retry, flow.failed, flow.consumers) == (None, None, None, None)
    assert (flow.dead_lettering, flow.missing) == (None, ())


def test_what_waits_on_ladders_is_not_known_where_one_was_not_counted() -> None:
    assert on_the_ladder({**QUEUES, "master.delay.4": QueueCount(ready=None)}) is None


def test_what_a_broker_holds_back_and_does_not_count_is_not_known() -> None:
    main = QueueCount(ready=2, held=1, held_back=None, holds_back=True)
    (flow,) = flows({"shop@orders": main, "shop@orders@failed": QueueCount()})
    assert (flow.main, flow.retry, flow.missing) == (3, None, ())
