import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology import dead_letter_names


@pytest.mark.parametrize(
    ("queue", "origin", "dialects"),
    [
        ("shop@orders@failed.invalid", "shop@orders", ("redrive",)),
        ("EasyNetQ_Default_Error_Queue", None, ("easynetq",)),
        ("wolverine-dead-letter-queue", None, ("wolverine",)),
        ("error", None, ("nservicebus", "rebus")),
        ("failed", None, ("symfony",)),
        ("FAILED_MESSAGES", None, ("moleculer",)),
        ("shop-eu.FAILED_MESSAGES", None, ("moleculer",)),
        ("mq:PlaceOrder.dlq", "mq:PlaceOrder.inq", ("servicestack",)),
        ("eu.mq:PlaceOrder.dlq", "eu.mq:PlaceOrder.inq", ("servicestack",)),
        ("default.XQ", "default", ("dramatiq",)),
        ("submit-order_error", "submit-order", ("masstransit",)),
        ("submit-order_skipped", "submit-order", ("masstransit",)),
        ("mails.failed", "mails", ("laravel",)),
        ("downloads-error", "downloads", ()),
        ("orders.dlq", "orders", ()),
        ("orders-DLQ", "orders", ()),
        ("orders_dlq", "orders", ()),
        ("orders.dead-letter", "orders", ()),
        ("orders_dead_letter", "orders", ()),
        ("orders.deadletters", "orders", ()),
        ("orders.dead-letter-queue", "orders", ()),
        ("orders.group.parkingLot", "orders.group", ()),
        ("service:dead_letters", "service", ()),
        ("dead-letter", None, ()),
        ("DLQ", None, ()),
        ("dlq-orders", "orders", ()),
        ("dead_letter_example", "example", ()),
    ],
)
def test_a_name_tells_the_framework_and_the_origin(
    queue: str, origin: str | None, dialects: tuple[str, ...]
) -> None:
    name = dead_letter_names.read(queue)
    assert name is not None
    assert (name.origin, name.dialects) == (origin, dialects)


@pytest.mark.parametrize(
    "queue",
    [
        *("orders", "default.DQ", "orders.wait", "orders.retry", "terror", "errors.create"),
        *(".XQ", "_error", "undlq", "dlqueue", "deadlettersoflove", ""),
    ],
)
def test_other_names_say_nothing(queue: str) -> None:
    assert dead_letter_names.read(queue) is None


@given(st.text())
def test_no_name_is_too_strange(queue: str) -> None:
    name = dead_letter_names.read(queue)
    assert name is None or name.origin is None or name.origin.removesuffix(".inq") in queue
