"""A console's job while its broker restarts, its journal is deleted or its disk is full: nothing is
lost, and what the page says is true."""

import itertools
import shutil
import subprocess
import threading
from collections import Counter

import pytest

from cli_support import redrive
from contract.plain import drain, plain_channel
from contract.support import Service
from redrive import FailedQueue
from redrive.testing import Broker
from redrive.topology.names import JOURNAL
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, failure, publish
from web.test_acting import begun, wait_for_end
from web.test_jobs import SLOWLY, wait_until_it_sends

ALL = LOOKUP + SLOW
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    console = opens(Permit.REQUEUE)
    console.look()
    return console


def came_to(url: str) -> Counter[str]:
    return Counter(properties.message_id or "" for properties, _ in drain(url, QUEUE))


def check_nothing_is_lost(console: OpenConsole, url: str, id_: str) -> None:
    """Resumes the job if it did not end, and counts by id."""
    proof = console.get("/proof", id=id_, format="json").json()
    if proof["state"] != "done":
        assert console.post("/resume", id=id_).status_code == 303
        wait_for_end(console, id_)
        proof = console.get("/proof", id=id_, format="json").json()
    came = came_to(url)
    assert len(came) == ALL
    assert {one for one, count in came.items() if count > 1} <= set(proof["duplicate_ids"])
    assert proof["state"] == "done"
    assert proof["adds_up"]
    assert FailedQueue(url, QUEUE).depth() == 0


@pytest.mark.nightly("restarts a broker under a job")
def test_a_broker_that_restarts_in_mid_job_costs_nothing(
    rabbitmq_broker: Broker, console: OpenConsole, service: Service
) -> None:
    id_ = begun(console, **SLOWLY)
    wait_until_it_sends(console, id_)
    rabbitmq_broker.restart()
    wait_for_end(console, id_)
    check_nothing_is_lost(console, service.url, id_)


@pytest.mark.nightly("the one above restarts it, too")
def test_a_page_that_follows_a_job_is_answered_while_the_broker_restarts_and_hears_of_its_end(
    rabbitmq_broker: Broker, console: OpenConsole, service: Service
) -> None:
    id_ = begun(console, **SLOWLY)
    wait_until_it_sends(console, id_)
    restart = threading.Thread(target=rabbitmq_broker.restart)
    restart.start()
    answers = []

    def has_ended() -> bool:
        answer = console.get("/progress/job", id=id_)
        answers.append(answer.status_code)
        return bool(answer.json()["ended"])

    wait_until(has_ended, "the page hears that it has ended", 200)
    restart.join()
    assert set(answers) == {200}
    check_nothing_is_lost(console, service.url, id_)


def test_a_history_that_is_deleted_while_its_page_is_shown_is_followed_by_a_tap(
    console: OpenConsole, service: Service
) -> None:
    made = redrive("topology", "history", url=service.url)
    assert made.code == 0, made.err
    page = {"queue": QUEUE}
    console.get("/live", **page)
    wait_until(
        lambda: "New failures appear automatically" in console.get("/causes", **page).text,
        "it is followed",
    )
    with plain_channel(service.url) as channel:
        channel.queue_delete("master.failed.history")

    def a_new_one_is_seen() -> bool:
        number = next(numbers)
        publish(service, failure(f"new-{number}", "OSError", "after the history"))
        console.get("/live", **page)
        return "OSError" in console.get("/causes", **page).text

    numbers = itertools.count()
    wait_until(a_new_one_is_seen, "what fails is followed again")
    assert "New failures appear automatically" in console.get("/causes", **page).text


@pytest.mark.nightly("a job beside another console is tried each time")
def test_a_journal_that_is_deleted_in_mid_job_leaves_the_numbers_true(
    console: OpenConsole, service: Service
) -> None:
    id_ = begun(console, **SLOWLY)
    wait_until_it_sends(console, id_)
    with plain_channel(service.url) as channel:
        channel.queue_delete(JOURNAL)
    wait_for_end(console, id_)
    check_nothing_is_lost(console, service.url, id_)


@pytest.mark.nightly("test_full_disk fills one each time")
def test_a_full_disk_stops_a_job_before_anything_goes_that_is_not_written_down(
    opens: Opens, service: Service
) -> None:
    console = opens(Permit.REQUEUE)
    console.look()
    id_ = begun(console, **SLOWLY)
    wait_until_it_sends(console, id_)
    worker = console.server.console.context.worker.process
    assert worker is not None
    # From now on the process of its jobs can't make a file longer than it is.
    assert shutil.which("prlimit") is not None
    subprocess.run(["prlimit", f"--pid={worker}", "--fsize=0:unlimited"], check=True)
    wait_for_end(console, id_)
    page = console.get("/job", id=id_).text
    assert "can&#39;t be written" in page
    check_nothing_is_lost(console, service.url, id_)
