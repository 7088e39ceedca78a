"""What is known of a broker whose management API comes and goes."""

import json
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from redrive.errors import ConfigurationError, PermissionDenied
from redrive.pubsub.admin import broker_watch
from redrive.pubsub.admin.broker_watch import DEAD_LETTER_QUEUES, QUEUES, BrokerWatch
from redrive.pubsub.url import BrokerURL
from waiting import wait_until

URL = BrokerURL.parse("amqp://shop:s3cr3t@localhost/orders")
SOON = timedelta(milliseconds=10)


def counted(name: str, ready: int) -> dict[str, object]:
    """What the API tells of a queue."""
    counts = {"messages_ready": ready, "messages_unacknowledged": 0}
    return {"name": name, "type": "classic", "arguments": {}, **counts}


class API:
    """A management API whose answers change. Of what is not named it says that it is empty."""

    def __init__(self) -> None:
        self.status = 200
        self.queues: list[dict[str, object]] = [
            counted("shop@orders", 7),
            counted("shop@orders@failed", 2),
            counted("bills.dlq", 3),
            counted("plain", 1),
        ]
        self.refused = "nothing"
        self.asked: list[str] = []
        self.address = ""


@pytest.fixture
def api() -> Iterator[API]:
    told = API()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked.append(self.path)
            status = 401 if told.refused in self.path else told.status
            content = json.dumps(told.queues if "/queues/" in self.path else []).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield told
        server.shutdown()
        thread.join()


@pytest.fixture
def watch(api: API) -> Iterator[BrokerWatch]:
    """A watch that has not started yet."""
    made = BrokerWatch(URL, api.address, SOON)
    yield made
    made.stop()
    assert not made.alive


def depths(watch: BrokerWatch) -> dict[str, tuple[str, int | None]]:
    """The role and the messages of each queue that is known."""
    return {role.queue: (role.role, count.ready) for role, count in watch.now().queues}


def test_all_queues_with_a_role_are_known_from_the_start(watch: BrokerWatch) -> None:
    watch.start()
    assert depths(watch) == {
        "shop@orders": ("main", 7),
        "shop@orders@failed": ("failed", 2),
        "bills.dlq": ("dead-letter", 3),
    }
    assert watch.now().problems == {}


def test_what_changes_is_known_soon(api: API, watch: BrokerWatch) -> None:
    watch.start()
    api.queues = [counted("shop@orders@failed", 5)]
    wait_until(lambda: depths(watch) == {"shop@orders@failed": ("failed", 5)}, "it is known")


def test_a_broker_without_statistics_has_queues_of_unknown_depths_and_that_is_a_problem(
    api: API, watch: BrokerWatch
) -> None:
    api.queues = [
        {"name": "shop@orders@failed"},
        {"name": "shop@orders", "messages_ready": "many"},
    ]
    watch.start()
    assert depths(watch) == {"shop@orders": ("main", None), "shop@orders@failed": ("failed", None)}
    assert "the broker has no statistics" in watch.now().problems[QUEUES]


def test_a_young_queue_that_was_not_counted_yet_is_no_problem(api: API, watch: BrokerWatch) -> None:
    young: dict[str, object] = {"name": "shop@orders@failed", "type": "classic", "arguments": {}}
    api.queues = [young, counted("shop@orders", 3)]
    watch.start()
    assert depths(watch)["shop@orders@failed"] == ("failed", None)
    assert watch.now().problems == {}


def test_an_api_that_fails_leaves_no_old_numbers_and_comes_back(
    api: API, watch: BrokerWatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watch.start()
    api.status = 500
    wait_until(lambda: depths(watch) == {}, "nothing is known")
    assert set(watch.now().problems) == {QUEUES, DEAD_LETTER_QUEUES}
    assert "failed with 500" in watch.now().problems[QUEUES]
    asked = len(api.asked)
    wait_until(lambda: len(api.asked) > asked + 3, "it is asked again")
    api.status = 200
    wait_until(lambda: "shop@orders" in depths(watch), "it is known again")
    said = [one.message for one in caplog.records if one.name == "redrive"]
    assert len(said) == 2
    assert said[0].startswith("the queues are not measured: ")
    assert said[1] == "the queues are measured again"


def test_an_api_that_is_away_at_the_start_is_asked_again(api: API, watch: BrokerWatch) -> None:
    api.status = 503
    watch.start()
    assert QUEUES in watch.now().problems
    api.status = 200
    wait_until(lambda: "shop@orders" in depths(watch), "it is known")


def test_a_user_that_may_not_ask_is_refused_at_the_start(api: API, watch: BrokerWatch) -> None:
    api.status = 401
    with pytest.raises(PermissionDenied, match="give the user the tag"):
        watch.start()


def test_a_virtual_host_that_is_not_there_is_said_at_the_start(
    api: API, watch: BrokerWatch
) -> None:
    api.status = 404
    with pytest.raises(ConfigurationError, match="Check the name and the virtual host"):
        watch.start()


def test_who_may_not_list_bindings_is_told_of_the_queues_all_the_same(
    api: API, watch: BrokerWatch
) -> None:
    api.refused = "bindings"
    watch.start()
    assert depths(watch) == {"shop@orders": ("main", 7), "shop@orders@failed": ("failed", 2)}
    assert set(watch.now().problems) == {DEAD_LETTER_QUEUES}


def test_bindings_are_listed_once_a_minute_and_not_each_time(api: API, watch: BrokerWatch) -> None:
    watch.start()
    asked = len(api.asked)
    wait_until(lambda: len(api.asked) > asked + 5, "it is asked again")
    assert sum("bindings" in path for path in api.asked) == 1


def test_what_is_too_old_is_not_told(watch: BrokerWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watch, "_GRACE_SECONDS", -1e9)
    watch.start()
    assert watch.now().queues == ()
    assert "has not answered for" in watch.now().problems[QUEUES]


@pytest.mark.parametrize(
    "queues",
    [
        ["shop@orders"],
        [{}],
        [None],
        {"a": 1},
        3,
    ],
)
def test_an_answer_that_is_none_of_a_management_api_ends_nothing(
    api: API, watch: BrokerWatch, queues: Any
) -> None:
    good, api.queues = api.queues, queues
    watch.start()
    assert "can't be read" in watch.now().problems[QUEUES]
    api.queues = good
    wait_until(lambda: "shop@orders" in depths(watch), "it is known")
