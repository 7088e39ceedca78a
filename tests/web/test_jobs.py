"""Jobs from pages: in a process of their own, one at a time, approved by somebody else, proved."""

import csv
import html
import io
import json
import os
import re
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cli_support import Outcome, run_redrive
from contract.administration import Administration
from contract.plain import drain
from contract.support import Recorder, Service
from redrive import FailedQueue, Message
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal import Journal
from redrive.pubsub.url import BrokerURL
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, fail, failure
from web.test_acting import begun, group_of, sum_of, wait_for_end

ALL = LOOKUP + SLOW
SLOWLY = {"planned": str(ALL), "reason": "slowly", "canary": "0", "stop_at": "100", "rate": "1"}
AS_CONSUMED = {**SLOWLY, "rate": "0", "pace": "5"}
"""A job that sends five, and more once they are consumed: it runs until somebody does so."""


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    console = opens(Permit.REQUEUE)
    console.look()
    return console


def wait_until_it_sends(console: OpenConsole, id_: str) -> None:
    wait_until(
        lambda: console.get("/progress/job", id=id_).json()["values"]["sent"] != "0",
        "it has sent something",
    )


def handled_by(url: str) -> Counter[str]:
    """What has come to the main queue, by its id."""
    return Counter(properties.message_id or "" for properties, _ in drain(url, QUEUE))


def consume_to_the_end(console: OpenConsole, service: Service, id_: str) -> Counter[str]:
    """Consumes what a job sends until it has ended; what was handled, by its id."""
    recorder = Recorder()
    with service.subscriber(recorder):
        wait_for_end(console, id_)
        wait_until(lambda: len(recorder.handled) == ALL, "all are handled")
    return recorder.handled


@pytest.mark.nightly("a console is killed each time")
def test_a_worker_that_is_killed_loses_nothing_and_every_duplicate_is_named(
    console: OpenConsole, service: Service
) -> None:
    id_ = begun(console, **SLOWLY)
    wait_until_it_sends(console, id_)
    worker = console.server.console.context.worker.process
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    wait_for_end(console, id_)
    assert "killed by signal 9" in console.get("/job", id=id_).text
    wait_until(
        lambda: "interrupted</span>" in console.get("/job", id=id_).text,
        "the broker has seen that it is gone",
    )
    assert console.post("/resume", id=id_).status_code == 303
    wait_for_end(console, id_)
    proof = console.get("/proof", id=id_, format="json").json()
    assert proof["state"] == "done"
    assert proof["adds_up"]
    came = handled_by(service.url)
    expected = {f"sku-{number}" for number in range(LOOKUP)}
    assert came.keys() == expected | {f"slow-{number}" for number in range(SLOW)}
    twice = {one for one, count in came.items() if count > 1}
    assert twice <= set(proof["duplicate_ids"])
    assert FailedQueue(service.url, QUEUE).depth() == 0


def test_two_consoles_never_send_a_message_twice_and_the_second_is_told_who_began(
    console: OpenConsole, opens: Opens, service: Service
) -> None:
    second = opens(Permit.REQUEUE)
    second.look()
    id_ = begun(console, **AS_CONSUMED)
    wait_until_it_sends(console, id_)
    answer = second.post("/begin", queue=QUEUE, **AS_CONSUMED)
    assert answer.status_code == 400
    assert f"job {id_} of this queue is running, begun by" in answer.text
    assert f"{ALL} messages, because: slowly" in answer.text
    assert set(consume_to_the_end(console, service, id_).values()) == {1}


@pytest.mark.nightly("a console is killed each time")
def test_a_command_line_beside_a_console_is_told_who_began_and_sends_nothing_twice(
    console: OpenConsole, service: Service
) -> None:
    id_ = begun(console, **SLOWLY)
    wait_until_it_sends(console, id_)
    beside = run_redrive("failed", "requeue", QUEUE, "--limit", "100", "--yes", url=service.url)
    assert beside.code == 0, beside.err
    wait_for_end(console, id_)
    came = handled_by(service.url)
    assert len(came) == ALL
    assert set(came.values()) == {1}


def test_the_messages_of_a_job_are_listed_with_what_became_of_them(
    console: OpenConsole, service: Service
) -> None:
    def fails(message: Message) -> None:
        if str(message.message_id).startswith("slow"):
            raise ValueError("still broken")

    with service.subscriber(Recorder(fails)):
        id_ = begun(console, planned=str(ALL), reason="fixed", canary="0", stop_at="100")
        wait_for_end(console, id_)

        def all_is_known() -> bool:
            found = sum_of(console.get("/job", id=id_).text)
            return (found["Succeeded"], found["Failed again"]) == (LOOKUP, SLOW)

        wait_until(all_is_known, "what became of each is known")
    console.look()
    answer = console.get("/job/messages", id=id_, format="json")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    link = re.findall(
        r'href="([^"]*)">See those that failed again', console.get("/job", id=id_).text
    )[0]
    assert f"{SLOW} messages in 1 cause match" in console.get(html.unescape(link)).text
    slow = [f"slow-{number}" for number in range(SLOW)]
    assert sorted(one["message_id"] for one in told["messages"]) == slow
    assert {one["outcome"] for one in told["messages"]} == {"failed again"}
    assert {one["error_type"] for one in told["messages"]} == {"ValueError"}
    assert told["sum"]["succeeded"] == LOOKUP
    answer = console.get("/job/messages", id=id_, format="csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="messages.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert sorted(one["message_id"] for one in rows) == slow


def test_messages_that_nobody_has_looked_for_are_no_empty_list(
    console: OpenConsole, opens: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = begun(console, planned=str(ALL), reason="fixed", canary="0", stop_at="100")
    wait_for_end(console, id_)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    answer = opens().get("/job/messages", id=id_, format="csv")
    assert answer.status_code == 400
    assert "is not known without a scan of the queue" in answer.text


def test_a_job_goes_on_when_its_page_is_closed(console: OpenConsole, service: Service) -> None:
    id_ = begun(console, **{**SLOWLY, "rate": "20"})
    console.client.close()
    worker = console.server.console.context.worker

    def has_ended() -> bool:
        job = worker.job(id_)
        return job is not None and job.has_ended

    wait_until(has_ended, "it has ended")
    assert len(handled_by(service.url)) == ALL


def test_outcomes_are_written_down_without_anybody_asking(
    console: OpenConsole, service: Service
) -> None:
    with service.subscriber(Recorder()):
        id_ = begun(console, planned=str(ALL), reason="fixed", canary="2")
        wait_for_end(console, id_)
        wait_until(
            lambda: sum_of(console.get("/job", id=id_).text)["Succeeded"] == ALL,
            "all are known to have succeeded",
        )


def test_while_a_job_runs_its_page_has_what_failed_again_by_cause(
    opens: Opens, service: Service
) -> None:
    def fails(_: object) -> None:
        raise LookupError("still broken")

    fail(service, *(failure(f"more-{number}", "OSError", "x") for number in range(100)))
    console = opens(Permit.REQUEUE)
    console.look()
    # No share to stop at and no canary: then nothing is watched. A share that never stops is.
    form = {**SLOWLY, "planned": str(ALL + 100), "rate": "20", "stop_at": "99"}
    with service.subscriber(Recorder(fails)):
        id_ = begun(console, **form)
        seen = wait_until(
            lambda: console.get("/progress/job", id=id_).json().get("values", {}).get("causes"),
            "what failed again is seen",
        )
        console.post("/stop", id=id_)
        wait_for_end(console, id_)
    assert "LookupError: still broken" in seen


def asked_for(console: OpenConsole, **form: str) -> str:
    answer = console.post("/ask", queue=QUEUE, **form)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"].rpartition("=")[2])


def approved(id_: str, url: str, digest: str) -> Outcome:
    """What the command line says that approves a job of this digest."""
    return run_redrive("jobs", "approve", id_, "--digest", digest, "--yes", url=url)


def digest_of(id_: str, url: str) -> str:
    """What the command line shows for what a job would send."""
    return str(run_redrive("jobs", "show", id_, "--output", "json", url=url).json()["digest"])


@pytest.fixture
def other_user(rabbitmq_url: str, rabbitmq_management_url: str) -> Iterator[str]:
    """The broker's address for somebody else."""
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    with administration.user(administration.unique("second")) as address:
        yield address


def test_whoever_asked_can_not_approve_and_somebody_else_can(
    console: OpenConsole, service: Service, other_user: str
) -> None:
    group = group_of(console, "KeyError")
    id_ = asked_for(console, group=group, planned=str(LOOKUP), reason="fixed", canary="0")
    assert "waiting for approval" in console.get("/job", id=id_).text
    refused = console.post("/approve", id=id_)
    assert refused.status_code == 400
    assert "approve it" in refused.text
    assert console.post("/resume", id=id_).status_code == 400
    shown = run_redrive("jobs", "list", url=other_user)
    assert "asked" in shown.out
    digest = digest_of(id_, other_user)
    assert approved(id_, service.url, digest).code == 2
    unseen = run_redrive("jobs", "approve", id_, "--yes", url=other_user)
    assert (unseen.code, "approve what nobody has seen" in unseen.err) == (2, True)
    done = approved(id_, other_user, digest)
    assert done.code == 0, done.err
    assert len(handled_by(service.url)) == LOOKUP
    proof = console.get("/proof", id=id_, format="text").text
    assert "asked for by" in proof
    assert "approved by" in proof


def test_what_was_not_asked_for_is_not_approved(
    console: OpenConsole, service: Service, other_user: str
) -> None:
    id_ = asked_for(console, planned=str(ALL), reason="fixed", canary="0")
    FailedQueue(service.url, QUEUE).discard("failure_id = 'sku-1'")
    fail(service, failure("another", "KeyError", "'x'"))
    refused = approved(id_, other_user, digest_of(id_, other_user))
    assert refused.code == 2
    assert "the queue has changed since" in refused.err
    assert FailedQueue(service.url, QUEUE).depth() == ALL
    assert "waiting for approval" in console.get("/job", id=id_).text


def test_the_journal_lists_what_waits_for_approval_and_offers_it_to_others_alone(
    console: OpenConsole,
) -> None:
    assert "Waiting for approval" not in console.get("/journal").text
    id_ = asked_for(console, planned=str(ALL), reason="fixed")
    text = console.get("/journal").text
    assert "Waiting for approval" in text
    assert f"<strong>{ALL} messages</strong> of {QUEUE}, fixed" in text
    assert "somebody else must approve" in text
    assert "Approve and start" not in text
    assert console.post("/decline", id=id_, reason="too many").status_code == 303
    assert "Waiting for approval" not in console.get("/journal").text
    assert "too many" in console.get("/job", id=id_).text


def test_a_plan_tells_of_a_job_of_its_queue_that_could_be_resumed(console: OpenConsole) -> None:
    assert "You can resume it" not in console.get("/plan", queue=QUEUE).text
    id_ = begun(console, **AS_CONSUMED)
    wait_until_it_sends(console, id_)
    console.post("/stop", id=id_)
    wait_for_end(console, id_)
    console.server.console.context.journal_cache.forget()
    text = console.get("/plan", queue=QUEUE).text
    assert f'/job?id={id_}">Job {id_[:8]}</a> of this queue was interrupted' in text


def test_a_job_that_was_declined_is_never_run(
    console: OpenConsole, service: Service, other_user: str
) -> None:
    id_ = asked_for(console, planned=str(ALL), reason="fixed")
    assert console.post("/decline", id=id_).status_code == 303
    assert "declined" in console.get("/job", id=id_).text
    assert approved(id_, other_user, digest_of(id_, other_user)).code == 2
    assert FailedQueue(service.url, QUEUE).depth() == ALL


def test_somebody_else_declines_by_the_command_line_that_the_page_shows(
    console: OpenConsole, service: Service, other_user: str
) -> None:
    id_ = asked_for(console, planned=str(ALL), reason="fixed")
    assert f"redrive jobs decline {id_}" in console.get("/job", id=id_).text
    declined = run_redrive("jobs", "decline", id_, "--reason", "too many", url=other_user)
    assert declined.code == 0, declined.err
    assert "is declined: the requeue of 17 messages" in declined.out
    text = console.get("/job", id=id_).text
    assert ": too many" in text
    assert "waiting for approval" not in text
    assert FailedQueue(service.url, QUEUE).depth() == ALL


def test_a_job_of_a_console_is_stopped_by_the_command_line_that_its_page_shows(
    console: OpenConsole, service: Service, other_user: str
) -> None:
    id_ = begun(console, **AS_CONSUMED)
    wait_until_it_sends(console, id_)
    assert f"redrive jobs stop {id_}" in console.get("/job", id=id_).text
    stopped = run_redrive("jobs", "stop", id_, url=other_user)
    assert stopped.code == 0, stopped.err
    wait_for_end(console, id_)
    page = console.get("/job", id=id_).text
    assert "interrupted</span>" in page
    assert "stopped by" in page
    assert f"redrive jobs stop {id_}" not in page
    assert console.post("/resume", id=id_).status_code == 303
    assert set(consume_to_the_end(console, service, id_).values()) == {1}


def test_a_job_of_one_console_is_stopped_on_its_page_in_another(
    console: OpenConsole, opens: Opens, service: Service
) -> None:
    id_ = begun(console, **AS_CONSUMED)
    wait_until_it_sends(console, id_)
    other = opens(Permit.REQUEUE)
    page = other.get("/job", id=id_).text
    assert "Running elsewhere" in page
    assert "has asked it to stop" not in page
    assert other.post("/stop", id=id_).status_code == 303
    wait_for_end(console, id_)
    for one in (console, other):
        page = one.get("/job", id=id_).text
        assert "interrupted</span>" in page
        assert "stopped by" in page
        assert "Running elsewhere" not in page
    assert other.post("/resume", id=id_).status_code == 303
    assert set(consume_to_the_end(other, service, id_).values()) == {1}


def test_a_stopped_job_goes_on_by_the_command_that_a_console_runs_if_its_order_was_seen(
    console: OpenConsole, service: Service
) -> None:
    id_ = begun(console, **AS_CONSUMED)
    wait_until_it_sends(console, id_)
    console.post("/stop", id=id_)
    wait_for_end(console, id_)
    for seen, problem in ([], "approve what nobody has seen"), (["--digest", "x"], "is not what"):
        refused = run_redrive("jobs", "run", id_, "--yes", *seen, url=service.url)
        assert (refused.code, problem in refused.err) == (2, True), refused.err
    recorder = Recorder()
    with service.subscriber(recorder):
        seen = ["--digest", digest_of(id_, service.url)]
        done = run_redrive("jobs", "run", id_, "--yes", *seen, url=service.url)
        assert done.code == 0, done.err
        wait_until(lambda: len(recorder.handled) == ALL, "all are handled")
    assert set(recorder.handled.values()) == {1}


@contextmanager
def running_elsewhere(url: str, kind: str) -> Iterator[JobRecord]:
    """A job of somebody's who takes their time."""
    address = BrokerURL.parse(url).address
    with Journal(url) as journal:

        def locked() -> JobRecord | None:
            record = journal.begin(JobRecord(str(uuid.uuid4()), kind, QUEUE, address, planned=2))
            return record if record.locked else None

        record = wait_until(locked, "it runs, and has its lock")
        assert record is not None
        yield record
        journal.update(replace(record, state=State.DONE))


def test_the_page_of_a_job_that_was_asked_to_stop_says_by_whom(
    console: OpenConsole, service: Service
) -> None:
    with running_elsewhere(service.url, "requeue") as job:
        assert "has asked it to stop" not in console.get("/job", id=job.id).text
        assert console.post("/stop", id=job.id).status_code == 303
        page = console.get("/job", id=job.id).text
    assert f"{job.by} has asked it to stop." in html.unescape(page)
    refused = console.post("/stop", id=job.id)
    assert refused.status_code == 400
    assert "is done: nobody runs it" in refused.text


def test_what_is_no_requeue_is_stopped_only_where_it_runs(
    console: OpenConsole, service: Service
) -> None:
    with running_elsewhere(service.url, "discard") as job:
        assert "Running elsewhere" not in console.get("/job", id=job.id).text
        refused = console.post("/stop", id=job.id)
    assert refused.status_code == 400
    assert "is not a requeue" in refused.text


def test_a_proof_says_what_was_chosen_by_whom_why_and_what_became_of_it(
    console: OpenConsole,
) -> None:
    id_ = begun(console, planned=str(ALL), reason="after the fix", canary="0", stop_at="100")
    wait_for_end(console, id_)
    text = console.get("/proof", id=id_, format="text").text
    for part in (
        id_,
        QUEUE,
        "after the fix",
        "KeyError",
        f"planned       {ALL}",
        "adds up       yes",
    ):
        assert part in text
    assert json.loads(console.get("/proof", id=id_, format="json").text)["sum"]["planned"] == ALL
    assert "after the fix" in console.get("/proof", id=id_).text


def test_a_plan_can_be_paced_by_the_depth_of_the_main_queue(
    console: OpenConsole, service: Service
) -> None:
    assert "--pace-by-depth 3" in console.get("/plan", queue=QUEUE, pace="3").text
    id_ = begun(console, **{**SLOWLY, "rate": "0", "pace": "3"})
    wait_until_it_sends(console, id_)
    console.post("/stop", id=id_)
    wait_for_end(console, id_)
    assert sum(handled_by(service.url).values()) <= 4


def test_what_runs_jobs_and_questions_has_the_address_neither_as_argument_nor_as_variable(
    console: OpenConsole, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_URL", service.url)
    id_ = begun(console, **AS_CONSUMED)
    wait_until_it_sends(console, id_)
    assert console.get("/causes", queue=QUEUE, where="retries = 0").status_code == 200
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    own = {child for file in children for child in file.read_text().split()}
    shown = {
        Path(f"/proc/{child}/cmdline").read_bytes(): Path(f"/proc/{child}/environ").read_bytes()
        for child in own
    }
    ours = [command for command in shown if b"redrive." in command]
    assert {b"\0jobs\0run\0" in one for one in ours} == {True, False}
    assert not [one for one in ours if b"amqp" in one or b"REDRIVE_URL" in shown[one]]
    console.post("/stop", id=id_)
    wait_for_end(console, id_)
