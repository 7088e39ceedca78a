"""The second question about a failed queue: answered from what the first one has found, without a
touch of the queue, and never by a command that acts."""

from pathlib import Path

import pytest

from cli_support import Outcome, declare, depth_of, give_up_on, redrive
from redrive import FailedQueue
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.index import Index
from redrive.failures.store.index_writer import IndexWriter
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.url import BrokerURL
from redrive.topology.model import Queue

QUEUE = "ucenter@user"
SQL = "select error_type, count(*) as n from failed group by all order by n desc"


@pytest.fixture
def incident(rabbitmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A failed queue with three KeyErrors and two ValueErrors, and an index that knows nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("REDRIVE_INDEX", raising=False)
    give_up_on(rabbitmq_url, QUEUE, [{"n": n} for n in range(3)], KeyError("no country 'DE'"))
    give_up_on(rabbitmq_url, QUEUE, [{"n": 7}, b"hello"], ValueError("no plan 17"))
    return rabbitmq_url


def asked(*arguments: str, url: str) -> Outcome:
    """`redrive failed …` that has to work, in JSON."""
    done = redrive("failed", *arguments, "--output", "json", url=url)
    assert done.code == 0, done.err
    return done


def is_known(url: str) -> bool:
    return Index(BrokerURL.parse(url)).find(f"{QUEUE}@failed") is not None


def deliveries_so_far(url: str) -> set[int]:
    """How many times the messages were delivered before this look, by what the broker counts: from
    4.3 on, a return does not count as a failed delivery."""
    return {
        max(
            int(str(message.headers.get(name) or 0))
            for name in ("x-delivery-count", "x-acquired-count")
        )
        for message in FailedQueue(url, QUEUE).browse()
    }


@pytest.mark.versions("whether a look leaves a trace in the queue")
def test_the_second_question_has_the_same_answer_and_touches_nothing(incident: str) -> None:
    questions = (
        ("groups", QUEUE),
        ("groups", QUEUE, "--by", "retries"),
        ("groups", QUEUE, "--where", "error_type = 'KeyError'"),
        ("list", QUEUE),
        ("list", QUEUE, "--newest", "--where", "size > 1"),
        ("query", QUEUE, SQL),
    )
    first = asked(*questions[0], url=incident)
    assert (first.json()["answered_from"], "From the look" in first.err) == ("queue", False)
    kept = [asked(*question, url=incident) for question in questions]
    for done in kept:
        assert done.err.startswith("From the look of "), done.err
        assert "5 messages; --fresh looks again." in done.err
        assert (done.json()["answered_from"], done.json()["depth_now"]) == ("index", 5)
    one = kept[3].json()["messages"][0]["failure_id"]
    shown = asked("show", QUEUE, one, url=incident).json()
    assert (shown["answered_from"], shown["as_of"]) == ("index", kept[3].json()["as_of"])
    assert deliveries_so_far(incident) == {1}, "only the first question was a look"
    for question, done in zip(questions, kept, strict=True):
        looked = asked(*question, "--index", "off", url=incident).json()
        found = done.json()
        for name in ("answered_from", "as_of", "depth_now"):
            looked.pop(name)
            found.pop(name)
        if question[0] == "list":
            for message in (*looked["messages"], *found["messages"]):
                message["headers"] = None  # the broker counts in them how often it was looked at
        assert found == looked


def test_what_has_come_since_is_said_and_seen_by_a_fresh_look(incident: str) -> None:
    asked("groups", QUEUE, url=incident)
    give_up_on(incident, QUEUE, [{"n": 9}], KeyError("no country 'FR'"))
    done = asked("groups", QUEUE, url=incident)
    assert "The queue has 1 more now." in done.err
    assert (done.json()["messages"], done.json()["depth_now"]) == (5, 6)
    assert asked("groups", QUEUE, "--fresh", url=incident).json()["messages"] == 6
    again = asked("groups", QUEUE, url=incident)
    assert (again.json()["messages"], again.json()["answered_from"]) == (6, "index")
    assert "more now" not in again.err


@pytest.mark.versions("how the broker counts deliveries, and what of a message it rewrites")
def test_a_second_look_reads_and_writes_only_what_has_come(
    incident: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[bytes] = []
    note_down = IndexWriter._note_down

    def counted(self: IndexWriter, message: FailedMessage) -> None:
        written.append(message.body)
        note_down(self, message)

    monkeypatch.setattr(IndexWriter, "_note_down", counted)
    asked("groups", QUEUE, url=incident)
    assert len(written) == 5
    asked("groups", QUEUE, "--fresh", url=incident)  # now the broker has counted a delivery
    assert len(written) == 5
    written.clear()
    where = ("--where", "body->>'n' = '1'")
    asked("discard", QUEUE, *where, "-o", str(tmp_path / "a.parquet"), "--yes", url=incident)
    give_up_on(incident, QUEUE, [{"n": 9}], KeyError("no country 'FR'"))
    found = asked("groups", QUEUE, "--fresh", url=incident).json()
    assert (found["messages"], written) == (5, [b'{"n":9}'])
    kept = asked("query", QUEUE, "select body->>'n' as n from failed order by n", url=incident)
    looked = asked(
        "query", QUEUE, "select body->>'n' as n from failed order by n", "--fresh", url=incident
    )
    assert kept.json()["rows"] == looked.json()["rows"]


def test_a_look_that_is_too_old_does_not_answer(incident: str) -> None:
    asked("groups", QUEUE, url=incident)
    done = asked("groups", QUEUE, "--index", "1ms", url=incident)
    assert done.json()["answered_from"] == "queue"


@pytest.mark.nightly("the index is tried each time")
def test_nothing_is_kept_where_it_is_off(incident: str, tmp_path: Path) -> None:
    asked("groups", QUEUE, "--index", "off", url=incident)
    assert not is_known(incident)
    assert not (tmp_path / "redrive" / "index").exists()


def test_a_look_at_some_is_not_kept(incident: str) -> None:
    asked("groups", QUEUE, "--look-at", "2", url=incident)
    asked("list", QUEUE, "--limit", "1", url=incident)
    assert not is_known(incident)


def test_a_part_of_a_kept_look_is_its_oldest_messages(incident: str) -> None:
    asked("groups", QUEUE, url=incident)
    found = asked("groups", QUEUE, "--look-at", "4", url=incident).json()
    assert (found["answered_from"], found["messages"], found["total"]) == ("index", 4, 5)
    done = redrive(
        "failed", "groups", QUEUE, "--look-at", "4", "--where", "failed_at < now()", url=incident
    )
    assert done.code != 0
    assert "would miss the newest" in done.err


def test_a_requeue_looks_at_the_queue_and_the_next_question_looks_anew(incident: str) -> None:
    asked("groups", QUEUE, url=incident)
    give_up_on(incident, QUEUE, [{"n": 9}], KeyError("no country 'FR'"))
    done = redrive(
        "failed", "requeue", QUEUE, "--where", "error_type = 'KeyError'", "--yes", url=incident
    )
    assert done.code == 0, done.err
    assert depth_of(incident, QUEUE)["main"] == 4, "the one that came after the look was sent, too"
    assert asked("groups", QUEUE, url=incident).json()["messages"] == 2


def test_after_a_discard_and_a_restore_the_next_question_looks_anew(
    incident: str, tmp_path: Path
) -> None:
    asked("groups", QUEUE, url=incident)
    file = str(tmp_path / "gone.jsonl")
    assert redrive("failed", "discard", QUEUE, "-o", file, "--yes", url=incident).code == 0
    assert asked("groups", QUEUE, url=incident).json()["messages"] == 0
    assert redrive("failed", "restore", file, "--yes", url=incident).code == 0
    assert not is_known(incident)
    assert asked("groups", QUEUE, url=incident).json()["messages"] == 5


def test_a_damaged_index_is_one_line_and_a_new_look(incident: str) -> None:
    asked("groups", QUEUE, url=incident)
    index = Index(BrokerURL.parse(incident))
    data = next(index.folder.glob("*.parquet"))
    data.write_bytes(b"\0" * data.stat().st_size)
    done = asked("groups", QUEUE, url=incident)
    assert "is damaged: the queue is read again." in done.err
    assert "Traceback" not in done.err
    assert done.json()["answered_from"] == "queue"
    assert asked("groups", QUEUE, url=incident).json()["answered_from"] == "index"


def test_a_queue_that_is_gone_is_no_answer_of_yesterday(incident: str) -> None:
    asked("groups", QUEUE, url=incident)
    with declaring(Connector(incident, "delete")) as declarer:
        declarer.delete(Queue(f"{QUEUE}@failed"))
    done = redrive("failed", "groups", QUEUE, url=incident)
    assert "there is no queue" in done.err
    assert not is_known(incident)


def test_an_empty_queue_is_known_to_be_empty(incident: str) -> None:
    declare(incident, "other@queue")
    asked("groups", "other@queue", url=incident)
    found = asked("groups", "other@queue", url=incident).json()
    assert (found["answered_from"], found["messages"]) == ("index", 0)
