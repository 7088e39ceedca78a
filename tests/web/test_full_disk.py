"""A console whose disk is full, really: looks, what is followed, jobs in the middle of a run and
pages. What is not kept is said, all else goes on, and nothing is lost."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_support import run_redrive
from contract.plain import drain
from contract.support import Service
from redrive import FailedQueue
from redrive.web.console_settings import Permit
from redrive.web.page_request import QueuePlace
from small_disk import SmallDisk, small_disk
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, failure, publish
from web.test_acting import begun, wait_for_end
from web.test_jobs import SLOWLY, wait_until_it_sends

ALL = LOOKUP + SLOW
PAGES = ("/", "/causes", "/plan", "/query", "/journal", "/store", "/me")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk with the index and the local journal."""
    with small_disk(tmp_path / "state") as disk:
        yield disk


@pytest.fixture
def console(disk: SmallDisk, opens: Opens, service: Service) -> OpenConsole:
    """A console that has looked, while there was room."""
    console = opens(Permit.REQUEUE)
    console.look()
    wait_until(
        lambda: "New failures appear automatically" in causes_of(console), "what fails is followed"
    )
    return console


def causes_of(console: OpenConsole) -> str:
    console.get("/live", queue=QUEUE)
    return console.get("/causes", queue=QUEUE).text


def in_failed_queue(url: str) -> list[str]:
    return sorted(str(one.message_id) for one in FailedQueue(url, QUEUE).browse())


def expected(*more: str) -> list[str]:
    lookup = [f"sku-{number}" for number in range(LOOKUP)]
    return sorted([*lookup, *(f"slow-{number}" for number in range(SLOW)), *more])


def look_again(console: OpenConsole) -> str:
    """Looks, and returns what kept it from being known; empty where nothing did."""
    assert console.post("/look", queue=QUEUE).status_code == 303
    under_way = console.server.console.context.looks.look_under_way(QueuePlace(QUEUE))
    assert under_way is not None
    wait_until(lambda: under_way.has_ended, "the look has ended")
    return under_way.problem


def test_every_page_goes_on_with_what_was_known_when_the_disk_is_full(
    console: OpenConsole, disk: SmallDisk, service: Service
) -> None:
    disk.fill()
    console.server.console.context.journal_cache.forget()
    for path in PAGES:
        answer = console.get(path, queue=QUEUE) if path in ("/causes", "/plan") else None
        answer = answer or console.get(path)
        assert answer.status_code == 200, (path, answer.text)
    assert f"{ALL} messages" in causes_of(console)
    assert in_failed_queue(service.url) == expected()


def test_a_look_that_can_not_be_kept_says_so_and_what_was_known_is_still_shown(
    console: OpenConsole, disk: SmallDisk, service: Service
) -> None:
    disk.fill()
    assert "nothing was kept" in look_again(console)
    page = causes_of(console)
    assert "nothing was kept" in page
    assert f"{ALL} messages" in page
    assert in_failed_queue(service.url) == expected()
    disk.empty()
    assert not look_again(console)
    assert "nothing was kept" not in causes_of(console)


def test_what_fails_while_the_disk_is_full_is_said_not_to_be_followed_and_is_there_afterwards(
    console: OpenConsole, disk: SmallDisk, service: Service
) -> None:
    disk.fill()
    publish(service, *(failure(f"new-{number}", "OSError", "no room") for number in range(3)))
    page = wait_until(
        lambda: (
            text
            if "New failures do not appear automatically" in (text := causes_of(console))
            else ""
        ),
        "it is said",
    )
    assert "New failures appear automatically" not in page
    assert "OSError" not in page
    assert in_failed_queue(service.url) == expected("new-0", "new-1", "new-2")
    disk.empty()
    wait_until(lambda: "OSError" in causes_of(console), "they are shown")
    page = causes_of(console)
    assert f"{ALL + 3} messages" in page
    assert "New failures appear automatically" in page


@pytest.mark.nightly("a job of the command line is stopped by one each time")
def test_a_job_in_mid_run_stops_before_anything_goes_that_is_not_written_down(
    console: OpenConsole, disk: SmallDisk, service: Service
) -> None:
    id_ = begun(console, **SLOWLY)
    wait_until_it_sends(console, id_)
    disk.fill()
    wait_for_end(console, id_)
    page = console.get("/job", id=id_)
    assert page.status_code == 200, page.text
    assert "can&#39;t be written" in page.text
    refused = console.post("/resume", id=id_)
    if refused.status_code == 303:
        wait_for_end(console, id_)
        assert "can&#39;t be written" in console.get("/job", id=id_).text
    disk.empty()
    assert console.post("/resume", id=id_).status_code == 303
    wait_for_end(console, id_)
    proof = console.get("/proof", id=id_, format="json").json()
    assert proof["state"] == "done"
    assert proof["adds_up"]
    came = Counter(properties.message_id or "" for properties, _ in drain(service.url, QUEUE))
    assert sorted(came) == expected()
    assert {one for one, count in came.items() if count > 1} <= set(proof["duplicate_ids"])
    assert FailedQueue(service.url, QUEUE).depth() == 0


def test_a_job_is_not_begun_on_a_disk_that_is_full(
    console: OpenConsole, disk: SmallDisk, service: Service
) -> None:
    disk.fill()
    answer = console.post("/begin", queue=QUEUE, **SLOWLY)
    if answer.status_code == 303:
        id_ = answer.headers["location"].rpartition("=")[2]
        wait_for_end(console, id_)
        own = console.server.console.context.worker.job(id_)
        assert own is not None
        assert "Make room on its disk" in own.problem
    else:
        assert "Make room on its disk" in answer.text
    assert in_failed_queue(service.url) == expected()


def test_a_requeue_of_the_command_line_stops_and_goes_on_once_there_is_room(
    disk: SmallDisk, service: Service
) -> None:
    state = {"XDG_STATE_HOME": str(disk.folder)}
    assert run_redrive("jobs", "list", url=service.url, environment=state).code == 0
    disk.fill()
    command = ("failed", "requeue", QUEUE, "--yes", "--reason", "fixed")
    refused = run_redrive(*command, url=service.url, environment=state)
    assert refused.code != 0
    assert "Make room on its disk" in refused.err
    assert "Traceback" not in refused.err
    assert in_failed_queue(service.url) == expected()
    groups = run_redrive("failed", "groups", QUEUE, url=service.url, environment=state)
    assert groups.code == 0, groups.err
    assert "KeyError" in groups.out
    disk.empty()
    done = run_redrive(*command, url=service.url, environment=state)
    assert done.code == 0, done.err
    came = Counter(properties.message_id or "" for properties, _ in drain(service.url, QUEUE))
    assert sorted(came.elements()) == expected()
