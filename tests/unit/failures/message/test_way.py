from hypothesis import given

from deliveries import NOW_TEXT, death, deaths, failed, table
from field_tables import hostile_tables
from redrive.amqp.field_table import Table
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.way import way_of


def test_the_way_is_told_from_its_beginning_to_its_end() -> None:
    x_death = deaths(
        death(
            "ucenter@user@retry", "expired", 3, exchange="master.retry", routing_key="ucenter@user"
        ),
        death("ucenter@user", "rejected", 3),
    )
    own = table(
        redrive_failed_at=NOW_TEXT,
        redrive_host="worker-1",
        redrive_reason="gave-up",
        redrive_orig_exchange="master",
    )
    way = way_of(FailedMessage(failed(Table((*own.raw_fields(), *x_death.raw_fields())))))
    assert way == [
        "published to master with user.create",
        (
            "in ucenter@user an attempt failed, 3 times, first at 2024-05-17 08:00:00; it had come "
            "through master with user.create"
        ),
        (
            "in ucenter@user@retry it waited for its next attempt, 3 times, first at 2024-05-17 "
            "08:00:00; "
            "it had come through master.retry with ucenter@user"
        ),
        "set aside in ucenter@user@failed by worker-1 at 2024-05-17 08:30:15: gave-up",
    ]


def test_of_a_message_without_headers_only_its_key_is_known() -> None:
    assert way_of(FailedMessage(failed())) == ["published with ucenter@user"]


@given(hostile_tables())
def test_whatever_a_peer_sends_has_a_way(headers: Table) -> None:
    for sentence in way_of(FailedMessage(failed(headers))):
        sentence.encode()
