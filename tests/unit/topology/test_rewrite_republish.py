from hypothesis import given
from hypothesis import strategies as st

from deliveries import FAMILY, FRAME_MAX, death, deaths, returned, table
from field_tables import QUEUE, hostile_tables
from redrive.amqp.field_table import Table
from redrive.topology import headers, rewrite


@given(hostile_tables(), st.integers(0, 100))
def test_a_republish_writes_the_retries_and_no_x_death(received: Table, retries: int) -> None:
    moved = rewrite.republish(
        returned(received), FAMILY, retries=retries, counts_on=False, frame_max=FRAME_MAX
    ).properties.headers
    assert (moved[headers.RETRIES], headers.X_DEATH in moved) == (retries, False)


def test_a_republish_keeps_what_an_earlier_failure_wrote() -> None:
    moved = rewrite.republish(
        returned(table(redrive_first_failed_at="2024")),
        FAMILY,
        retries=0,
        counts_on=False,
        frame_max=FRAME_MAX,
    )
    assert moved.properties.headers["redrive-first-failed-at"] == "2024"


def test_a_republish_takes_the_routing_key_from_the_x_death_before_it_goes() -> None:
    received = deaths(death(QUEUE, "rejected", 1, routing_key="user.delete"))
    moved = rewrite.republish(
        returned(received), FAMILY, retries=1, counts_on=False, frame_max=FRAME_MAX
    )
    assert moved.properties.headers["x-orig-routing-key"] == "user.delete"
