"""The journal that a team shares: two machines are two local journals at one broker."""

import json
import signal
import sqlite3
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest

from cli_support import redrive, running
from contract.administration import Administration
from contract.plain import depth, drain, plain_channel
from deliveries import failed as failed_delivery
from redrive import FailedQueue
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.jobs import approval
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal import Journal
from redrive.failures.jobs.journal_entry import FORMAT, JobStep, JournalEntry
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.order import Order
from redrive.failures.store.operator_name import whoami
from redrive.pubsub.url import BrokerURL
from redrive.topology.doctor.permissions import VERBS, granted_pattern, least_rights
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.names import JOURNAL, job_lock
from waiting import wait_until

QUEUE = "ucenter@user"
pytestmark = [pytest.mark.versions("streams"), pytest.mark.timeout(480)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The local journal of one machine."""
    return tmp_path / "here" / "journal.sqlite3"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The local journal of another one."""
    return tmp_path / "there" / "journal.sqlite3"


def job_of(url: str, **values: object) -> JobRecord:
    job = JobRecord(
        str(uuid.uuid4()),
        "requeue",
        QUEUE,
        BrokerURL.parse(url).address,
        Order().as_json(),
        reason="fixed",
    )
    return replace(job, **values)  # type: ignore[arg-type]


def listed(url: str, path: Path) -> list[dict[str, Any]]:
    """What `redrive jobs list` says on a machine, with no word on stderr."""
    done = redrive("jobs", "list", "--journal", str(path), "--output", "json", url=url)
    assert (done.code, done.err) == (0, "")
    found: list[dict[str, Any]] = done.json()
    return found


def interrupted(url: str, path: Path) -> dict[str, Any]:
    """The only job, once the broker has seen that whoever ran it is gone."""

    def found() -> dict[str, Any] | None:
        (job,) = listed(url, path)
        return job if job["state"] == "interrupted" else None

    job = wait_until(found, "it is interrupted")
    assert job is not None
    return job


def notices(url: str, path: Path) -> tuple[Journal, list[str]]:
    """A journal, and what it will say."""
    said: list[str] = []
    return Journal(url, path, on_notice=said.append), said


def contents(path: Path) -> dict[str, object]:
    """All that a local journal says of its jobs."""
    with LocalJournal(path) as journal:
        jobs = {job.id: job.as_json() for job in journal.jobs()}
        return {
            "jobs": jobs,
            "under way": {job: journal.under_way(job) for job in jobs},
            "handed over": {job: journal.handed_over(job) for job in jobs},
            "originals": {
                job: [
                    (one.queue, one.exchange, one.routing_key, one.properties.encode(), one.body)
                    for one in journal.originals(job)
                ]
                for job in jobs
            },
        }


def digests(count: int, start: int = 0) -> list[str]:
    return [f"{number:064x}" for number in range(start, start + count)]


def a_job_of_everything(journal: LocalJournal, url: str) -> JobRecord:
    """A job that has gone through each step."""
    job = journal.begin(job_of(url, planned=30))
    journal.keep(job.id, "failure-1", failed_delivery(body=b"as it was"))
    journal.sending(job.id, digests(20))
    job = journal.update(replace(job, sent=12))
    journal.settled(job.id, digests(12))
    journal.sending(job.id, digests(5, start=20))
    journal.update(replace(job, sent=14, state=State.INTERRUPTED))
    return job


def test_the_local_journal_can_be_made_again_from_the_stream(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        for _ in range(3):
            job = a_job_of_everything(journal, rabbitmq_url)
        resumed = journal.begin(replace(job, state=State.RUNNING))
        resumed = journal.take_up(replace(resumed, sent=12, possible_duplicates=4))
        journal.sending(job.id, digests(7, start=100))
        journal.heard(job.id, [], 3)
        journal.update(replace(resumed, sent=19, state=State.STOPPED, problem="3 failed again"))
    with Journal(rabbitmq_url, there) as journal:
        assert len(journal.jobs()) == 3

    assert contents(there) == contents(here)
    with LocalJournal(there) as local:
        assert len(local.under_way(job.id)) == 7


def test_reading_twice_changes_nothing(rabbitmq_url: str, here: Path, there: Path) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
        journal.heard(job.id, [], 3)
    with Journal(rabbitmq_url, there) as journal:
        journal.jobs()
    before = contents(there)
    with closing(sqlite3.connect(there)) as sqlite, sqlite:
        sqlite.execute("DELETE FROM place")  # as if nothing had been read
    with Journal(rabbitmq_url, there) as journal:
        journal.jobs()

    assert contents(there) == before


def test_everybody_sees_everybodys_jobs_and_who_ran_them(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        mine = journal.begin(job_of(rabbitmq_url))
        journal.update(replace(mine, state=State.DONE))
    with Journal(rabbitmq_url, there) as journal:
        theirs = journal.begin(job_of(rabbitmq_url))
        journal.update(replace(theirs, state=State.DONE))

    for path in (here, there):
        jobs = listed(rabbitmq_url, path)
        assert {job["id"] for job in jobs} == {mine.id, theirs.id}
        assert {job["who"] for job in jobs} == {whoami()}
        assert {job["user"] for job in jobs} == {BrokerURL.parse(rabbitmq_url).username}


def _failure(number: int) -> Delivery:
    own = {"redrive-failure-id": str(number), "redrive-error-type": "KeyError"}
    properties = Properties(headers=Table.of(own), delivery_mode=2, message_id=str(number))
    return Delivery(QUEUE, "master.failed", QUEUE, properties, str(number).encode())


@pytest.fixture
def incident(rabbitmq_url: str) -> str:
    """A failed queue with 1,500 messages, the id of each is its number."""
    declared = redrive(*("declare", "--queue", QUEUE, "--routing-key", "user.*"), url=rabbitmq_url)
    assert declared.code == 0, declared.err
    FailedQueue(rabbitmq_url, QUEUE).restore(_failure(number) for number in range(1500))
    return rabbitmq_url


def _sent(url: str) -> int:
    """How many messages are in the main queue."""
    return depth(url, QUEUE)


@pytest.mark.nightly("a job of a console is killed each time")
def test_a_job_that_is_killed_on_one_machine_goes_on_on_another(
    incident: str, here: Path, there: Path
) -> None:
    command = ["failed", "requeue", QUEUE, "--rate", "100/s", "--yes", "--reason", "fixed"]
    machines = [here, there]
    for number in range(5):
        before = _sent(incident)
        with running(*command, "--journal", str(machines[number % 2]), url=incident) as process:
            wait_until(lambda before=before: _sent(incident) > before, "the job sends")  # type: ignore[misc]
            process.signal(signal.SIGKILL)
            process.end()
        job = interrupted(incident, machines[(number + 1) % 2])
        command = ["jobs", "resume", job["id"], "--yes"]
    resumed = redrive(*command, "--journal", str(machines[1]), url=incident)
    assert resumed.code == 0, resumed.err
    main = Counter(properties.message_id for properties, _ in drain(incident, QUEUE))
    (job,) = listed(incident, here)

    assert main.keys() == {str(number) for number in range(1500)}
    assert main.total() - len(main) <= job["possible_duplicates"]
    assert (job["state"], job["sent"], job["reason"]) == ("done", 1500, "fixed")
    assert FailedQueue(incident, QUEUE).depth() == 0
    assert contents(here)["jobs"] == contents(there)["jobs"]


@pytest.mark.nightly("two consoles are tried each time")
def test_of_two_who_resume_a_job_one_is_told_who_runs_it(
    incident: str, here: Path, there: Path
) -> None:
    command = ["failed", "requeue", QUEUE, "--limit", "200", "--rate", "10/s", "--yes"]
    with running(*command, "--journal", str(here), url=incident) as process:
        wait_until(lambda: _sent(incident) > 0, "the job sends")
        (job,) = listed(incident, there)
        assert job["state"] == "running"
        with Journal(incident, there) as journal, pytest.raises(Exception) as refused:
            journal.begin(journal.job(job["id"]))
        assert f"job {job['id']} is running, by {whoami()}" in str(refused.value)
        assert f"since {job['since']}" in str(refused.value)
        process.signal(signal.SIGINT)
        process.end()
    again = redrive(*("jobs", "resume", job["id"], "--yes", "--journal", str(there)), url=incident)
    assert again.code == 0, again.err
    assert {"rate 10/s", "limit 200"} <= {" ".join(line.split()) for line in again.out.splitlines()}
    assert _sent(incident) == 200


@pytest.mark.nightly("another machine resumes one each time")
def test_a_job_is_stopped_from_another_machine_and_resumed_there(
    incident: str, here: Path, there: Path
) -> None:
    command = ("failed", "requeue", QUEUE, "--limit", "200", "--rate", "10/s", "--yes")
    with running(*command, "--journal", str(here), url=incident) as process:
        wait_until(lambda: _sent(incident) > 0, "the job sends")
        (job,) = listed(incident, there)
        stopped = redrive("jobs", "stop", job["id"], "--journal", str(there), url=incident)
        assert stopped.code == 0, stopped.err
        ran = process.end()
    sent = _sent(incident)
    assert 0 < sent < 200
    assert f"is interrupted: {sent} of 200 messages requeued" in stopped.out
    user = BrokerURL.parse(incident).username
    assert ran.code == 130
    assert f"Stopped by {whoami()} as {user}: {sent} of 200 messages requeued" in ran.out
    for path in (here, there):
        (job,) = listed(incident, path)
        assert (job["state"], job["sent"]) == ("interrupted", sent)
        assert job["problem"] == f"stopped by {whoami()} as {user}"
    again = redrive("jobs", "stop", job["id"], "--journal", str(there), url=incident)
    assert (again.code, again.error_lines[0]) == (
        2,
        f"Error: job {job['id']} is interrupted: nobody runs it",
    )
    resumed = redrive("jobs", "resume", job["id"], "--yes", "--journal", str(there), url=incident)
    assert resumed.code == 0, resumed.err
    main = Counter(properties.message_id for properties, _ in drain(incident, QUEUE))
    assert main == {str(number): 1 for number in range(200)}
    (job,) = listed(incident, here)
    assert (job["state"], job["sent"], job["problem"]) == ("done", 200, "")


def test_what_waits_for_approval_is_declined_from_another_machine(
    incident: str, here: Path, there: Path
) -> None:
    failed = FailedQueue(incident, QUEUE)
    with Journal(incident, here) as journal:
        asked = approval.ask(failed, journal, Order(), failed.browse(), reason="all of it")
    command = ("jobs", "decline", asked.id[:8], "--reason", "too many", "--journal", str(there))
    declined = redrive(*command, url=incident)
    assert declined.code == 0, declined.err
    assert f"Job {asked.id} is withdrawn: the requeue of 1,500 messages of {QUEUE}" in declined.out
    for path in (here, there):
        (job,) = listed(incident, path)
        assert job["state"] == "declined"
        assert job["problem"].endswith(": too many")
    again = redrive(*command, url=incident)
    assert (again.code, again.error_lines[0]) == (
        2,
        f"Error: job {asked.id} is declined: it is not waiting for approval",
    )
    assert redrive("jobs", "approve", asked.id, "--yes", url=incident).code == 2
    assert failed.depth() == 1500


@pytest.mark.nightly("another machine resumes one each time")
def test_a_job_that_is_resumed_keeps_its_pace_by_depth(
    incident: str, here: Path, there: Path
) -> None:
    command = ("failed", "requeue", QUEUE, "--limit", "60", "--pace-by-depth", "20", "--yes")
    with running(*command, "--journal", str(here), url=incident) as process:
        wait_until(lambda: _sent(incident) >= 20, "as many are there as may be")
        process.signal(signal.SIGINT)
        process.end()
    first = {properties.message_id for properties, _ in drain(incident, QUEUE)}
    (job,) = listed(incident, there)
    # What is on its way when the depth is reached still goes.
    assert 20 <= len(first) == job["sent"] < 60
    resume = ("jobs", "resume", job["id"], "--yes", "--journal", str(there))
    rest: list[str] = []
    with running(*resume, url=incident) as process:
        wait_until(lambda: _sent(incident) >= 20 or len(first) > 40, "it is as deep again")
        while len(first) + len(rest) < 60:
            some = [str(properties.message_id) for properties, _ in drain(incident, QUEUE)]
            assert len(some) <= 60 - len(first)
            rest += some
        done = process.end()
    assert done.code == 0, done.err
    assert len(rest) == len(set(rest)) == 60 - len(first)
    assert not first & set(rest)
    (job,) = listed(incident, here)
    assert (job["order"]["pace_by_depth"], job["state"], job["sent"]) == (20, "done", 60)


def test_the_plan_of_a_job_is_shown_on_another_machine(
    incident: str, here: Path, there: Path
) -> None:
    command = ("failed", "requeue", QUEUE, "--where", "message_id < '2'", "--yes")
    done = redrive(*command, "--journal", str(here), "--output", "json", url=incident)
    assert done.code == 0, done.err
    (job,) = listed(incident, there)
    plan = job["plan"]
    (cause,) = plan["causes"]
    assert (cause["error_type"], cause["count"]) == ("KeyError", job["planned"])
    assert (plan["looked_at"], plan["not_meant"]) == (1500, 1500 - job["planned"])
    shown = redrive("jobs", "show", job["id"], "--journal", str(there), url=incident)
    assert f"{job['planned']:,} {cause['group_id']}  KeyError" in shown.out
    assert f"{plan['not_meant']:,} others that the filter does not match" in shown.out


def test_originals_of_edited_bodies_are_had_on_another_machine(
    incident: str, here: Path, there: Path, tmp_path: Path
) -> None:
    patch = tmp_path / "patch.json"
    patch.write_text('[{"op": "replace", "path": "", "value": "edited"}]')
    done = redrive(
        *("failed", "requeue", QUEUE, "--limit", "20", "--patch", str(patch), "--yes"),
        *("--journal", str(here)),
        url=incident,
    )
    assert done.code == 0, done.err
    (job,) = listed(incident, there)
    file = tmp_path / "originals.jsonl"
    written = redrive(
        *("jobs", "originals", job["id"], "-o", str(file), "--journal", str(there)),
        *("--output", "json"),
        url=incident,
    )
    assert written.code == 0
    assert (written.json()["messages"], written.json()["left_out"]) == (20, 0)
    assert contents(there)["originals"] == contents(here)["originals"]


def test_without_bodies_whoever_asks_for_originals_is_told_who_has_them(
    rabbitmq_url: str, here: Path, there: Path, tmp_path: Path
) -> None:
    secret = b"the card is 4711"
    with Journal(rabbitmq_url, here, bodies=False) as journal:
        order = Order(edits={"0" * 64: "c2VjcmV0"}).as_json()
        job = journal.begin(job_of(rabbitmq_url, order=order))
        journal.keep(job.id, "failure-1", failed_delivery(body=secret))
        journal.sending(job.id, digests(1))
        journal.update(replace(job, state=State.INTERRUPTED))
    assert not any(secret in body or b"c2VjcmV0" in body for body in entries(rabbitmq_url))
    asked = redrive(
        *("jobs", "originals", job.id, "-o", str(tmp_path / "x.jsonl"), "--journal", str(there)),
        url=rabbitmq_url,
    )
    assert asked.code == 0
    assert f"only the local file of {whoami()} has them" in asked.err
    resumed = redrive("jobs", "resume", job.id, "--yes", "--journal", str(there), url=rabbitmq_url)
    assert resumed.code == 2
    assert "the bodies that job" in resumed.err
    with LocalJournal(here) as local:
        assert [one.body for one in local.originals(job.id)] == [secret]


def entries(url: str) -> list[bytes]:
    """The bodies in the stream, by plain pika."""
    found: list[bytes] = []
    mark = str(uuid.uuid4())
    with plain_channel(url) as channel:
        properties = pika.BasicProperties(message_id=mark, delivery_mode=2)  # type: ignore[no-untyped-call]
        channel.confirm_delivery()
        channel.basic_publish("", JOURNAL, b"mark", properties, mandatory=True)
        channel.basic_qos(prefetch_count=100)
        for method, its, body in channel.consume(
            JOURNAL, arguments={"x-stream-offset": "first"}, inactivity_timeout=60
        ):
            assert method is not None
            assert its is not None
            assert body is not None
            channel.basic_ack(method.delivery_tag)
            if its.message_id == mark:
                return found
            found.append(body)
    return found


def append(url: str, bodies: Sequence[bytes], user: str | None = None) -> None:
    """Somebody else appends something to the stream, or a user whom the broker vouches for."""
    with plain_channel(url) as channel:
        channel.confirm_delivery()
        for body in bodies:
            properties = pika.BasicProperties(user_id=user)  # type: ignore[no-untyped-call]
            channel.basic_publish("", JOURNAL, body, properties, mandatory=True)


def test_rubbish_in_the_stream_is_counted_and_corrupts_nothing(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
        whole = JournalEntry(JobStep.ENDED, job.id, "x", record=job).encode()
        forged = {**json.loads(whole), "id": str(uuid.uuid4())}
        rubbish = [
            b"",
            b"\xff\xfe",
            b"null",
            b"[" * 100_000,
            b'{"format":1}',
            json.dumps({**forged, "record": {**forged["record"], "sent": "many"}}).encode(),
            json.dumps({**forged, "record": {**forged["record"], "sent": 10**30}}).encode(),
            json.dumps({**forged, "job": "\x1b[2J"}).encode(),
            json.dumps({**forged, "digests": "!"}).encode(),
            b" " * 9_000_000,
        ]
        append(rabbitmq_url, rubbish)
        other = journal.begin(job_of(rabbitmq_url))
        journal.update(replace(other, state=State.DONE))
    with Journal(rabbitmq_url, there) as journal:
        assert {found.id for found in journal.jobs()} == {job.id, other.id}
        assert journal.unread() == (len(rubbish), 0)
    assert contents(there) == contents(here)
    told = redrive("jobs", "list", "--journal", str(there), url=rabbitmq_url)
    assert "10 entries of the shared journal can't be read" in told.err


def test_an_entry_of_a_newer_version_is_told_of_and_its_job_is_left_alone(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
    newer = {"format": FORMAT + 1, "id": str(uuid.uuid4()), "step": "split", "job": job.id}
    append(rabbitmq_url, [json.dumps(newer).encode()], user=job.user)
    told = redrive("jobs", "list", "--journal", str(there), url=rabbitmq_url)
    assert told.code == 0
    assert "1 entry of the shared journal can't be read by this version of redrive" in told.err
    with Journal(rabbitmq_url, there) as journal, pytest.raises(Exception) as refused:
        journal.begin(journal.job(job.id))
    assert str(refused.value).splitlines() == [
        f"a newer version of redrive has written about job {job.id}",
        "Use that version.",
    ]


def test_what_somebody_else_writes_in_the_form_of_a_newer_version_bars_no_job(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
    newer = {"format": FORMAT + 1, "id": str(uuid.uuid4()), "step": "split", "job": job.id}
    append(rabbitmq_url, [json.dumps(newer).encode()])
    with Journal(rabbitmq_url, there) as journal:
        assert journal.begin(journal.job(job.id)).state is State.RUNNING
        assert journal.unread() == (0, 1)


def test_a_job_is_stopped_whoever_says_that_they_have_resumed_it(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = journal.begin(job_of(rabbitmq_url))
        forged = replace(job, run=str(uuid.uuid4()), who="mallory@desk", user="")
        entry = JournalEntry(JobStep.RESUMED, job.id, forged.who, run=forged.run, record=forged)
        append(rabbitmq_url, [entry.encode()])
        with Journal(rabbitmq_url, there) as others:
            seen = others.job(job.id)
            assert seen.who == "mallory@desk"
            others.ask_to_stop(seen)
        wait_until(lambda: journal.stop_asked_by(job), "the job is asked to stop")


def test_a_job_that_waits_is_not_approved_once_the_shared_journal_was_made_anew(
    rabbitmq_url: str, here: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        asked = journal.ask(job_of(rabbitmq_url))
        assert journal.job(asked.id).state is State.ASKED
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_delete(JOURNAL)
    with (
        Journal(rabbitmq_url, here) as journal,
        pytest.raises(ConfigurationError, match="was deleted and created again"),
    ):
        journal.begin(replace(journal.job(asked.id), approved_by="whoever begins it"))


def test_without_a_right_the_file_goes_on_alone_and_is_merged_later(
    rabbitmq_url: str, rabbitmq_management_url: str, here: Path, there: Path
) -> None:
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    with administration.user(
        f"least-{uuid.uuid4().hex[:12]}", configure="^$", write="^$", read="^$"
    ) as url:
        journal, said = notices(url, here)
        with journal:
            job = a_job_of_everything(journal, url)
    assert len(said) == 1, said
    assert "The shared journal at" in said[0]
    with Journal(rabbitmq_url, there) as other:
        assert other.jobs() == []
    # Whoever has the right appends what is missing, and more than once changes nothing.
    for _ in range(2):
        assert [one["id"] for one in listed(rabbitmq_url, here)] == [job.id]
        assert [one["id"] for one in listed(rabbitmq_url, there)] == [job.id]
    assert contents(there)["under way"] == contents(here)["under way"]
    assert contents(there)["originals"] == contents(here)["originals"]


def test_an_operator_may_share_the_journal(
    rabbitmq_url: str, rabbitmq_management_url: str, here: Path, there: Path
) -> None:
    rights = least_rights("operator", Subscription(QUEUE, ["user.*"]))
    granted = {verb: granted_pattern(rights, verb) for verb in VERBS}
    name = f"least-{uuid.uuid4().hex[:12]}"
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    with administration.user(name, **granted) as url:
        journal, said = notices(url, here)
        with journal:
            job = a_job_of_everything(journal, url)
            assert is_locked(rabbitmq_url, job.id)
    assert said == []
    (found,) = listed(rabbitmq_url, there)
    assert (found["id"], found["user"]) == (job.id, name)


def test_without_a_broker_the_local_jobs_are_listed_with_one_line(
    rabbitmq_url: str, here: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
    done = redrive(
        *("jobs", "list", "--journal", str(here), "--output", "json"),
        url="amqp://guest:secret@127.0.0.1:1/",
    )
    assert done.code == 0
    assert [one["id"] for one in done.json()] == [job.id]
    (line,) = done.error_lines
    assert "The shared journal at" in line
    assert "secret" not in line


def test_a_stream_that_is_deleted_meanwhile_is_told_of_once_and_made_again(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    journal, said = notices(rabbitmq_url, here)
    with journal:
        job = journal.begin(job_of(rabbitmq_url))
        with plain_channel(rabbitmq_url) as channel:
            channel.queue_delete(JOURNAL)
        journal.sending(job.id, digests(3))
        journal.settled(job.id, digests(3))
        journal.update(replace(job, sent=3, state=State.INTERRUPTED))
    assert len(said) == 1, said
    assert [one["id"] for one in listed(rabbitmq_url, here)] == [job.id]
    (found,) = listed(rabbitmq_url, there)
    assert (found["id"], found["sent"], found["state"]) == (job.id, 3, "interrupted")
    assert found["order"] == job.order


def test_a_file_that_has_read_further_than_a_new_stream_goes_reads_that_from_its_beginning(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        for _ in range(5):
            a_job_of_everything(journal, rabbitmq_url)
        journal.jobs()
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_delete(JOURNAL)
    with Journal(rabbitmq_url, there) as journal:
        new = journal.begin(job_of(rabbitmq_url))
    assert new.id in {job["id"] for job in listed(rabbitmq_url, here)}


def ends_offline(url: str, path: Path, job: JobRecord, problem: str) -> list[str]:
    """Have a job fail while its broker can't be reached; return what its user is told."""
    cut_off, said = notices("amqp://guest:guest@127.0.0.1:1/", path)
    cut_off.place = Journal(url, path).place
    with cut_off:
        cut_off.update(replace(job, sent=15, state=State.FAILED, problem=problem))
    return said


def test_what_comes_late_of_a_run_does_not_undo_what_another_has_done_since(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
    assert len(ends_offline(rabbitmq_url, here, job, "late")) == 1
    with Journal(rabbitmq_url, there) as journal:
        resumed = journal.begin(journal.job(job.id))
        journal.update(replace(resumed, sent=30, state=State.INTERRUPTED))
    for _ in range(2):
        for path in (here, there):
            (found,) = listed(rabbitmq_url, path)
            assert (found["sent"], found["problem"]) == (30, "")
    assert contents(here)["jobs"] == contents(there)["jobs"]
    assert contents(here)["under way"] == contents(there)["under way"]


def test_what_is_left_over_of_a_run_undoes_nothing_when_another_job_begins(
    rabbitmq_url: str, here: Path, there: Path, tmp_path: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
    ends_offline(rabbitmq_url, here, job, "late")
    with Journal(rabbitmq_url, there) as journal:
        resumed = journal.begin(journal.job(job.id))
        journal.update(replace(resumed, sent=30, state=State.DONE))
    with Journal(rabbitmq_url, here) as journal:
        journal.update(replace(journal.begin(job_of(rabbitmq_url)), state=State.DONE))
    with Journal(rabbitmq_url, tmp_path / "third.sqlite3") as journal:
        found = journal.job(job.id)
    assert (found.state, found.sent, found.problem) == (State.DONE, 30, "")


def test_an_entry_of_its_own_that_nobody_can_read_stops_no_command(
    rabbitmq_url: str, here: Path
) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = a_job_of_everything(journal, rabbitmq_url)
    ends_offline(rabbitmq_url, here, job, "x" * 70_000)
    for unreadable in (0, 1):
        with Journal(rabbitmq_url, here) as journal:
            assert [one.id for one in journal.jobs()] == [job.id]
            assert journal.unread() == (unreadable, 0)


def test_no_entry_has_the_password_of_the_url(rabbitmq_url: str, here: Path) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = journal.begin(
            job_of(rabbitmq_url, reason="as amqp://bob:hunter2@rabbit/ said, it is fixed")
        )
        journal.update(replace(job, state=State.FAILED, problem="amqp://bob:hunter2@rabbit/"))
    found = b"".join(entries(rabbitmq_url))
    assert b"hunter2" not in found
    assert b"it is fixed" in found


def test_the_lock_of_a_job_goes_with_its_connection(rabbitmq_url: str, here: Path) -> None:
    with Journal(rabbitmq_url, here) as journal:
        job = journal.begin(job_of(rabbitmq_url))
        assert is_locked(rabbitmq_url, job.id)
    wait_until(lambda: not is_locked(rabbitmq_url, job.id), "it is gone")


def is_locked(url: str, job: str) -> bool:
    with plain_channel(url) as channel:
        try:
            channel.queue_declare(job_lock(job), passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return bool(error.reply_code == 405)
    return False
