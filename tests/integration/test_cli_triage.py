"""`redrive failed` after an incident: which messages are of one cause, which are chosen, and where
each of them is then."""

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pika
import pytest

from cli_support import Outcome, Process, Terminal, declare, depth_of, give_up_on, redrive, running
from contract.plain import drain, plain_channel
from effort import effort, nightly
from redrive import FailedQueue
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.topology.headers import Delivery
from redrive.topology.model import QueueType
from waiting import wait_until

QUEUE = "ucenter@user"


@pytest.fixture
def incident(rabbitmq_url: str) -> str:
    """A failed queue with three KeyErrors, two ValueErrors, and a message of a peer that says
    nothing and is no JSON."""
    give_up_on(
        rabbitmq_url,
        QUEUE,
        [{"n": n, "country": "DE" if n % 2 else "FR"} for n in range(3)],
        KeyError("no country 'DE'"),
    )
    give_up_on(rabbitmq_url, QUEUE, [{"n": 7}, b"hello"], ValueError("no plan 17"))
    with plain_channel(rabbitmq_url) as channel:
        properties = pika.BasicProperties(delivery_mode=2)  # type: ignore[no-untyped-call]
        channel.basic_publish("master.failed", QUEUE, b"\xff", properties, mandatory=True)
    return rabbitmq_url


def failed(*arguments: str, url: str) -> Outcome:
    """`redrive failed …` that has to work, in JSON."""
    done = redrive("failed", *arguments, "--output", "json", url=url)
    assert done.code == 0, done.err
    return done


def bodies_in_failed(url: str) -> list[bytes]:
    return [message.body for message in FailedQueue(url, QUEUE).browse()]


# --- understand -----------------------------------------------------------------------------------


def test_messages_of_one_cause_are_a_group(incident: str) -> None:
    found = failed("groups", QUEUE, url=incident).json()
    assert [
        (group["error_type"], group["message"], group["count"]) for group in found["groups"]
    ] == [
        ("KeyError", "'…'", 3),
        ("ValueError", "no plan <n>", 2),
        (None, None, 1),
    ]
    assert found["groups"][0]["frame"] == "tests/cli_support.py in fail"
    assert found["groups"][0]["routing_keys"] == {"user.create": 3}
    done = redrive("failed", "groups", QUEUE, url=incident)
    assert "6 messages of ucenter@user@failed in 3 groups." in done.out


def test_messages_are_grouped_by_any_column(incident: str) -> None:
    found = failed(
        "groups", QUEUE, "--by", "error_type", "--where", "size > 1", url=incident
    ).json()
    assert [(group["error_type"], group["count"]) for group in found["groups"]] == [
        ("KeyError", 3),
        ("ValueError", 2),
    ]


def test_only_matching_messages_are_listed(incident: str) -> None:
    found = failed(
        "list",
        QUEUE,
        "--where",
        "error_type = 'KeyError' and body->>'$.country' = 'DE'",
        url=incident,
    ).json()
    assert [message["body"] for message in found["messages"]] == [{"n": 1, "country": "DE"}]
    assert (found["matching"], found["total"]) == (1, 6)


def test_anything_can_be_asked_in_sql_and_no_body_breaks_it(incident: str) -> None:
    sql = (
        "select error_type, count(*) as n, max(body->>'$.n') as most from failed group by all "
        "order by n desc;"
    )
    assert failed("query", QUEUE, sql, url=incident).json()["rows"] == [
        {"error_type": "KeyError", "n": 3, "most": "2"},
        {"error_type": "ValueError", "n": 2, "most": "7"},
        {"error_type": None, "n": 1, "most": None},
    ]
    assert len(bodies_in_failed(incident)) == 6


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("query", "select count(*) as n from failed"),
            (
                "Only the 2 oldest of 6 messages were read; leave out --look-at to read the 4 "
                "newer ones too."
            ),
        ),
        (
            ("groups",),
            (
                "2 messages of ucenter@user@failed in 1 group. Only the 2 oldest of 6 messages "
                "were read; leave out --look-at to read the 4 newer ones too."
            ),
        ),
        (
            ("list", "--where", "error_type = 'ValueError'"),
            "0 of the 2 oldest messages in ucenter@user@failed match; 4 newer were not read",
        ),
    ],
)
def test_what_was_not_looked_at_is_said_with_the_result(
    incident: str, command: tuple[str, ...], said: str
) -> None:
    done = redrive("failed", command[0], QUEUE, *command[1:], "--look-at", "2", url=incident)
    assert (done.code, done.err) == (0, "")
    assert said in done.out
    found = failed(command[0], QUEUE, *command[1:], "--look-at", "2", url=incident).json()
    assert (found["total"], found["looked_at"], found["missing"]) == (6, 2, 0)


def test_all_are_looked_at_where_nothing_else_is_asked_for(incident: str) -> None:
    for command in (
        ("query", "select 1 as n from failed"),
        ("groups",),
        ("list", "--where", "true"),
    ):
        found = failed(command[0], QUEUE, *command[1:], url=incident).json()
        assert (found["total"], found["looked_at"]) == (6, 6)


@pytest.mark.parametrize("command", ["list", "groups"])
def test_a_filter_by_time_that_would_leave_out_the_newest_is_refused(
    incident: str, command: str
) -> None:
    options = ("--where", "failed_at > now() - interval 25 minutes", "--look-at", "2")
    done = redrive("failed", command, QUEUE, *options, url=incident)
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert (
        "would miss the newest messages: only 2 of 6 messages would be read" in done.error_lines[0]
    )
    assert redrive("failed", command, QUEUE, *options[:2], "--look-at", "6", url=incident).code == 0


def test_the_newest_are_listed_first(incident: str) -> None:
    oldest_first = failed("list", QUEUE, "--where", "failed_at is not null", url=incident).json()[
        "messages"
    ]
    newest = failed("list", QUEUE, "--newest", "--limit", "3", url=incident).json()
    by_time = sorted(
        (str(message["failed_at"]), place, message["failure_id"])
        for place, message in enumerate(oldest_first)
    )
    assert [message["failure_id"] for message in newest["messages"]] == [
        id_ for _, _, id_ in reversed(by_time[-3:])
    ]
    assert (newest["total"], newest["looked_at"]) == (6, 6)
    assert (
        "The 3 newest of 6 messages in ucenter@user@failed"
        in redrive("failed", "list", QUEUE, "--newest", "--limit", "3", url=incident).out
    )


def test_what_somebody_else_holds_is_said_to_be_missing(incident: str) -> None:
    last = FailedQueue(incident, QUEUE)
    *_, newest = last.browse()
    with plain_channel(incident) as channel:
        channel.basic_qos(prefetch_count=6)
        for taken, _ in enumerate(channel.consume(f"{QUEUE}@failed"), 1):
            if taken == 6:
                break
        nowhere = ("--management-url", "http://127.0.0.1:9")
        listed = redrive("failed", "list", QUEUE, *nowhere, url=incident)
        shown = redrive("failed", "show", QUEUE, newest.failure_id, *nowhere, url=incident)
    assert "No message of ucenter@user@failed could be read." in listed.out
    assert (
        "Somebody else is reading ucenter@user@failed: an unknown number of messages is missing "
        "from this answer." in listed.err
    )
    assert shown.code == 1
    assert "could be read" in shown.error_lines[0]
    assert "Somebody else is reading ucenter@user@failed" in shown.error_lines[1]


@pytest.mark.parametrize("held", [2, 6])
@pytest.mark.parametrize("command", ["requeue", "discard"])
def test_a_command_that_could_not_reach_all_messages_does_not_end_as_if_it_had(
    incident: str, command: str, held: int, tmp_path: Path
) -> None:
    file = ("-o", str(tmp_path / "gone.jsonl")) if command == "discard" else ()
    with plain_channel(incident) as channel:
        channel.basic_qos(prefetch_count=held)
        for taken, _ in enumerate(channel.consume(f"{QUEUE}@failed"), 1):
            if taken == held:
                break
        nowhere = ("--management-url", "http://127.0.0.1:9")
        done = redrive("failed", command, QUEUE, *file, "--yes", *nowhere, url=incident)
    assert done.code == 1
    if held == 2:
        assert (
            "Somebody else is reading ucenter@user@failed: an unknown number of messages is still "
            "there, not looked at." in done.out.replace("\n", " ")
        )
    else:
        assert "no message of 'ucenter@user@failed' could be read" in done.error_lines[-2]
    wait_until(lambda: depth_of(incident, QUEUE)["failed"] == held, "what was held to be returned")


@pytest.mark.parametrize("command", ["requeue", "discard"])
def test_a_choice_that_nothing_readable_meets_is_no_empty_one_while_others_hold_messages(
    incident: str, command: str, tmp_path: Path
) -> None:
    file = ("-o", str(tmp_path / "gone.jsonl")) if command == "discard" else ()
    where = ("--where", "error_type = 'Nobody raises this'", "--yes")
    with plain_channel(incident) as channel:
        channel.basic_qos(prefetch_count=1)
        next(iter(channel.consume(f"{QUEUE}@failed")))
        nowhere = ("--management-url", "http://127.0.0.1:9")
        done = redrive("failed", command, QUEUE, *where, *file, *nowhere, url=incident)

    assert done.code == 1
    assert "that could be read was chosen" in done.err
    assert len(done.error_lines) <= 3


def test_a_long_look_has_a_bar_and_says_what_it_holds(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    queue = FailedQueue(rabbitmq_url, QUEUE)
    queue.restore(_failure(number) for number in range(3000))
    held = queue.browse()
    next(held)
    with Terminal("failed", "groups", QUEUE, url=rabbitmq_url, columns=140) as terminal:
        terminal.wait_for("waiting: ")
        terminal.wait_for("is reading")
        held.close()
        terminal.wait_for(
            "3,000 messages of ucenter@user@failed are held while this command reads them; other "
            "consumers of the queue wait."
        )
        assert terminal.end() == 0
    assert "/3,000" in terminal.words
    assert "3,000 messages of ucenter@user@failed in" in terminal.words


@pytest.mark.parametrize("way", ["option", "environment"])
def test_there_is_no_bar_where_nobody_wants_one(rabbitmq_url: str, way: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    arguments = ("--no-progress",) if way == "option" else ()
    environment = {"REDRIVE_NO_PROGRESS": "1"} if way == "environment" else {}
    with Terminal(
        *arguments, "failed", "requeue", QUEUE, "--yes", url=rabbitmq_url, environment=environment
    ) as terminal:
        assert terminal.end() == 0
    assert "requeueing" not in terminal.words
    assert "1 of 1 message requeued" in terminal.words


@pytest.mark.parametrize(
    "arguments", [("--limit", "2"), ("--limit", "2", "--where", "error_type = 'KeyError'")]
)
def test_a_few_are_sent_and_the_rest_keeps_its_order(
    incident: str, arguments: tuple[str, ...]
) -> None:
    before = bodies_in_failed(incident)
    done = failed("requeue", QUEUE, *arguments, "--yes", url=incident).json()
    assert (done["requeued"], done["planned"]) == (2, 2)
    sent = {body for _, body in drain(incident, QUEUE)}
    assert sent == set(before[:2])
    assert bodies_in_failed(incident) == before[2:]


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", QUEUE, "--where", "error_typ = 'x'"),
        ("groups", QUEUE, "--where", "error_typ = 'x'"),
        ("query", QUEUE, "select error_typ from failed"),
        ("requeue", QUEUE, "--yes", "--where", "error_typ = 'x'"),
    ],
)
def test_a_bad_expression_says_where_it_is_wrong_before_anything_is_done(
    rabbitmq_url: str, arguments: tuple[str, ...]
) -> None:
    declare(rabbitmq_url, QUEUE)
    done = redrive("failed", *arguments, url=rabbitmq_url)
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert "error_typ" in done.error_lines[0]


@pytest.mark.parametrize(
    "suffix", ["parquet", *(nightly(one, why="written alike") for one in ("jsonl", "duckdb"))]
)
def test_the_same_expression_picks_the_same_from_a_queue_and_its_snapshot(
    incident: str, tmp_path: Path, suffix: str
) -> None:
    file = str(tmp_path / f"incident.{suffix}")
    assert failed("snapshot", QUEUE, "-o", file, url=incident).json()["messages"] == 6
    for where in (
        "error_type = 'KeyError'",
        "body is null",
        "failed_at < now()",
        "headers->>'$.tenant' = 'acme' and size > 5",
    ):
        of_queue, of_file = (
            failed("list", name, "--where", where, url=incident).json()["messages"]
            for name in (QUEUE, file)
        )
        assert [message["failure_id"] for message in of_queue] == [
            message["failure_id"] for message in of_file
        ]
    assert (
        failed("groups", file, url=incident).json()["groups"]
        == failed("groups", QUEUE, url=incident).json()["groups"]
    )
    id_ = str(of_file[0]["failure_id"])
    assert failed("show", file, id_, url=incident).json()["body"] == of_file[0]["body"]


# --- choose and requeue -------------------------------------------------------------------------


def test_one_group_goes_back_and_exactly_the_others_stay_in_their_order(incident: str) -> None:
    before = bodies_in_failed(incident)
    group = failed("groups", QUEUE, url=incident).json()["groups"][1]["group_id"]
    done = failed("requeue", QUEUE, "--group", group, "--yes", url=incident).json()
    assert (done["requeued"], done["planned"]) == (2, 2)
    assert {body for _, body in drain(incident, QUEUE)} == {b'{"n":7}', b"hello"}
    assert bodies_in_failed(incident) == [
        body for body in before if body not in {b'{"n":7}', b"hello"}
    ]


def test_messages_go_to_another_queue_at_a_rate(incident: str) -> None:
    with plain_channel(incident) as channel:
        channel.queue_declare("elsewhere", durable=True)
    began = time.monotonic()
    done = failed(
        "requeue",
        QUEUE,
        "--to",
        "elsewhere",
        "--rate",
        "10/s",
        "--limit",
        "4",
        "--yes",
        url=incident,
    )
    assert done.json()["requeued"] == 4
    assert time.monotonic() - began > 0.3  # the fourth one may go after three tenths of a second
    assert len(drain(incident, "elsewhere")) == 4
    assert depth_of(incident, QUEUE) == {"main": 0, "retry": 0, "failed": 2}


def test_a_message_is_not_requeued_for_ever(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    with plain_channel(rabbitmq_url) as channel:
        for count in (4, 5):
            properties = pika.BasicProperties(headers={"redrive-count": count}, delivery_mode=2)  # type: ignore[no-untyped-call]
            channel.basic_publish(
                "master.failed", QUEUE, str(count).encode(), properties, mandatory=True
            )
    assert failed("requeue", QUEUE, "--yes", url=rabbitmq_url).json()["too_often"] == 1
    assert [body for _, body in drain(rabbitmq_url, QUEUE)] == [b"4"]
    refused = redrive("failed", "requeue", QUEUE, "--yes", url=rabbitmq_url)
    assert refused.code == 1
    assert "--force" in refused.out
    assert failed("requeue", QUEUE, "--yes", "--force", url=rabbitmq_url).json()["requeued"] == 1


def test_bodies_are_patched_and_the_originals_can_be_set_aside_again(
    incident: str, tmp_path: Path
) -> None:
    patch, originals = tmp_path / "patch.json", tmp_path / "originals.jsonl"
    patch.write_text('{"country": "AT"}')
    done = redrive(
        "failed",
        "requeue",
        QUEUE,
        "--where",
        "error_type = 'KeyError'",
        "--patch",
        str(patch),
        "--yes",
        url=incident,
    )
    assert '+  "country": "AT"' in done.out
    assert {json.loads(body)["country"] for _, body in drain(incident, QUEUE)} == {"AT"}
    job = redrive("jobs", "list", "--output", "json").json()[0]["id"]
    assert redrive("jobs", "originals", job, "-o", str(originals)).code == 0
    assert redrive("failed", "restore", str(originals), "--yes", url=incident).code == 0
    countries = Counter(
        json.loads(body).get("country") for body in bodies_in_failed(incident) if body[:1] == b"{"
    )
    assert countries == {"FR": 2, "DE": 1, None: 1}


def test_bodies_are_changed_by_a_function(
    incident: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mending.py").write_text(
        "import json\n\n\ndef add_plan(message):\n    return json.dumps({**message.json(), 'plan': "
        "message.error_type}).encode()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    where = "error_type = 'KeyError'"
    done = redrive(
        "failed",
        "requeue",
        QUEUE,
        "--where",
        where,
        "--transform",
        "mending:add_plan",
        "--yes",
        url=incident,
    )
    assert '+  "plan": "KeyError"' in done.out
    sent = [json.loads(body) for _, body in drain(incident, QUEUE)]
    assert {body["plan"] for body in sent} == {"KeyError"}
    assert {"n", "plan"} <= sent[0].keys()


def test_bodies_are_edited_in_the_editor(incident: str) -> None:
    editor = {"EDITOR": "sed -i s/DE/CH/"}
    where = "body->>'$.country' = 'DE'"
    with Terminal(
        "failed", "requeue", QUEUE, "--where", where, "--edit", url=incident, environment=editor
    ) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert '+  "country": "CH"' in terminal.words
    assert [body for _, body in drain(incident, QUEUE)] == [b'{"n":1,"country":"CH"}']


def test_the_oldest_few_are_discarded(incident: str, tmp_path: Path) -> None:
    oldest = [message.failure_id for message in FailedQueue(incident, QUEUE).browse()][2:]
    done = failed(
        "discard",
        QUEUE,
        "-o",
        str(tmp_path / "gone.parquet"),
        "--limit",
        "2",
        "--yes",
        url=incident,
    )
    assert (done.json()["written"], done.json()["deleted"]) == (2, 2)
    assert [message.failure_id for message in FailedQueue(incident, QUEUE).browse()] == oldest


def test_what_is_discarded_is_in_a_file_first_and_comes_back(incident: str, tmp_path: Path) -> None:
    file = str(tmp_path / "gone.parquet")
    before = {
        message.failure_id: message.properties.encode()
        for message in FailedQueue(incident, QUEUE).browse()
    }
    done = failed(
        "discard",
        QUEUE,
        "--where",
        "error_type is not null",
        "-o",
        file,
        "--reason",
        "not ours",
        "--yes",
        url=incident,
    )
    assert (done.json()["written"], done.json()["deleted"]) == (5, 5)
    assert bodies_in_failed(incident) == [b"\xff"]
    assert failed("restore", file, "--yes", url=incident).json()["restored"] == {QUEUE: 5}
    after = {message.failure_id for message in FailedQueue(incident, QUEUE).browse()}
    assert after == set(before)
    assert redrive("jobs", "list", "--output", "json").json()[1]["reason"] == "not ours"


def test_where_the_file_can_not_be_written_nothing_is_deleted(incident: str) -> None:
    done = redrive("failed", "discard", QUEUE, "-o", "/nowhere/gone.jsonl", "--yes", url=incident)
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert len(bodies_in_failed(incident)) == 6


def test_old_messages_go_to_a_file(incident: str, tmp_path: Path) -> None:
    old = ("expire", QUEUE, "--to", str(tmp_path / "old.jsonl"), "--yes")
    assert failed(*old, "--older-than", "1d", url=incident).json()["deleted"] == 0
    assert failed(*old, "--older-than", "1ms", url=incident).json()["deleted"] == 5
    assert bodies_in_failed(incident) == [b"\xff"]


# --- jobs -----------------------------------------------------------------------------------------


def test_the_journal_says_who_did_what_and_why(incident: str, tmp_path: Path) -> None:
    journal = str(tmp_path / "audit.sqlite3")
    failed(
        "requeue",
        QUEUE,
        "--where",
        "size = 7",
        "--reason",
        "plan 17 is there now",
        "--journal",
        journal,
        "--yes",
        url=incident,
    )
    (job,) = redrive("jobs", "list", "--journal", journal, "--output", "json").json()
    assert (job["kind"], job["queue"], job["sent"], job["state"]) == ("requeue", QUEUE, 1, "done")
    assert job["reason"] == "plan 17 is there now"
    assert job["order"]["selection"]["where"] == "size = 7"
    assert "@" in job["who"]
    assert "guest:guest" not in json.dumps(job)
    shown = redrive("jobs", "show", job["id"][:6], "--journal", journal)
    assert "where size = 7" in shown.out
    assert redrive("jobs", "resume", job["id"], "--journal", journal, url=incident).code == 0


def test_a_job_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = redrive("jobs", "show", "nothing", "--journal", str(tmp_path / "empty.sqlite3"))
    # The broker that is asked without --url may be there or not, which is told of first.
    assert done.code == 2
    assert "Error: there is no job 'nothing'" in done.err


def test_a_journal_that_can_not_be_written_is_an_error_before_anything_is_sent(
    incident: str,
) -> None:
    done = redrive(
        "failed", "requeue", QUEUE, "--yes", "--journal", "/proc/nowhere/journal", url=incident
    )
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert len(bodies_in_failed(incident)) == 6


def _failure(number: int) -> Delivery:
    own = {
        "redrive-failure-id": str(number),
        "redrive-error-type": "KeyError" if number % 3 else "ValueError",
    }
    return Delivery(
        QUEUE,
        "master.failed",
        QUEUE,
        Properties(headers=Table.of(own), delivery_mode=2),
        str(number).encode(),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("queue_type", ["quorum", nightly("classic", why="the other type")])
def test_a_job_that_is_killed_again_and_again_loses_nothing_and_tells_what_may_be_there_twice(
    rabbitmq_url: str, tmp_path: Path, queue_type: QueueType
) -> None:
    count = effort(1500, nightly=6000)
    redrive(
        "declare",
        "--queue",
        QUEUE,
        "--routing-key",
        "user.*",
        "--queue-type",
        queue_type,
        url=rabbitmq_url,
    )
    FailedQueue(rabbitmq_url, QUEUE).restore(_failure(number) for number in range(count))
    wanted = {str(number) for number in range(count) if number % 3}
    journal = tmp_path / "journal.sqlite3"
    command = [
        "failed",
        "requeue",
        QUEUE,
        "--where",
        "error_type = 'KeyError'",
        "--rate",
        "60/s",
        "--yes",
    ]
    for _ in range(effort(2, nightly=10)):
        sent = _sent(journal)
        with running(*command, "--journal", str(journal), url=rabbitmq_url) as process:

            def sends(process: Process = process, sent: int = sent) -> bool:
                assert not process.has_ended
                return _sent(journal) > sent

            wait_until(sends, "the job sends")
            time.sleep(random.random() / 4)
            process.signal(signal.SIGKILL)
            process.end()
        job = _job_in(journal)
        assert job.state is State.INTERRUPTED
        command = ["jobs", "resume", job.id, "--yes"]
    resumed = redrive(*command, "--journal", str(journal), url=rabbitmq_url)
    assert resumed.code == 0, resumed.err
    job = _job_in(journal)
    main = Counter(body.decode() for _, body in drain(rabbitmq_url, QUEUE))

    assert main.keys() == wanted
    assert main.total() - len(main) <= job.possible_duplicates
    assert (job.state, job.sent) == (State.DONE, len(wanted))
    assert {body.decode() for body in bodies_in_failed(rabbitmq_url)} == {
        str(number) for number in range(0, count, 3)
    }


def _sent(journal: Path) -> int:
    """How many messages the only job of a journal has sent."""
    if not journal.exists():
        return 0
    with LocalJournal(journal) as opened:
        return sum(job.sent for job in opened.jobs())


def _job_in(journal: Path) -> JobRecord:
    """The only job of a journal."""
    with LocalJournal(journal) as opened:
        (job,) = opened.jobs()
    return job
