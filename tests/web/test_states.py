"""Each state that a queue, a broker or a job can be in: its page says what is so, since when, and
what to do."""

from datetime import UTC, datetime, timedelta

import pytest

from contract.administration import Administration
from contract.support import Service, retrying
from redrive.errors import BrokerUnavailable
from redrive.failures.queue.follower import Follower
from redrive.web.auth.access_config import AccessConfig, Login
from redrive.web.console_settings import Permit
from redrive.web.look_cache import RunningLook
from redrive.web.page_request import QueuePlace
from redrive.web.queue_states import QueueStates
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, fail, failure
from web.test_jobs import asked_for
from web.test_login import log_in

ALL, HOUR = str(LOOKUP + SLOW), timedelta(hours=1)
EMPTY, NONE = "shop@empty", "shop@nothing"


def check_says(console: OpenConsole, path: str, queue: str, *parts: str) -> None:
    """Waits until a page has all of them: what AMQP tells comes a moment after the first page."""
    asked = {"queue": queue} if queue else {}

    def missing() -> list[str]:
        text = " ".join(console.get(path, **asked).text.split())
        return [part for part in parts if part not in text]

    wait_until(lambda: not missing(), f"{path} of {queue or 'all'} says {parts}")


def test_every_state_says_what_is_so_since_when_and_what_to_do(
    opens: Opens,
    service: Service,
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Service(rabbitmq_url, queue=EMPTY, retry=retrying(0)).declare()
    console = opens(Permit.REQUEUE, Permit.PAUSE)
    looks, place = console.server.console.context.looks, QueuePlace(QUEUE)

    # no queue, an empty one, and one that nobody has scanned
    check_says(console, "/causes", NONE, "there is no queue", "Check the name of the main queue")
    check_says(
        console, "/causes", EMPTY, "not been scanned yet", "is empty: there is nothing to scan"
    )
    check_says(
        console, "/causes", QUEUE, "not been scanned yet", f"has {ALL} now", "Scan the queue<"
    )

    # an empty queue that was scanned
    console.look(EMPTY)
    check_says(console, "/causes", EMPTY, "was empty when it was scanned", "<time", "Refresh")

    # a look under way, one that failed, and one that is out of date
    console.look()
    done = looks.look_under_way(place)
    looks._looks[place] = running = RunningLook(place, begun_at=datetime.now(UTC) - HOUR)
    check_says(console, "/causes", QUEUE, "Scanning the queue", "started <time", "1 hour ago")
    running.note_problem("the connection was lost")
    running.end()
    check_says(console, "/causes", QUEUE, "was started <time", "failed: the connection was", "Refr")
    assert done is not None
    looks._looks[place] = done
    fail(service, failure("late", "KeyError", "'late'"))  # a restore drops what is known
    check_says(console, "/causes", QUEUE, "The scan of <time", "is out of date", "Scan the queue<")
    console.look()

    # an approval that waits, and consumers that are paused
    id_ = asked_for(console, planned=str(LOOKUP + SLOW + 1), reason="fixed", canary="0")
    console.server.console.context.journal_cache.forget()
    waits = ("has waited for approval since", "somebody else can approve it on its page", id_[:8])
    check_says(console, "/", "", *waits)
    check_says(console, "/plan", QUEUE, *waits)
    assert console.post("/pause", queue=QUEUE, reason="a migration").status_code == 303
    says = ("is paused by guest", "since 20", "a migration")
    check_says(console, "/causes", QUEUE, *says, "Resume the subscription")
    check_says(console, "/plan", QUEUE, *says, f"redrive resume {QUEUE}")

    # no rights
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    nobody = administration.unique("nobody")
    with administration.user(nobody, read="^$"):
        other = opens(access=AccessConfig(login=Login.BROKER))
        assert log_in(other, nobody, "s3cret").status_code == 303
        refused = other.get("/causes", queue=QUEUE)
    assert (refused.status_code, "may not look in" in refused.text) == (403, True)
    assert "the command that grants it" in refused.text

    # a broker that is away, and a management API
    check_says(console, "/", "", QUEUE)
    monkeypatch.setattr(Follower, "away_since", datetime.now(UTC) - HOUR)
    monkeypatch.setattr(Follower, "away_because", "no route to host")
    away = ("unreachable since 20", "no route to host", "it updates once the broker is back")
    check_says(console, "/causes", QUEUE, *away)

    def unanswered(_: QueueStates) -> None:
        raise BrokerUnavailable("http://broker:15672", "no route to host")

    monkeypatch.setattr(QueueStates, "_asked", unanswered)
    listed = ("did not list the queues: they were listed last <time", "Open a queue by name")
    check_says(console, "/", "", *listed, "no route to host", "Check that RabbitMQ runs there")
