"""The acts: a requeue that is planned, begun, watched, stopped and taken up again from pages."""

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from contract.support import Recorder, Service
from redrive import FailedQueue, Message
from redrive.amqp.field_table import FieldValue
from redrive.failures.message.cause import cause_of
from redrive.failures.rehearsal.rehearsal import Rehearsal, Tried
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, fail, failure

REPORT = '{"queue": "%s", "tried": 1, "version": "", "began": "2026-01-01", "results": [%s]}'


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console that may requeue, over a queue that was looked at."""
    console = opens(Permit.REQUEUE)
    console.look()
    return console


@pytest.fixture
def handled(service: Service) -> Iterator[Recorder]:
    """The service, which is mended."""
    recorder = Recorder(lambda message: None)
    with service.subscriber(recorder):
        yield recorder


def group_of(console: OpenConsole, error_type: str) -> str:
    """The group of an error, as the page of the queue links to it."""
    text = console.get("/causes", queue=QUEUE, where=f"error_type = '{error_type}'").text
    found = re.search(r"group=([0-9a-f]{12})", text)
    assert found is not None
    return found[1]


def begun(console: OpenConsole, **form: str) -> str:
    """The id of a job that a form has begun."""
    answer = console.post("/begin", queue=QUEUE, **form)
    assert answer.status_code == 303, answer.text
    return parse_qs(urlsplit(answer.headers["location"]).query)["id"][0]


def wait_for_end(console: OpenConsole, id_: str) -> None:
    wait_until(lambda: console.get("/progress/job", id=id_).json()["ended"], "the job has ended")


def wait_until_all_are_back(service: Service) -> None:
    """What a subscriber has not begun when it stops would be handled by the next one."""
    wait_until(
        lambda: FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW,
        "the canary is back, and the rest never left",
    )


def sum_of(page: str) -> dict[str, int]:
    """The numbers that a job's page shows."""
    return {
        name: int(number.replace(",", ""))
        for name, number in re.findall(r"<dt>([^<]+)</dt><dd[^>]*>([0-9,]+)</dd></div>", page)
    }


def test_a_plan_says_exactly_how_many_go_where_and_what_command_is_the_same(
    console: OpenConsole,
) -> None:
    text = console.get("/plan", queue=QUEUE, group=group_of(console, "KeyError")).text
    assert f"<strong>{LOOKUP} messages</strong> of {LOOKUP + SLOW} will go" in text
    assert "<strong>shop@orders</strong>" in text
    assert "redrive failed requeue shop@orders --group" in text
    assert "redrive failed try shop@orders --group" in text
    assert "--canary 20 --stop-at 5% --rate 200/s" in text


def test_a_rehearsal_leads_to_the_plan_of_what_would_succeed(
    console: OpenConsole, service: Service
) -> None:
    good, *_ = service.failed()
    tried = [
        Tried(good.failure_id, None, cause_of(good), None),
        Tried("it's another", None, cause_of(good), None),
    ]
    found = Rehearsal(QUEUE, "shop:app", 2, "1.4.2", tried=tried)
    asks = parse_qs(urlsplit(found.plan_link("", literal=False)).query)
    text = console.get("/plan", **{name: value for name, (value,) in asks.items()}).text
    assert f"<strong>1 message</strong> of {LOOKUP + SLOW} will go" in text
    assert "By a report, rehearsed with 1.4.2 at" in text
    assert "2 of 2 would succeed" in text


def test_the_plan_takes_the_report_of_a_rehearsal(console: OpenConsole, service: Service) -> None:
    good, bad, *_ = service.failed()
    tried = [
        Tried(good.failure_id, None, cause_of(good), None),
        Tried(bad.failure_id, None, cause_of(bad), cause_of(bad)),
    ]
    found = Rehearsal(QUEUE, "shop:app", 2, "1.4.2", tried=tried)
    page = console.post("/rehearsed", queue=QUEUE, report=json.dumps(found.as_json()))
    assert page.status_code == 200
    assert f"<strong>1 message</strong> of {LOOKUP + SLOW} will go" in page.text
    assert "By a report, rehearsed with 1.4.2 at" in page.text
    assert "1 of 2 would succeed" in page.text


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        ("", "no report of a rehearsal"),
        ("[" * 50_000, "no report of a rehearsal"),
        (REPORT % ("others", '{"failure_id": "<b>", "result": "succeeds"}'), "is of the queue"),
        (REPORT % (QUEUE, ""), "would succeed"),
    ],
)
def test_what_is_no_report_of_this_queue_is_refused(
    console: OpenConsole, report: str, problem: str
) -> None:
    page = console.post("/rehearsed", queue=QUEUE, report=report)
    assert page.status_code == 400
    assert problem in page.text


def test_a_plan_says_what_is_left_out_and_why(opens: Opens, service: Service) -> None:
    often: dict[str, FieldValue] = {"redrive-count": 9}
    fail(service, failure("often", "KeyError", "'x'", more=often))
    console = opens(Permit.REQUEUE)
    console.look()
    text = console.get("/plan", queue=QUEUE).text
    assert "1 message not included: requeued 5 times before" in text


def test_a_plan_says_that_nobody_consumes(console: OpenConsole) -> None:
    assert "messages will not be handled" in console.get("/plan", queue=QUEUE).text


def test_a_plan_touches_nothing(console: OpenConsole, service: Service) -> None:
    console.get("/plan", queue=QUEUE)
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW


def test_one_cause_is_requeued_and_its_numbers_add_up(
    console: OpenConsole, service: Service, handled: Recorder
) -> None:
    group = group_of(console, "KeyError")
    id_ = begun(console, group=group, planned=str(LOOKUP), reason="fixed in 2.3.1", canary="3")
    wait_for_end(console, id_)
    handled.wait_for_handled({f"sku-{number}" for number in range(LOOKUP)}, 60)
    wait_until(
        lambda: (
            console.post("/outcome", id=id_).status_code == 303
            and sum_of(console.get("/job", id=id_).text)["Succeeded"] == LOOKUP
        ),
        "all are known to have succeeded",
    )
    page = console.get("/job", id=id_).text
    assert sum_of(page) == {
        "Planned": LOOKUP,
        "Succeeded": LOOKUP,
        "Failed again": 0,
        "On the way": 0,
        "Could not be sent": 0,
        "Not tried": 0,
    }
    assert "fixed in 2.3.1" in page
    assert "do not add up" not in page
    assert FailedQueue(service.url, QUEUE).depth() == SLOW


def test_after_a_job_a_page_shows_what_is_left_without_another_look(
    console: OpenConsole, handled: Recorder
) -> None:
    group = group_of(console, "KeyError")
    id_ = begun(console, group=group, planned=str(LOOKUP), reason="fixed in 2.3.1", canary="3")
    wait_for_end(console, id_)
    text = console.get("/causes", queue=QUEUE).text
    assert f"{SLOW} messages in 1 cause" in text
    assert f"{LOOKUP} gone since" in text
    assert console.get("/cause", queue=QUEUE, group=group).status_code == 404


def test_a_canary_that_fails_stops_the_job_and_nothing_else_goes(
    console: OpenConsole, service: Service
) -> None:
    def fails(_: Message) -> None:
        raise ValueError("still broken")

    broken = Recorder(fails)
    with service.subscriber(broken):
        group = group_of(console, "KeyError")
        id_ = begun(console, group=group, planned=str(LOOKUP), reason="a try", canary="2")
        wait_for_end(console, id_)
        wait_until_all_are_back(service)
    page = console.get("/job", id=id_).text
    assert "stopped</span>" in page
    # One that is back is enough: the second may not have gone.
    assert 1 <= len(broken.tried) <= 2
    assert sum_of(page)["Not tried"] == LOOKUP - len(broken.tried)
    assert f"redrive jobs resume {id_}" in page


def test_a_job_that_stopped_is_taken_up_again_once_the_service_is_mended(
    console: OpenConsole, service: Service
) -> None:
    def fails(_: Message) -> None:
        raise ValueError("still broken")

    group = group_of(console, "KeyError")
    broken = Recorder(fails)
    with service.subscriber(broken):
        id_ = begun(console, group=group, planned=str(LOOKUP), reason="a try", canary="2")
        wait_for_end(console, id_)
        wait_until_all_are_back(service)
    mended = Recorder(lambda message: None)
    with service.subscriber(mended):
        assert console.post("/resume", id=id_).status_code == 303
        wait_for_end(console, id_)
        # The canary has failed for another cause by now.
        left = LOOKUP - len(broken.tried)
        wait_until(lambda: len(mended.handled) == left, "the rest is handled")
    page = console.get("/job", id=id_).text
    assert "done</span>" in page
    said = re.findall(r"</time> <strong>(.*?)</strong>", page)
    happened = [one.partition(":")[0] for one in said]
    assert [one for one in happened if one != "canary sent"] == [
        *("started", "stopped", "resumed", "done")
    ]
    assert "in 2 runs" in page


def test_a_job_is_stopped_and_what_it_has_not_sent_stays(
    console: OpenConsole, service: Service
) -> None:
    id_ = begun(
        console, planned=str(LOOKUP + SLOW), reason="slowly", canary="0", rate="1", stop_at="100"
    )
    wait_until(
        lambda: console.get("/progress/job", id=id_).json()["values"]["sent"] != "0",
        "it has sent something",
    )
    assert console.post("/stop", id=id_).status_code == 303
    wait_for_end(console, id_)
    page = console.get("/job", id=id_).text
    assert "interrupted</span>" in page
    sent = sum_of(page)["On the way"]
    assert 0 < sent < LOOKUP + SLOW
    wait_until(
        lambda: FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW - sent,
        "the broker has returned what it held for the job",
    )


def test_a_second_job_of_a_queue_is_refused_and_says_which_runs(console: OpenConsole) -> None:
    form = {"planned": str(LOOKUP + SLOW), "reason": "x", "canary": "0", "stop_at": "100"}
    id_ = begun(console, **form, rate="1")
    wait_until(
        lambda: console.get("/progress/job", id=id_).json()["values"]["sent"] != "0",
        "it has sent something",
    )
    answer = console.post("/begin", queue=QUEUE, **form)
    assert answer.status_code == 400
    assert f"job {id_} of this queue is running, begun by" in answer.text
    console.post("/stop", id=id_)
    wait_for_end(console, id_)


def test_what_can_not_be_begun_is_said_and_nothing_goes(
    console: OpenConsole, service: Service
) -> None:
    cases: tuple[tuple[dict[str, str], str], ...] = (
        ({"planned": "17"}, "no reason given"),
        ({"planned": "16", "reason": "x"}, "the plan has changed"),
        ({"reason": "x"}, "the plan has changed"),
        ({"planned": "17", "reason": "x", "canary": "many"}, "canary is &#39;many&#39;"),
        ({"planned": "17", "reason": "x", "stop_at": "101"}, "from 0 to 100"),
        ({"planned": "17", "reason": "x", "where": "no such"}, ""),
        ({"planned": "17", "reason": "x", "to": "no-such-queue"}, "there is no queue"),
        ({"planned": "17", "reason": "x", "patch": "{}"}, "does not allow edits to bodies"),
    )
    for form, says in cases:
        answer = console.post("/begin", queue=QUEUE, **form)
        assert answer.status_code == 400, form
        assert says in answer.text
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW


@pytest.mark.nightly("fewer are requeued each time")
def test_more_than_a_thousand_are_requeued_only_if_their_number_is_typed(
    opens: Opens, service: Service
) -> None:
    fail(service, *(failure(f"many-{number}", "OSError", "x") for number in range(1001)))
    console = opens(Permit.REQUEUE)
    console.look()
    form = {"where": "error_type = 'OSError'", "planned": "1001", "reason": "x", "canary": "0"}
    assert "Type 1001 to confirm" in console.get("/plan", queue=QUEUE, where=form["where"]).text
    for typed in ({}, {"typed": "1000"}):
        answer = console.post("/begin", queue=QUEUE, **form, **typed)
        assert answer.status_code == 400
        assert "but you did not type 1001" in answer.text
    wait_for_end(console, begun(console, **form, typed="1,001", rate="0", stop_at="100"))
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW


def test_a_patch_shows_the_difference_and_changes_what_is_sent(
    opens: Opens, service: Service, handled: Recorder
) -> None:
    console = opens(Permit.REQUEUE, Permit.EDIT)
    console.look()
    form = {"where": "failure_id = 'sku-1'", "patch": '{"currency": "EUR"}'}
    text = console.get("/plan", queue=QUEUE, **form).text
    assert "1 of 1 body will be changed" in text
    assert "currency" in text
    wait_for_end(
        console, begun(console, **form, planned="1", typed="1", reason="no currency", canary="1")
    )
    handled.wait_for_handled({"sku-1"}, 60)
    assert b"EUR" in handled.attempts[-1].body


def test_the_journal_has_who_did_what_and_why(console: OpenConsole, handled: Recorder) -> None:
    assert "No jobs yet" in console.get("/journal").text
    id_ = begun(console, planned=str(LOOKUP + SLOW), reason="after the fix", canary="1")
    wait_for_end(console, id_)
    assert "after the fix" in console.get("/journal").text
    assert id_[:8] in console.get("/journal", word="the fix").text
    assert "No jobs match" in console.get("/journal", word="another").text


def test_a_job_that_there_is_not_is_said(console: OpenConsole) -> None:
    answer = console.get("/job", id="no-such-job")
    assert answer.status_code == 400
    assert "there is no job" in answer.text
