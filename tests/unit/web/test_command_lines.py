"""The command lines that pages show: what a shell makes of them is what the page does."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from redrive.failures.queue.canary import Guards
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.web.command_lines import (
    command,
    groups_command,
    list_command,
    query_command,
    requeue_command,
    show_command,
    try_command,
)
from redrive.web.page_request import QueuePlace

PLACE = QueuePlace("shop@orders")


def test_an_order_is_the_options_of_the_command() -> None:
    order = Order(
        Filter("retries > 2", groups=("3f2a",)),
        120,
        to="other",
        rate=200.0,
        guards=Guards(20, stop_at=0.05),
    )
    assert requeue_command(PLACE, order, "fixed in 2.3.1") == (
        "redrive failed requeue shop@orders --group 3f2a --where 'retries > 2' --limit 120 "
        "--to other --canary 20 --stop-at 5% --rate 200/s --reason 'fixed in 2.3.1'"
    )


def test_a_handler_is_tried_on_the_messages_of_an_order() -> None:
    order = Order(Filter(groups=("3f2a",)), 120, rate=200.0)
    assert try_command(PLACE, order) == (
        "redrive failed try shop@orders --group 3f2a --limit 120 --handler APP"
    )


def test_a_dead_letter_queue_is_taken_literally() -> None:
    place = QueuePlace("orders.dlq", literal=True)
    assert show_command(place, "3f2a") == "redrive failed show --literal orders.dlq 3f2a"


def test_a_name_like_an_option_is_none() -> None:
    assert "-- --help" in list_command(QueuePlace("--help"), Filter())


def test_a_job_is_resumed_by_its_id() -> None:
    assert command("jobs", "resume", "3f2a") == "redrive jobs resume 3f2a"


@given(st.text(min_size=1), st.text(min_size=1))
def test_whatever_a_stranger_has_called_something_a_shell_takes_for_one_word(
    name: str, text: str
) -> None:
    place = QueuePlace(name)
    for words_of in (groups_command(place, Filter(text)), query_command(place, text)):
        words = shlex.split(words_of)
        assert words[0] == "redrive"
        assert name in words
        assert text in words
