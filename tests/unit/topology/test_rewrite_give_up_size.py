"""What giving up writes, where there is not room for all of it."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deliveries import (
    ERROR,
    FAILURE_ID,
    FAMILY,
    context,
    death,
    deaths,
    first_delivery,
    returned,
)
from field_tables import QUEUE, hostile_tables
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery
from redrive.topology.rewrite import ErrorReport, Publish

MEGABYTE = 1024 * 1024
LONG = ErrorReport(
    "shop.PaymentError",
    "m" * 200,
    "Traceback (most recent call last):\n" + "  frame\n" * 1000 + "shop.PaymentError: refused",
)
CONTENT_HEADER = 12
"""The class, the weight and the body size, which stand in front of the properties in the content
header."""
ESSENTIAL = {headers.FAILURE_ID: FAILURE_ID, headers.ERROR_TYPE: LONG.type}
OURS = frozenset(
    {
        headers.FAILURE_ID,
        headers.ERROR_TYPE,
        headers.ERROR_MESSAGE,
        headers.ERROR_TRACEBACK,
        headers.REASON,
        headers.RETRIES,
        headers.FAILED_AT,
        headers.FIRST_FAILED_AT,
        headers.HOST,
        headers.ORIG_EXCHANGE,
        headers.ORIG_EXPIRATION,
        headers.ORIG_USER_ID,
        headers.ORIG_ROUTING_KEY,
    }
)

frame_sizes = st.sampled_from([4096, 8192, 131_072])
texts = st.one_of(
    st.text(max_size=300),
    st.sampled_from(["x" * MEGABYTE, "ü" * MEGABYTE, "𝄞\n" * 50_000, "\ud800" * 5000]),
)
errors = st.builds(ErrorReport, st.one_of(st.text(max_size=300), st.just("ü" * 255)), texts, texts)


def given_up(delivery: Delivery, frame_max: int, error: ErrorReport = LONG) -> Publish:
    return rewrite.give_up(
        delivery,
        FAMILY,
        reason="gave-up",
        error=error,
        retries=3,
        context=context(frame_max),
    )


def frame_size(properties: Properties) -> int:
    """The bytes that a frame needs for these properties: the content header, and 8 of its own."""
    return CONTENT_HEADER + len(properties.encode()) + 8


def filled_up(
    table: Table,
    frame_max: int,
    spare: int,
    *,
    expiration: str | None = None,
    user_id: str | None = None,
) -> Delivery:
    """A delivery whose content header leaves `spare` bytes of the frame."""
    empty = Properties(
        headers=table.with_values({"filler": b""}), expiration=expiration, user_id=user_id
    )
    missing = frame_max - spare - frame_size(empty)
    return replace(
        first_delivery(),
        properties=empty._replace(headers=table.with_values({"filler": b"." * max(0, missing)})),
    )


def size_of_ours(table: Table) -> int:
    return len(table.without(lambda name: name not in OURS).encode())


# --- the frame ------------------------------------------------------------------------------------


@given(hostile_tables(), frame_sizes, st.integers(0, 20_000), errors)
@example(Table(), 131_072, 131_072, ErrorReport("E", "x" * MEGABYTE, "x" * MEGABYTE))
@example(Table(), 4096, 0, LONG)
def test_a_message_that_fits_a_frame_still_fits_when_it_is_set_aside(
    table: Table, frame_max: int, spare: int, error: ErrorReport
) -> None:
    delivery = filled_up(table, frame_max, min(spare, frame_max))
    if frame_size(delivery.properties) <= frame_max:
        assert frame_size(given_up(delivery, frame_max, error).properties) <= frame_max


@given(
    frame_sizes,
    st.integers(0, 100),
    st.sampled_from(["", "1", "60000", "9" * 255]),
    st.sampled_from(["", "shop", "s" * 255]),
)
@example(4096, 0, "60000", "")
def test_a_message_with_properties_that_cannot_travel_still_fits(
    frame_max: int, spare: int, expiration: str, user_id: str
) -> None:
    delivery = filled_up(Table(), frame_max, spare, expiration=expiration, user_id=user_id)
    for publish in (
        given_up(delivery, frame_max),
        rewrite.republish(delivery, FAMILY, retries=1, counts_on=False, frame_max=frame_max),
        rewrite.requeue(delivery, job="job-1", frame_max=frame_max),
    ):
        assert frame_size(publish.properties) <= frame_max


@given(hostile_tables(), frame_sizes, st.integers(0, 300))
def test_a_republish_and_a_requeue_fit_where_the_message_did(
    table: Table, frame_max: int, spare: int
) -> None:
    delivery = filled_up(table, frame_max, spare)
    if frame_size(delivery.properties) <= frame_max:
        assert (
            frame_size(
                rewrite.republish(
                    delivery, FAMILY, retries=1, counts_on=False, frame_max=frame_max
                ).properties
            )
            <= frame_max
        )
        assert (
            frame_size(rewrite.requeue(delivery, job="j" * 100, frame_max=frame_max).properties)
            <= frame_max
        )


def test_a_connection_without_a_limit_has_room_for_all_that_is_ours() -> None:
    assert (
        given_up(filled_up(Table(), 10**6, 0), frame_max=0).properties.headers["redrive-error-type"]
        == "shop.PaymentError"
    )


def test_the_x_death_goes_where_nothing_fits_with_it() -> None:
    delivery = filled_up(deaths(*[death(QUEUE, "rejected", 1)] * 20), 4096, spare=-500)
    moved = given_up(replace(delivery, exchange="", routing_key=QUEUE), 4096).properties
    assert headers.X_DEATH not in moved.headers
    assert frame_size(moved) <= 4096


# --- our own room ---------------------------------------------------------------------------------


@given(hostile_tables(), errors)
def test_our_own_headers_take_at_most_16_kib(table: Table, error: ErrorReport) -> None:
    received = table.without(OURS.__contains__)
    assert (
        size_of_ours(given_up(first_delivery(received), 131_072, error).properties.headers)
        <= 16 * 1024
    )


def test_our_own_headers_take_at_most_16_kib_beside_properties_that_cannot_travel() -> None:
    delivery = replace(first_delivery(), properties=Properties(expiration="60000", user_id="shop"))
    assert (
        size_of_ours(
            given_up(delivery, 131_072, ErrorReport("E", "m", "x" * MEGABYTE)).properties.headers
        )
        <= 16 * 1024
    )


def test_a_traceback_takes_nearly_all_of_our_room() -> None:
    moved = given_up(
        first_delivery(), 131_072, ErrorReport("E", "m", "x" * MEGABYTE)
    ).properties.headers
    assert size_of_ours(moved) > 16 * 1024 - 16


# --- what goes first ------------------------------------------------------------------------------


def present(moved: Table) -> tuple[bool, bool, bool, bool]:
    """Whether the essential, all the useful, the whole message and some of the traceback are
    there."""
    useful = {
        headers.REASON,
        headers.RETRIES,
        headers.FAILED_AT,
        headers.FIRST_FAILED_AT,
        headers.HOST,
        headers.ORIG_EXCHANGE,
    }
    return (
        set(ESSENTIAL) <= set(moved),
        useful | {headers.ORIG_ROUTING_KEY} <= set(moved),
        moved.get(headers.ERROR_MESSAGE) == LONG.message,
        headers.ERROR_TRACEBACK in moved,
    )


def test_the_traceback_goes_first_then_the_message_then_the_rest() -> None:
    for spare in range(0, 1200, 23):
        kept = present(given_up(filled_up(Table(), 8192, spare), 8192).properties.headers)
        assert kept == tuple(sorted(kept, reverse=True)), spare


@pytest.mark.parametrize("spare", [0, 50, 90])
def test_with_no_room_at_all_a_message_is_set_aside_without_our_headers(spare: int) -> None:
    delivery = filled_up(Table(), 8192, spare)
    publish = given_up(delivery, 8192)
    assert (publish.properties, publish.complete) == (delivery.properties, False)


@pytest.mark.parametrize("spare", range(100, 1200, 100))
def test_a_message_is_complete_where_failure_id_and_error_type_found_room(spare: int) -> None:
    publish = given_up(filled_up(Table(), 8192, spare), 8192)
    assert publish.complete == (set(ESSENTIAL) <= set(publish.properties.headers))


@given(hostile_tables(), st.integers(0, 1000))
def test_failure_id_and_error_type_are_there_whenever_they_fit(table: Table, spare: int) -> None:
    # A delivery's headers can all be read: the broker parses them itself.
    received = Table(table.raw_fields())
    moved = given_up(filled_up(received, 8192, spare), 8192).properties
    with_them = moved._replace(headers=moved.headers.with_values(ESSENTIAL))
    if not set(ESSENTIAL) <= set(moved.headers):
        assert frame_size(with_them) > 8192 - 4


@given(hostile_tables(), st.integers(0, 200))
def test_without_failure_id_and_error_type_nothing_of_ours_is_written(
    table: Table, spare: int
) -> None:
    delivery = filled_up(table.without(OURS.__contains__), 8192, spare)
    moved = given_up(delivery, 8192).properties.headers
    assert set(ESSENTIAL) <= set(moved) or not OURS & set(moved)


# --- how texts are shortened ----------------------------------------------------------------------


def traceback_in(room: int, traceback: str) -> object:
    return given_up(
        filled_up(Table(), 8192, room), 8192, replace(ERROR, traceback=traceback)
    ).properties.headers["redrive-error-traceback"]


def test_a_traceback_loses_its_middle() -> None:
    traceback = (
        "Traceback (most recent call last):\n" + "  a frame\n" * 1000 + "shop.PaymentError: refused"
    )
    shortened = traceback_in(1000, traceback)
    assert isinstance(shortened, str)
    assert shortened.startswith("Traceback (most recent call last):\n")
    assert shortened.endswith("shop.PaymentError: refused")
    assert f"… {len(traceback)} bytes, shortened …" in shortened


def test_a_traceback_that_fits_is_whole() -> None:
    assert traceback_in(1000, "Traceback: short") == "Traceback: short"


@pytest.mark.parametrize("traceback", ["ü𝄞" * 1000, "𝄞" * 30], ids=["long", "short"])
def test_a_shortened_traceback_is_a_text_whatever_the_room(traceback: str) -> None:
    for spare in range(420, 500):
        moved = given_up(
            filled_up(Table(), 8192, spare), 8192, replace(ERROR, traceback=traceback)
        ).properties
        assert isinstance(moved.headers.get("redrive-error-traceback", ""), str), spare
        assert frame_size(moved) <= 8192


def test_a_message_loses_its_end() -> None:
    moved = given_up(
        returned(Table()), 131_072, ErrorReport("E", "begin " + "x" * MEGABYTE)
    ).properties.headers
    message = moved["redrive-error-message"]
    assert isinstance(message, str)
    assert (message[:6], message[-1]) == ("begin ", "…")
