from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import NOW, death, deaths, first_delivery, returned, table
from field_tables import QUEUE, hostile_tables, values
from redrive.amqp.field_table import EMPTY, FieldValue, Table, encode_value
from redrive.amqp.properties import Properties
from redrive.topology import headers
from redrive.topology.headers import Deaths, Delivery

RETRY = f"{QUEUE}@retry"


def read(table: Table) -> Deaths:
    """What the table's `x-death` says."""
    return first_delivery(table).deaths


def is_well_formed(x_death: FieldValue) -> bool:
    return headers.deaths_in(encode_value(x_death)).are_well_formed


# --- whatever comes -------------------------------------------------------------------------------


@given(hostile_tables())
def test_no_headers_make_counting_deaths_raise(table: Table) -> None:
    assert 0 <= headers.death_count(read(table), QUEUE) <= headers.MAX_COUNT


@given(hostile_tables())
def test_no_headers_make_the_time_of_the_first_failure_raise(table: Table) -> None:
    assert headers.first_failure_time(read(table), QUEUE) is None or headers.X_DEATH in table


def test_an_entry_of_a_queue_that_is_no_text_has_no_time_of_ours() -> None:
    assert (
        headers.first_failure_time(
            read(deaths({"queue": {}, "reason": "rejected", "time": NOW})), QUEUE
        )
        is None
    )


@given(hostile_tables(), st.text(max_size=20))
def test_no_headers_make_the_original_routing_key_anything_but_a_text(
    table: Table, delivered: str
) -> None:
    assert isinstance(
        Delivery(QUEUE, "", delivered, Properties(headers=table), b"").original_routing_key, str
    )


@given(hostile_tables())
def test_no_headers_make_the_failure_id_empty(table: Table) -> None:
    assert headers.failure_id(first_delivery(table))


@given(hostile_tables())
def test_no_headers_make_reading_the_first_rejection_raise(table: Table) -> None:
    assert len(headers.first_rejection(read(table), QUEUE)) >= 0


@given(hostile_tables())
def test_headers_without_a_readable_entry_of_the_queue_name_it_not(table: Table) -> None:
    entries = read(table).entries
    assert headers.names_queue(read(table), QUEUE) == any(
        entry.get("queue") in (QUEUE, RETRY) for entry in entries
    )


@given(values)
def test_no_value_of_x_death_makes_checking_its_form_raise(raw: bytes) -> None:
    assert headers.deaths_in(raw).are_well_formed in (True, False)


# --- counts ---------------------------------------------------------------------------------------

NO_COUNTS = [
    True,
    False,
    None,
    "3",
    b"3",
    3.0,
    Decimal(3),
    -1,
    1_000_000_001,
    2**63 - 1,
    [3],
    {"count": 3},
    datetime(2024, 1, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_what_is_no_count_counts_as_0(value: FieldValue) -> None:
    assert headers.counted(value) == 0


@pytest.mark.parametrize("value", [0, 1, 1_000_000_000])
def test_a_count_is_counted(value: int) -> None:
    assert headers.counted(value) == value


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_a_death_whose_count_is_none_counts_as_0(value: FieldValue) -> None:
    assert headers.death_count(read(deaths(death(QUEUE, "rejected", value))), QUEUE) == 0


def test_rejections_are_counted() -> None:
    assert headers.death_count(read(deaths(death(QUEUE, "rejected", 2))), QUEUE) == 2


def test_rejections_and_reached_delivery_limits_add_up() -> None:
    assert (
        headers.death_count(
            read(deaths(death(QUEUE, "rejected", 2), death(QUEUE, "delivery_limit", 1))), QUEUE
        )
        == 3
    )


def test_the_two_sides_of_a_trip_are_not_added() -> None:
    assert (
        headers.death_count(
            read(deaths(death(RETRY, "expired", 2), death(QUEUE, "rejected", 2))), QUEUE
        )
        == 2
    )


@pytest.mark.parametrize(("rejected", "expired"), [(3, 1), (1, 3)])
def test_of_the_two_sides_of_a_trip_the_larger_counts(rejected: int, expired: int) -> None:
    assert (
        headers.death_count(
            read(deaths(death(QUEUE, "rejected", rejected), death(RETRY, "expired", expired))),
            QUEUE,
        )
        == 3
    )


@pytest.mark.parametrize(("rejected", "expired"), [(3, 0), (3, 2), (1, 2)])
def test_a_message_that_waits_was_rejected_once_more_than_it_has_come_back(
    rejected: int, expired: int
) -> None:
    waiting = read(deaths(death(QUEUE, "rejected", rejected), death(RETRY, "expired", expired)))
    assert headers.trips_before(waiting, QUEUE) == 2


@pytest.mark.parametrize(
    "entry",
    [
        death("another", "rejected", 9),
        death("another@retry", "expired", 9),
        death(QUEUE, "expired", 9),
        death(QUEUE, "maxlen", 9),
        death(RETRY, "rejected", 9),
        death(f"{QUEUE}@failed", "rejected", 9),
    ],
    ids=lambda entry: f"{entry['queue']}-{entry['reason']}",
)
def test_a_death_of_another_kind_counts_for_nothing(entry: dict[str, FieldValue]) -> None:
    assert headers.death_count(read(deaths(entry)), QUEUE) == 0


def test_a_sum_of_deaths_stays_a_count() -> None:
    assert (
        headers.death_count(read(deaths(*[death(QUEUE, "rejected", headers.MAX_COUNT)] * 3)), QUEUE)
        == headers.MAX_COUNT
    )


@pytest.mark.parametrize(
    "x_death",
    [
        "rejected",
        {"queue": QUEUE},
        3,
        None,
        True,
        ["rejected", 3, None, [death(QUEUE, "rejected", 3)]],
    ],
    ids=repr,
)
def test_an_x_death_without_entries_counts_as_none(x_death: FieldValue) -> None:
    assert headers.death_count(read(Table.of({"x-death": x_death})), QUEUE) == 0


def test_a_readable_entry_counts_beside_an_unreadable_one() -> None:
    assert headers.death_count(read(deaths("rejected", death(QUEUE, "rejected", 1), 3)), QUEUE) == 1


# --- the form of x-death --------------------------------------------------------------------------


def test_entries_as_a_broker_writes_them_are_well_formed() -> None:
    assert is_well_formed([death(RETRY, "expired", 1), death(QUEUE, "rejected", 1)])


@pytest.mark.parametrize("name", ["queue", "reason", "exchange", "count", "routing-keys", "time"])
def test_an_entry_that_lacks_a_field_is_not_well_formed(name: str) -> None:
    entry = death(QUEUE, "rejected", 1)
    del entry[name]
    assert not is_well_formed([entry])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue", b"q"),
        ("reason", None),
        ("exchange", 1),
        ("count", True),
        ("count", -1),
        ("count", "1"),
        ("count", headers.MAX_COUNT + 1),
        ("routing-keys", "user.create"),
        ("routing-keys", [1]),
        ("time", 1_700_000_000),
    ],
)
def test_an_entry_with_a_field_of_another_type_is_not_well_formed(
    name: str, value: FieldValue
) -> None:
    assert not is_well_formed([death(QUEUE, "rejected", 1) | {name: value}])


@pytest.mark.parametrize("x_death", [None, "x", {}, ["x"], [[]]], ids=repr)
def test_an_x_death_that_is_no_list_of_entries_is_not_well_formed(x_death: FieldValue) -> None:
    assert not is_well_formed(x_death)


# --- the original routing key ---------------------------------------------------------------------


def test_our_own_header_says_the_original_routing_key() -> None:
    received = table(x_orig_routing_key="user.create").with_values(
        deaths(death(QUEUE, "rejected", 1, routing_key="user.delete"))
    )
    assert returned(received).original_routing_key == "user.create"


def test_of_a_foreign_message_the_first_rejection_says_the_original_routing_key() -> None:
    received = deaths(
        death(RETRY, "expired", 1, routing_key=QUEUE),
        death(QUEUE, "rejected", 1, routing_key="user.create"),
    )
    assert returned(received).original_routing_key == "user.create"


@pytest.mark.parametrize("keys", [[], "user.create", None, [1], [b"\xff"]], ids=repr)
def test_a_rejection_without_a_readable_key_leaves_it_to_the_delivery(keys: FieldValue) -> None:
    assert (
        returned(deaths(death(QUEUE, "rejected", 1) | {"routing-keys": keys})).original_routing_key
        == QUEUE
    )


@pytest.mark.parametrize("own", [b"\xff", 1, None, ["user.create"]], ids=repr)
def test_an_unreadable_header_of_ours_leaves_it_to_the_delivery(own: FieldValue) -> None:
    assert first_delivery(table(x_orig_routing_key=own)).original_routing_key == "user.create"


def test_a_message_that_nothing_happened_to_has_the_key_it_came_with() -> None:
    assert first_delivery().original_routing_key == "user.create"


def test_the_rejection_in_another_queue_says_nothing() -> None:
    assert returned(deaths(death("another", "rejected", 1))).original_routing_key == QUEUE


# --- the way that a message came by ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("exchange", "routing_key", "came_back"),
    [
        ("", QUEUE, True),
        ("master", QUEUE, False),
        ("", "other", False),
        ("master", "user.create", False),
    ],
)
def test_only_the_default_exchange_with_the_name_of_the_queue_is_the_way_back(
    exchange: str, routing_key: str, came_back: bool
) -> None:
    assert (
        Delivery(QUEUE, exchange, routing_key, Properties(headers=EMPTY), b"").came_back
        is came_back
    )


@pytest.mark.parametrize(
    "name",
    [
        "x-delivery-count",
        "x-acquired-count",
        "x-first-death-queue",
        "x-last-death-reason",
        "x-opt-anything",
        "CC",
        "BCC",
    ],
)
def test_notes_of_the_broker_and_copies_to_others_stay_behind(name: str) -> None:
    assert headers.stays_behind(name)


@pytest.mark.parametrize(
    "name",
    ["x-death", "x-orig-routing-key", "x-optional", "cc", "redrive-retries", "x-first-deaths"],
)
def test_every_other_header_travels(name: str) -> None:
    assert not headers.stays_behind(name)


# --- the notes that only redrive writes -----------------------------------------------------------

LADDER_KEY = "0." * 27 + f"1.r.{QUEUE}"


def with_notes(exchange: str, routing_key: str, *died: FieldValue, way_back: str = "") -> Delivery:
    headers = Table.of({"redrive-job": "job-1", **({"x-death": list(died)} if died else {})})
    return Delivery(
        QUEUE, exchange, routing_key, Properties(headers=headers), b"", way_back=way_back
    )


@pytest.mark.parametrize(
    "delivery",
    [
        with_notes("", QUEUE),
        with_notes("", QUEUE, death("another", "rejected", 1)),
        with_notes(
            "",
            QUEUE,
            death(RETRY, "expired", 1),
            death(QUEUE, "rejected", 1, exchange="", routing_key=QUEUE),
        ),
        with_notes(
            "",
            QUEUE,
            death(RETRY, "expired", 1),
            death(QUEUE, "rejected", 1, exchange="master.deliver", routing_key=LADDER_KEY),
        ),
        with_notes("master.deliver", LADDER_KEY),
        with_notes("master", QUEUE, way_back="master"),
        with_notes("", QUEUE, way_back="master"),
    ],
)
def test_a_message_that_came_by_ways_of_ours_alone_has_notes_of_ours(delivery: Delivery) -> None:
    assert (delivery.notes_are_ours, delivery.job) == (True, "job-1")


@pytest.mark.parametrize(
    "delivery",
    [
        with_notes("master", "user.create"),
        with_notes("master", QUEUE),
        with_notes("master.deliver", LADDER_KEY.replace(".r.", ".p.")),
        with_notes("", "another"),
        with_notes("", QUEUE, death(RETRY, "expired", 1), death(QUEUE, "rejected", 1)),
        with_notes("", QUEUE, death(RETRY, "expired", 1), death(QUEUE, "delivery_limit", 1)),
        with_notes(
            "", QUEUE, death(RETRY, "expired", 1), death(QUEUE, "rejected", 1, routing_key=QUEUE)
        ),
        with_notes("", QUEUE, death(QUEUE, "rejected", 1) | {"routing-keys": []}),
        with_notes(
            "",
            QUEUE,
            death(QUEUE, "rejected", 1, exchange="", routing_key=QUEUE) | {"exchange": None},
        ),
        with_notes(
            "",
            QUEUE,
            death(QUEUE, "maxlen", 1, exchange="", routing_key=QUEUE),
            death(QUEUE, "rejected", 1),
        ),
    ],
)
def test_a_message_that_came_by_another_way_at_first_has_no_notes_of_ours(
    delivery: Delivery,
) -> None:
    assert (delivery.notes_are_ours, delivery.job) == (False, None)


@given(hostile_tables())
def test_no_headers_make_asking_for_a_note_raise(table: Table) -> None:
    assert returned(table).job is None or headers.JOB in table


# --- how long ago ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "seconds"),
    [
        (None, None),
        (1000, 500.5),
        (1500, 0.5),
        (1530, 0.0),
        (1560, 0.0),
        (1561, None),
        (1500_000, None),
        (2**64 - 1, None),
    ],
)
def test_a_message_is_as_old_as_its_timestamp_says_unless_that_is_ahead_of_all_clocks(
    timestamp: int | None, seconds: float | None
) -> None:
    assert headers.seconds_since(timestamp, 1500.5) == seconds
