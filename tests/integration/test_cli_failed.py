"""`redrive failed` on a real broker."""

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import quote, urlsplit

import httpx
import pika
import pytest

from cli_support import declare, depth_of, give_up_on, redrive
from waiting import wait_until

QUEUE = "ucenter@user"
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def listed(url: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = redrive(
        "failed", "list", QUEUE, "--limit", "100", "--output", "json", url=url
    ).json()["messages"]
    return found


def put_as_a_peer(
    url: str, *bodies: bytes, headers: dict[str, object] | None = None, **given: str
) -> None:
    """Puts messages into the failed queue as a service without redrive does."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    for body in bodies:
        properties = pika.BasicProperties(headers=headers, **given)  # type: ignore[no-untyped-call]
        channel.basic_publish("", f"{QUEUE}@failed", body, properties, mandatory=True)
    connection.close()


# --- bodies ---------------------------------------------------------------------------------------


def test_a_filter_sees_what_the_handler_of_a_compressed_body_sees(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    packed = gzip.compress('{"city": "Köln"}'.encode("utf-16"))
    type_ = "application/json; charset=utf-16"
    put_as_a_peer(rabbitmq_url, packed, content_type=type_, content_encoding="gzip")
    put_as_a_peer(rabbitmq_url, b'\xef\xbb\xbf{"city": "Bonn"}', b'{"city": "Bonn"}')
    for city, count in (("Köln", 1), ("Bonn", 2)):
        where = f"body->>'$.city' = '{city}'"
        asked = redrive(
            "failed", "list", QUEUE, "--where", where, "--output", "json", url=rabbitmq_url
        )
        found = asked.json()["messages"]
        assert [message["body"] for message in found] == [{"city": city}] * count


# --- list -----------------------------------------------------------------------------------------


def test_the_list_says_what_failed_and_why(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [{"id": 1}])
    done = redrive("failed", "list", QUEUE, url=rabbitmq_url)
    assert done.code == 0
    assert "ValueError: no plan for 'gold'" in done.out
    assert done.out.endswith("1 message in ucenter@user@failed.\n")


def test_the_list_says_how_to_see_more(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    done = redrive("failed", "list", QUEUE, "--limit", "2", url=rabbitmq_url)
    assert done.out.endswith(
        "The 2 oldest of 3 messages in ucenter@user@failed; --limit 3 shows all.\n"
    )
    assert len(done.out.splitlines()) == 5


def test_looking_takes_nothing_away(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    for limit in ("1", "2", "3"):
        redrive("failed", "list", QUEUE, "--limit", limit, url=rabbitmq_url)
    assert sorted(str(message["body"]) for message in listed(rabbitmq_url)) == ["1", "2", "3"]
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 3


def test_a_message_as_json_has_all_that_is_known(rabbitmq_url: str) -> None:
    ids = give_up_on(rabbitmq_url, QUEUE, [{"id": 121, "name": "关云长"}])
    (message,) = listed(rabbitmq_url)
    assert message["message_id"] == ids[0]
    assert message["body"] == {"id": 121, "name": "关云长"}
    assert message["body_encoding"] == "json"
    assert message["routing_key"] == "user.create"
    assert message["reason"] == "retries-exhausted"
    assert message["error"]["message"] == "no plan for 'gold'"  # type: ignore[index]
    assert message["headers"]["tenant"] == "acme"  # type: ignore[index]
    assert str(message["failed_at"]).endswith("+00:00")


@pytest.mark.parametrize(
    ("body", "expected", "encoding"),
    [
        (b"hello", "hello", "text"),
        (b"\xff\x00", "/wA=", "base64"),
        (b'"text"', "text", "json"),
        (b"NaN", "NaN", "text"),
        (b"1e999", "1e999", "text"),
        (b"", "", "text"),
        (b"[" * 100_000, "[" * 100_000, "text"),
        (b'"\\ud800"', "\ud800", "json"),
    ],
)
def test_any_body_can_be_shown(
    rabbitmq_url: str, body: bytes, expected: object, encoding: str
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [body])
    (message,) = listed(rabbitmq_url)
    assert (message["body"], message["body_encoding"]) == (expected, encoding)
    assert redrive("failed", "show", QUEUE, str(message["failure_id"]), url=rabbitmq_url).code == 0


def test_any_header_can_be_shown(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    headers: dict[str, object] = {
        "bytes": b"\xff\x00",
        "decimal": Decimal("1.25"),
        "time": MOMENT,
        "nested": {"list": [1, None, True]},
    }
    put_as_a_peer(rabbitmq_url, b"x", headers=headers)
    (message,) = listed(rabbitmq_url)
    found = message["headers"]
    assert isinstance(found, dict)
    assert {name: found[name] for name in headers} == {
        "bytes": "\\xff\x00",
        "decimal": "1.25",
        "time": "2026-03-01T12:00:00+00:00",
        "nested": {"list": [1, None, True]},
    }


def test_a_message_of_a_peer_has_dashes_where_nothing_is_known(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    put_as_a_peer(rabbitmq_url, b"x")
    done = redrive("failed", "list", QUEUE, url=rabbitmq_url)
    assert "–" in done.out.splitlines()[2]


def test_an_empty_queue_is_said_to_be_empty(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    done = redrive("failed", "list", QUEUE, url=rabbitmq_url)
    assert (done.code, done.out) == (0, "ucenter@user@failed is empty.\n")


@pytest.mark.parametrize("command", ["list", "show", "requeue", "purge"])
def test_a_queue_that_is_not_there_is_named(rabbitmq_url: str, command: str) -> None:
    done = redrive(
        "failed", command, "nobody@knows", *(["id"] if command == "show" else []), url=rabbitmq_url
    )
    assert done.code == 2
    assert "there is no queue 'nobody@knows" in done.error_lines[0]


def test_the_failed_queue_s_own_name_is_taken_for_its_subscription(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    put_as_a_peer(rabbitmq_url, b"x")
    by_name, by_its_own = (
        redrive("failed", "list", name, url=rabbitmq_url) for name in (QUEUE, f"{QUEUE}@failed")
    )
    assert (by_its_own.code, by_its_own.out) == (by_name.code, by_name.out) == (0, by_name.out)
    assert "1 message in ucenter@user@failed." in by_its_own.out


@pytest.mark.parametrize("command", ["list", "show", "requeue", "purge"])
def test_the_name_of_the_retry_queue_is_refused(rabbitmq_url: str, command: str) -> None:
    done = redrive(
        "failed",
        command,
        f"{QUEUE}@retry",
        *(["id"] if command == "show" else []),
        url=rabbitmq_url,
    )
    assert (done.code, done.error_lines[1]) == (2, "Name the main queue: 'ucenter@user'.")


def test_a_limit_of_nothing_is_refused(rabbitmq_url: str) -> None:
    assert redrive("failed", "list", QUEUE, "--limit", "0", url=rabbitmq_url).code == 2


# --- show -----------------------------------------------------------------------------------------


def test_a_message_is_shown_by_any_of_its_ids(rabbitmq_url: str) -> None:
    ids = give_up_on(rabbitmq_url, QUEUE, [{"id": 1}, {"id": 2}])
    message = next(message for message in listed(rabbitmq_url) if message["message_id"] == ids[1])
    failure_id = str(message["failure_id"])
    for id_ in (failure_id, failure_id[:12], ids[1]):
        done = redrive("failed", "show", QUEUE, id_, "--output", "json", url=rabbitmq_url)
        assert done.code == 0
        assert done.json()["body"] == {"id": 2}


def test_a_message_in_full_has_its_traceback_headers_and_body(rabbitmq_url: str) -> None:
    (message_id,) = give_up_on(rabbitmq_url, QUEUE, [{"id": 1, "tags": ["a"]}])
    done = redrive("failed", "show", QUEUE, message_id, url=rabbitmq_url)
    assert "Traceback (most recent call last):" in done.out
    assert "  tenant: acme\n" in done.out
    assert '  {\n    "id": 1,\n' in done.out


def test_what_a_message_says_cant_steer_the_terminal(rabbitmq_url: str) -> None:
    (message_id,) = give_up_on(
        rabbitmq_url,
        QUEUE,
        ["\x1b]0;owned\x07\x1b[2J[red]"],
        ValueError("\x1b[31m[bold]\r\nforged"),
    )
    for command in (("list",), ("show", message_id)):
        done = redrive("failed", command[0], QUEUE, *command[1:], url=rabbitmq_url)
        assert not set("\x1b\x07\r") & set(done.out)
        assert r"\x1b[31m[bold]" in done.out


def test_an_id_that_nobody_has_exits_with_1(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    done = redrive("failed", "show", QUEUE, "nobody", url=rabbitmq_url)
    assert (done.code, done.error_lines[0]) == (
        1,
        "Error: no message of 'ucenter@user@failed' has the id 'nobody'",
    )


def test_an_id_that_several_have_is_refused_with_all_of_them(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    done = redrive("failed", "show", QUEUE, "", url=rabbitmq_url)
    assert done.code == 2
    assert all(str(message["failure_id"]) in done.err for message in listed(rabbitmq_url))


# --- requeue --------------------------------------------------------------------------------------


def test_all_messages_go_back(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    done = redrive("failed", "requeue", QUEUE, "--yes", url=rabbitmq_url)
    assert done.code == 0
    assert "\n3 of 3 messages requeued to ucenter@user, as job " in done.out
    assert depth_of(rabbitmq_url, QUEUE) == {"main": 3, "retry": 0, "failed": 0}


def test_as_many_go_back_as_the_limit_says(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    report = redrive(
        "failed", "requeue", QUEUE, "--limit", "2", "--yes", "--output", "json", url=rabbitmq_url
    ).json()
    assert (report["planned"], report["requeued"], report["failed"], report["cancelled"]) == (
        2,
        2,
        [],
        False,
    )
    assert depth_of(rabbitmq_url, QUEUE) == {"main": 2, "retry": 0, "failed": 1}


def test_only_the_messages_named_go_back(rabbitmq_url: str) -> None:
    ids = give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    done = redrive(
        "failed", "requeue", QUEUE, "--id", ids[0], "--id", ids[2], "--yes", url=rabbitmq_url
    )
    assert done.code == 0
    assert [message["message_id"] for message in listed(rabbitmq_url)] == [ids[1]]


def test_where_one_id_is_wrong_nothing_goes_back(rabbitmq_url: str) -> None:
    ids = give_up_on(rabbitmq_url, QUEUE, [1, 2])
    assert (
        redrive(
            "failed", "requeue", QUEUE, "--id", ids[0], "--id", "nobody", "--yes", url=rabbitmq_url
        ).code
        == 1
    )
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 2


def test_two_equal_messages_of_a_peer_go_back_together(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    put_as_a_peer(rabbitmq_url, b"same", b"same", b"other")
    id_ = next(
        str(message["failure_id"]) for message in listed(rabbitmq_url) if message["body"] == "same"
    )
    assert redrive("failed", "requeue", QUEUE, "--id", id_, "--yes", url=rabbitmq_url).code == 0
    assert depth_of(rabbitmq_url, QUEUE) == {"main": 2, "retry": 0, "failed": 1}


def test_a_dry_run_shows_the_plan_and_sends_nothing(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3, 4])
    done = redrive("failed", "requeue", QUEUE, "--dry-run", "--limit", "2", url=rabbitmq_url)
    assert done.code == 0
    # Not "2 of 3": how many there are was not looked up.
    assert done.out.startswith(
        "2 messages of ucenter@user@failed would be requeued to ucenter@user (--limit 2):\n"
    )
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 4


def test_without_a_terminal_and_without_yes_nothing_is_sent(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    done = redrive("failed", "requeue", QUEUE, url=rabbitmq_url)
    assert done.code == 2
    assert done.error_lines == [
        "Error: there is no terminal to ask at: Nobody consumes ucenter@user. Requeue 1 message?",
        "Give --yes to go ahead, or --dry-run to see what would happen.",
    ]
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 1


def test_an_empty_queue_is_no_error(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    done = redrive("failed", "requeue", QUEUE, url=rabbitmq_url)
    assert (done.code, done.out) == (
        0,
        "ucenter@user@failed is empty: nothing to requeue.\n",
    )


def test_a_main_queue_that_is_gone_is_named_and_nothing_is_lost(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    connection.channel().queue_delete(QUEUE)
    connection.close()
    done = redrive("failed", "requeue", QUEUE, "--yes", url=rabbitmq_url)
    assert (done.code, done.error_lines[0]) == (
        2,
        "Error: there is no queue 'ucenter@user' to requeue messages to",
    )
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 1


def test_what_could_not_be_sent_is_listed_and_stays(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    give_up_on(rabbitmq_url, QUEUE, list(range(20)))
    parts = urlsplit(rabbitmq_url)
    full = {"pattern": f"^{QUEUE}$", "definition": {"max-length": 1}, "apply-to": "queues"}
    login = (parts.username or "guest", parts.password or "guest")
    path = f"/api/policies/{quote(parts.path[1:], safe='')}/full"
    httpx.put(
        rabbitmq_management_url + path, json=full, auth=login, trust_env=False
    ).raise_for_status()
    wait_until(
        lambda: redrive("publish", QUEUE, "filler", url=rabbitmq_url).code == 2, "filling the queue"
    )
    before = depth_of(rabbitmq_url, QUEUE)["main"] or 0
    done = redrive("failed", "requeue", QUEUE, "--yes", url=rabbitmq_url)
    found = depth_of(rabbitmq_url, QUEUE)
    assert done.code == 1
    assert (
        f"{found['failed']} messages could not be sent and stayed in ucenter@user@failed:"
        in done.out
    )
    assert (found["main"] or 0) - before + (found["failed"] or 0) == 20


# --- purge ----------------------------------------------------------------------------------------


def test_purge_deletes_and_says_how_many(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    done = redrive("failed", "purge", QUEUE, "--yes", url=rabbitmq_url)
    assert (done.code, done.out) == (0, "2 messages deleted from ucenter@user@failed.\n")
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 0


def test_purge_as_json(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    done = redrive("failed", "purge", QUEUE, "--yes", "--output", "json", url=rabbitmq_url)
    assert json.loads(done.out) == {"queue": QUEUE, "messages": 2, "deleted": 2}


@pytest.mark.parametrize(("option", "code"), [("--dry-run", 0), ("--output=table", 2)])
def test_purge_without_yes_deletes_nothing(rabbitmq_url: str, option: str, code: int) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    done = redrive("failed", "purge", QUEUE, option, url=rabbitmq_url)
    assert done.code == code
    assert "2 messages of ucenter@user@failed" in done.out + done.err
    assert "for good" in done.out + done.err
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 2
