from redrive.topology.flow import Flow, Look, QueueCount, flows, on_the_ladder

BEFORE = Look(
    10.0,
    {
        "shop@orders": QueueCount(ready=5, held=3, consumers=2, published=100, delivered=90, acked=80),
        "shop@orders@retry": QueueCount(ready=7),
        "shop@orders@failed": QueueCount(ready=4, published=4, acked=0),
    },
)
NOW = Look(
    12.0,
    {
        "shop@orders": QueueCount(ready=1, held=2, consumers=2, published=110, delivered=110, acked=90),
        "shop@orders@retry": QueueCount(ready=18),
        "shop@orders@failed": QueueCount(ready=1, held=2, published=6, acked=3),
        "master.delay.3": QueueCount(ready=9),
        "plain": QueueCount(ready=1),
    },
)


def test_rates_are_of_the_time_between_two_looks() -> None:
    assert flows(NOW, BEFORE) == [
        Flow(
            "shop@orders",
            main=3,
            retry=18,
            failed=3,
            consumers=2,
            rate_in=5.0,
            rate_done=5.0,
            rate_retried=5.5,  # 20 delivered, of which 10 were acked; and one less is held than before
            rate_failed=1.0,
            rate_redriven=1.5,
        )
    ]


def test_one_look_tells_no_rates() -> None:
    (flow,) = flows(NOW)
    assert (flow.main, flow.rate_in, flow.rate_retried) == (3, None, None)
    assert flows(NOW, NOW) == [flow]


def test_a_queue_that_is_not_there_has_no_depth() -> None:
    (flow,) = flows(Look(1.0, {"a@retry": QueueCount(ready=1)}), Look(0.0))
    assert flow == Flow("a", main=None, retry=1, failed=None, consumers=0)


def test_a_queue_that_came_between_two_looks_counts_from_now() -> None:
    (flow,) = flows(NOW, Look(11.0))
    assert (flow.rate_in, flow.rate_failed) == (0.0, 0.0)


def test_a_node_that_began_to_count_anew_gives_no_negative_rates() -> None:
    (flow,) = flows(Look(13.0, {**NOW.queues, "shop@orders": QueueCount(held=9)}), NOW)
    assert (flow.rate_in, flow.rate_done, flow.rate_retried) == (0.0, 0.0, 0.0)


def test_what_waits_on_delay_ladders_is_counted() -> None:
    assert on_the_ladder(NOW) == 9
