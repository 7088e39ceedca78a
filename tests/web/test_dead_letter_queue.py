"""A dead-letter queue that redrive did not make, from the overview to the requeue."""

import pytest

from dead_letters import DeadLetters
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import OpenConsole, Opens
from web.test_acting import sum_of

pytestmark = pytest.mark.versions("x-death, which tells the way back")

COUNT = 6
PLACE = {"queue": "undelivered", "literal": "1"}


@pytest.fixture
def letters(rabbitmq_url: str) -> DeadLetters:
    letters = DeadLetters(rabbitmq_url)
    letters.declare()
    letters.fail(COUNT)
    return letters


@pytest.fixture
def console(opens: Opens, letters: DeadLetters) -> OpenConsole:
    console = opens(Permit.REQUEUE)
    console.look(PLACE["queue"], literal="1")
    return console


def begun(console: OpenConsole, **form: str) -> str:
    """The page of a job that a form has begun, once it has ended."""
    answer = console.post("/begin", **PLACE, planned=str(COUNT), reason="fixed", **form)
    assert answer.status_code == 303, answer.text
    id_ = answer.headers["location"].rpartition("=")[2]
    wait_until(lambda: console.get("/progress/job", id=id_).json()["ended"], "it has ended")
    return console.get("/job", id=id_).text


def test_it_is_on_the_overview(console: OpenConsole) -> None:
    wait_until(
        lambda: "/causes?queue=undelivered&amp;literal=1" in console.get("/").text,
        "the broker counts them",
    )
    assert "dead-letter queue</span>" in console.get("/").text


def test_its_plan_sends_each_message_to_the_queue_that_it_failed_in(console: OpenConsole) -> None:
    text = console.get("/plan", **PLACE).text
    assert f"<strong>{COUNT} messages</strong> will go to <strong>orders</strong>" in text
    assert "Consumers without redrive do not report success" in text
    assert "redrive failed requeue --literal undelivered" in text


def test_a_requeue_without_a_canary_sends_all_and_claims_no_success(
    console: OpenConsole, letters: DeadLetters
) -> None:
    page = begun(console, canary="0", stop_at="100")
    assert "done</span>" in page
    assert f"<dt>On the way</dt><dd>{COUNT}</dd>" in page
    assert "<dt>Succeeded</dt><dd>0</dd>" in page
    assert letters.depth("orders") == COUNT


def test_a_canary_that_comes_back_stops_it(console: OpenConsole, letters: DeadLetters) -> None:
    tried: set[str] = set()

    def fails(id_: str) -> bool:
        tried.add(id_)
        return False

    with letters.consumer(fails):
        page = begun(console, canary="2")
        wait_until(lambda: letters.depth() == COUNT, "the canary is back")
    assert "stopped</span>" in page
    # One that is back is enough: the second may not have gone.
    assert 1 <= len(tried) <= 2
    assert sum_of(page)["Not tried"] == COUNT - len(tried)
