"""The commands on failed messages, on dead-letter queues that redrive did not make."""

import json
from pathlib import Path

import pytest

from cli_support import Outcome, find_the_management_api, redrive
from contract.administration import Administration
from contract.plain import plain_channel
from dead_letters import Arrival, DeadLetters
from effort import nightly
from redrive.pubsub.admin.management_api import ManagementAPI
from waiting import wait_until

pytestmark = pytest.mark.versions("x-death, which tells the way back")

COUNT = 30


@pytest.fixture(autouse=True)
def _management(rabbitmq_management_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What messages say of their way is checked by the management API."""
    find_the_management_api(monkeypatch, rabbitmq_management_url)


@pytest.fixture
def dead(rabbitmq_url: str) -> DeadLetters:
    found = DeadLetters(rabbitmq_url)
    found.declare()
    return found


@pytest.fixture(
    params=["default", *(nightly(one, why="the same watch") for one in ("topic", "fanout"))]
)
def arriving(request: pytest.FixtureRequest, rabbitmq_url: str) -> DeadLetters:
    """One to whose dead-letter queue messages come by each kind of exchange."""
    arrival: Arrival = request.param
    found = DeadLetters(rabbitmq_url, arrival=arrival)
    found.declare()
    return found


@pytest.fixture
def management(rabbitmq_management_url: str) -> tuple[str, str]:
    return "--management-url", rabbitmq_management_url


def requeue(dead: DeadLetters, *arguments: str) -> Outcome:
    return redrive(
        "failed", "requeue", dead.place, "--yes", "--output", "json", *arguments, url=dead.url
    )


def test_what_was_taken_is_said_in_the_first_line(dead: DeadLetters) -> None:
    dead.fail(2)
    done = redrive("failed", "groups", dead.place, url=dead.url)

    assert done.code == 0
    assert done.error_lines[0] == (
        f"Taking {dead.place}, a dead-letter queue that redrive did not make."
    )
    assert f"2 messages of {dead.place} in 1 group." in done.out


def test_who_else_consumes_the_queue_is_said(dead: DeadLetters) -> None:
    with plain_channel(dead.url) as channel:
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(dead.place, lambda *_: None)
        done = redrive("failed", "purge", dead.place, "--dry-run", url=dead.url)

    assert done.error_lines[1] == "1 consumer takes messages from it as well."


def test_a_filtered_requeue_sends_exactly_those(dead: DeadLetters) -> None:
    dead.fail(COUNT)
    dead.put(b'{"id": 5}', "stray")
    done = requeue(dead, "--where", "json_extract(body, '$.id')::int BETWEEN 5 AND 14")

    assert done.code == 0
    found = done.json()
    assert (found["planned"], found["requeued"], found["unchecked"]) == (10, 10, 1)
    assert found["ways"] == [{"exchange": "", "routing_key": dead.queue, "count": 10}]
    assert [id_ for id_, _ in dead.drain()] == [str(number) for number in range(5, 15)]
    assert dead.depth() == COUNT - 10 + 1


def test_what_nobody_could_check_goes_only_where_that_is_asked_for(
    dead: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dead.fail(3)
    find_the_management_api(monkeypatch, "http://127.0.0.1:1")
    left = redrive("failed", "requeue", dead.place, "--yes", url=dead.url)

    assert left.code == 1
    assert "3 messages not included: the broker could not confirm their way back." in left.out
    assert "--unchecked includes them" in left.out
    assert "nobody could ask the management API" in left.out
    assert dead.depth() == 3

    sent = requeue(dead, "--unchecked")
    assert (sent.json()["requeued"], sent.json()["unchecked"]) == (3, 0)
    assert sent.json()["routes"][0]["verdict"] == "unchecked"
    assert [id_ for id_, _ in dead.drain()] == ids


def test_what_the_topology_contradicts_stays_and_is_said_with_the_reason(
    dead: DeadLetters,
) -> None:
    dead.fail(2)
    with plain_channel(dead.url) as channel:
        channel.queue_delete(dead.queue)
    done = redrive("failed", "requeue", dead.place, "--yes", "--unchecked", url=dead.url)

    assert done.code == 1
    assert (
        "2 messages not included: what they say about their way back is contradicted." in done.out
    )
    assert f"there is no queue {dead.queue}" in done.out
    assert dead.depth() == 2


def test_the_columns_tell_where_a_message_failed_and_goes(dead: DeadLetters) -> None:
    dead.fail(1)
    dead.put(b"{}", "stray")
    sql = "select queue, dead_letter_queue, way_back, dialect from failed order by message_id"
    rows = redrive("failed", "query", dead.place, sql, "--output", "json", url=dead.url).json()[
        "rows"
    ]

    place = {"dead_letter_queue": dead.place, "dialect": "unknown"}
    assert rows == [
        {"queue": dead.queue, "way_back": dead.queue, **place},
        {"queue": dead.place, "way_back": None, **place},
    ]


def test_what_the_index_has_kept_is_the_same(
    dead: DeadLetters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("REDRIVE_INDEX", raising=False)
    dead.fail(3)
    dead.put(b"{}", "stray")
    sql = "select * exclude headers from failed order by message_id"
    arguments = ("failed", "query", dead.place, sql, "--output", "json")
    looked_at, answered = (redrive(*arguments, url=dead.url) for _ in range(2))

    assert "From the look of" in answered.err
    assert answered.json()["rows"] == looked_at.json()["rows"]


def test_originals_of_edited_bodies_are_restored_to_the_same_queue(
    dead: DeadLetters, tmp_path: Path
) -> None:
    ids = dead.fail(3)
    patch, file = tmp_path / "patch.json", str(tmp_path / "originals.jsonl")
    patch.write_text('[{"op": "add", "path": "/mended", "value": true}]')
    job = requeue(dead, "--patch", str(patch)).json()["job"]
    assert redrive("jobs", "originals", job, "-o", file, url=dead.url).code == 0
    assert redrive("failed", "restore", file, "--yes", url=dead.url).code == 0

    assert [id_ for id_, _ in dead.drain(dead.place)] == ids


def test_an_archive_of_discarded_messages_is_restored_to_the_same_queue(
    dead: DeadLetters, tmp_path: Path
) -> None:
    ids = dead.fail(3)
    file = str(tmp_path / "gone.jsonl")
    assert redrive("failed", "discard", dead.place, "-o", file, "--yes", url=dead.url).code == 0
    assert dead.depth() == 0
    restored = redrive("failed", "restore", file, "--yes", "--output", "json", url=dead.url)

    assert restored.json()["restored"] == {dead.place: 3}
    assert [id_ for id_, _ in dead.drain(dead.place)] == ids


def test_a_canary_that_comes_back_stops_the_requeue(arriving: DeadLetters) -> None:
    arriving.fail(COUNT)
    tried: set[str] = set()

    def fails(id_: str) -> bool:
        tried.add(id_)
        return False

    with arriving.consumer(fails) as handled:
        done = requeue(arriving, "--canary", "5", "--watch", "5m")
        # What a consumer has not got when it leaves stays in its queue.
        wait_until(lambda: arriving.depth() == COUNT, "the canary is back")

    found = done.json()
    assert (done.code, found["state"]) == (1, "stopped")
    # One that is back is enough: the others may not have gone.
    assert 1 <= found["requeued"] == len(tried) <= 5
    assert f"of the first {found['requeued']} failed again" in found["problem"]
    assert handled == []


def test_that_a_canary_succeeded_is_never_claimed(arriving: DeadLetters) -> None:
    arriving.fail(COUNT)
    with arriving.consumer(lambda _: True) as handled:
        done = requeue(arriving, "--canary", "5", "--watch", "2s")
        wait_until(lambda: len(handled) == 5, "the canary is handled")

    found = done.json()
    assert (done.code, found["state"], found["requeued"]) == (1, "stopped", 5)
    assert found["problem"] == (
        f"none of 5 was seen again in {arriving.place} for 2s, and whether they succeeded is not "
        "known"
    )
    assert sorted(handled, key=int) == [str(number) for number in range(5)]


def test_the_rest_follows_where_that_is_asked_for(arriving: DeadLetters) -> None:
    ids = arriving.fail(COUNT)
    with arriving.consumer(lambda _: True) as handled:
        done = requeue(arriving, "--canary", "5", "--watch", "2s", "--unknown", "go-on")
        wait_until(lambda: len(handled) == COUNT, "all are handled")

    assert (done.code, done.json()["requeued"]) == (0, COUNT)
    assert sorted(handled, key=int) == ids


def test_a_share_that_comes_back_stops_the_requeue(arriving: DeadLetters) -> None:
    arriving.fail(150)
    with arriving.consumer(lambda id_: int(id_) % 2 == 0):
        done = requeue(arriving, "--stop-at", "10%", "--rate", "10/s")

    found = done.json()
    assert (done.code, found["state"]) == (1, "stopped")
    assert found["requeued"] < 150


def test_a_job_is_shown_and_resumed_by_what_it_took(dead: DeadLetters) -> None:
    dead.fail(COUNT)
    with dead.consumer(lambda _: False):
        done = requeue(dead, "--canary", "5").json()
        job, sent = done["job"], done["requeued"]
        wait_until(lambda: dead.depth() == COUNT, "the canary is back")
        shown = redrive("jobs", "show", job, "--output", "json", url=dead.url).json()
    assert (shown["queue"], shown["literal"]) == (dead.place, True)
    assert 1 <= shown["failed_again"] == sent <= 5

    with dead.consumer(lambda _: True) as handled:
        resumed = redrive(
            "jobs", "resume", job, "--yes", "--watch", "2s", "--unknown", "go-on", url=dead.url
        )
        wait_until(lambda: len(handled) >= COUNT - sent, "all are handled")
    assert resumed.code == 0
    assert len(set(handled)) == len(handled) == COUNT - sent


def test_nothing_of_redrives_is_left_on_the_broker(
    dead: DeadLetters, management: tuple[str, str]
) -> None:
    dead.fail(COUNT)
    with dead.consumer(lambda _: False):
        requeue(dead, "--canary", "5")
    with ManagementAPI(dead.url, management[1]) as api:
        exchanges = {str(found["name"]) for found in api.listed("exchanges/{vhost}?columns=name")}
        queues = set(api.queue_names())

    assert not {name for name in exchanges if name.startswith("master")}
    assert not {name for name in queues if "event" in name or name.startswith("job.")}


# --- what a look costs ----------------------------------------------------------------------------


def test_the_price_of_a_look_is_said_and_the_last_life_is_never_taken(
    rabbitmq_url: str, management: tuple[str, str]
) -> None:
    dead = DeadLetters(rabbitmq_url, limit=5)
    dead.declare()
    ids = dead.fail(10)
    looks = [
        redrive("failed", "list", dead.place, "--output", "json", *management, url=dead.url)
        for _ in range(12)
    ]

    assert all("each look uses up one of the 5 returns" in look.err for look in looks)
    assert [look.code for look in looks[:3]] == [0, 0, 0]
    refused = [look.err for look in looks if look.code == 2]
    assert refused
    assert all(
        "another look could delete them" in text and "delivery-limit" in text for text in refused
    )
    assert sorted((id_ for id_, _ in dead.drain(dead.place)), key=int) == ids


def test_a_queue_that_would_delete_a_message_at_once_is_not_looked_at(
    rabbitmq_url: str, management: tuple[str, str]
) -> None:
    dead = DeadLetters(rabbitmq_url, limit=1)
    dead.declare()
    dead.fail(2)
    done = redrive("failed", "list", dead.place, *management, url=dead.url)

    assert done.code == 2
    assert "its delivery limit is 1" in done.err
    assert dead.depth() == 2


# --- what bad input gets --------------------------------------------------------------------------


def test_a_stream_is_refused(dead: DeadLetters) -> None:
    with plain_channel(dead.url) as channel:
        channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    done = redrive("failed", "groups", "log", url=dead.url)

    assert done.code == 2
    assert "'log' is a stream: nothing can be taken out of it" in done.err


def test_anothers_exclusive_queue_is_refused(dead: DeadLetters) -> None:
    with plain_channel(dead.url) as channel:
        channel.queue_declare("mine", exclusive=True)
        done = redrive("failed", "groups", "mine", url=dead.url)

    assert done.code == 2
    assert "exclusive" in done.err
    assert len([line for line in done.error_lines if line]) <= 3


@pytest.mark.parametrize(
    ("rights", "command"),
    [
        ({"read": "^$"}, ("groups",)),
        ({"read": "^$"}, ("requeue", "--yes")),
        ({"write": "^$"}, ("requeue", "--yes", "--unchecked")),
    ],
)
def test_without_rights_one_line_says_which_and_nothing_is_done(
    dead: DeadLetters,
    management: tuple[str, str],
    rights: dict[str, str],
    command: tuple[str, ...],
) -> None:
    ids = dead.fail(3)
    administration = Administration(management[1], dead.url)
    with administration.user(administration.unique("nobody"), **rights) as url:
        done = redrive("failed", command[0], dead.place, *command[1:], url=url)

    assert done.code != 0
    assert "refused" in done.err
    assert "Traceback" not in done.err
    assert "s3cret" not in done.err
    assert [id_ for id_, _ in dead.drain(dead.place)] == ids


def test_anothers_single_active_consumer_is_not_waited_for(dead: DeadLetters) -> None:
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    with plain_channel(dead.url) as channel:
        channel.queue_declare("sac", durable=True, arguments=arguments)
        channel.basic_consume("sac", lambda *_: None)
        done = redrive("failed", "groups", "sac", url=dead.url)

    assert done.code == 2
    assert "'sac' has a single active consumer, which is somebody else" in done.err


def test_a_name_of_nothing_says_what_was_looked_for(dead: DeadLetters) -> None:
    done = redrive("failed", "groups", "orders.dql", url=dead.url)

    assert done.code == 2
    assert "there is no queue 'orders.dql@failed'" in done.err
    assert "no dead-letter queue 'orders.dql'" in done.err


def test_two_ways_at_once_are_refused(dead: DeadLetters) -> None:
    done = requeue(dead, "--via", "--to", "elsewhere")

    assert done.code == 2
    assert json.loads(done.out or "{}") == {}
    assert "exclude each other" in done.err
