"""What can be asked of failed messages, and done with them, from a program: by threads and on an
event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.plain import plain_channel
from contract.support import OutOfStock, Recorder, Service, retrying
from redrive import (
    AsyncFailedQueue,
    AsyncJob,
    Cause,
    ConfigurationError,
    FailedMessage,
    FailedQueue,
    Filter,
    Journal,
    Message,
    Snapshot,
)
from redrive.pubsub.reports import LookProgress, RequeueProgress
from waiting import wait_until

COUNT = 30
"""Messages of two causes: every third one has failed for a KeyError."""


class Awaited:
    """An object of the asyncio shell, each of whose methods is run to its end."""

    def __init__(self, inner: AsyncFailedQueue | AsyncJob) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: object, **named: object) -> object:
            async def run() -> object:
                result = found(*arguments, **named)
                if hasattr(result, "__aiter__"):
                    return [one async for one in result]
                return await result

            done = asyncio.run(run())
            return Awaited(done) if isinstance(done, AsyncJob) else done

        return call


def blocking(url: str, queue: str) -> Any:
    """The failed queue, for threads."""
    return FailedQueue(url, queue)


def on_an_event_loop(url: str, queue: str) -> Any:
    """The failed queue, for an event loop."""
    return Awaited(AsyncFailedQueue(url, queue))


Opens = Callable[[str, str], Any]
both = pytest.mark.parametrize("opened", [blocking, on_an_event_loop], ids=["blocking", "async"])


@pytest.fixture
def service(rabbitmq_url: str) -> Service:
    """A service whose failed queue has thirty messages."""
    service = Service(rabbitmq_url, retry=retrying(0))
    service.declare()
    kinds = ("KeyError", "TimeoutError", "TimeoutError")
    service.set_aside_each(
        {
            "redrive-failure-id": f"failure-{number:02}",
            "redrive-error-type": kinds[number % 3],
            "redrive-error-message": f"no plan {number}",
            "redrive-test-number": number,
        }
        for number in range(COUNT)
    )
    return service


def numbers(messages: Any) -> list[int]:
    """Which of them these are."""
    return [int(str(message.headers["redrive-test-number"])) for message in messages]


KEY_ERRORS = list(range(0, COUNT, 3))
OTHERS = [number for number in range(COUNT) if number % 3]


@both
def test_causes_are_told_the_most_frequent_first_and_nothing_moves(
    service: Service, opened: Opens
) -> None:
    failed = opened(service.url, service.queue)
    causes = failed.causes()
    assert [(one.key.error_type, one.count) for one in causes] == [
        ("TimeoutError", 20),
        ("KeyError", 10),
    ]
    assert isinstance(causes[0].key, Cause)
    assert [one.count for one in failed.causes("error_type = 'KeyError'")] == [10]
    assert [one.key for one in failed.causes(by="error_type", look_at=1)] == ["KeyError"]
    assert failed.depth() == COUNT


@both
@pytest.mark.parametrize(
    "where",
    [
        "error_type = 'KeyError'",
        lambda message: message.error_type == "KeyError",
        Filter("error_type = 'KeyError'"),
    ],
    ids=["expression", "function", "filter"],
)
def test_messages_are_chosen_by_an_expression_a_function_or_a_filter(
    service: Service, opened: Opens, where: Any
) -> None:
    failed = opened(service.url, service.queue)
    assert numbers(failed.messages(where)) == KEY_ERRORS
    assert numbers(failed.messages(where, 2)) == KEY_ERRORS[:2]
    assert numbers(failed.messages(where, 0)) == []
    assert failed.plan(where).count == 10
    assert failed.requeue(where).requeued == 10
    assert numbers(service.failed()) == OTHERS


@both
def test_a_query_has_columns_and_rows(service: Service, opened: Opens) -> None:
    answer = opened(service.url, service.queue).query(
        "select error_type, count(*) as n from failed group by all order by n;"
    )
    assert answer.columns == ["error_type", "n"]
    assert answer.rows == [
        {"error_type": "KeyError", "n": 10},
        {"error_type": "TimeoutError", "n": 20},
    ]


@both
def test_a_snapshot_is_asked_as_the_queue_is(
    service: Service, opened: Opens, tmp_path: Path
) -> None:
    failed = opened(service.url, service.queue)
    assert failed.snapshot(tmp_path / "all.parquet") == COUNT
    assert failed.snapshot(str(tmp_path / "some.jsonl"), "error_type = 'KeyError'") == 10
    kept = Snapshot(tmp_path / "all.parquet")
    assert [(one.key, one.count) for one in kept.causes()] == [
        (one.key, one.count) for one in failed.causes()
    ]
    assert numbers(Snapshot(tmp_path / "some.jsonl").messages()) == KEY_ERRORS
    assert kept.query("select count(*) as n from failed").rows == [{"n": COUNT}]


@both
def test_a_look_is_answered_again_only_where_that_is_asked_for(
    service: Service, opened: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    failed = opened(service.url, service.queue)
    looks: list[LookProgress] = []
    assert sum(one.count for one in failed.causes(max_age="15m")) == COUNT
    with plain_channel(service.url) as channel:  # redrive itself would drop what it knows
        channel.basic_publish("", f"{service.queue}@failed", b"one more")
    wait_until(lambda: failed.depth() == COUNT + 1, "there is one more")
    known = failed.causes(max_age="15m", on_progress=looks.append)
    assert sum(one.count for one in known) == COUNT
    assert not any(look.held for look in looks)
    assert sum(one.count for one in failed.causes()) == COUNT + 1


@both
def test_a_plan_says_what_a_requeue_does(service: Service, opened: Opens) -> None:
    failed = opened(service.url, service.queue)
    plan = failed.plan("error_type = 'KeyError'", 4)
    assert (plan.count, plan.is_cut, numbers(plan.first)) == (4, True, KEY_ERRORS[:4])
    assert plan.queues == [service.queue]
    assert service.failed_queue.depth() == COUNT
    job = failed.requeue("error_type = 'KeyError'", 4, reason="the plan is back")
    assert (job.state, job.requeued, job.record.reason) == ("done", 4, "the plan is back")
    assert numbers(service.failed()) == sorted({*OTHERS, *KEY_ERRORS[4:]})


@both
def test_bodies_are_changed_by_a_patch_or_a_function(service: Service, opened: Opens) -> None:
    failed = opened(service.url, service.queue)
    seen = Recorder()
    with service.subscriber(seen):
        failed.requeue(limit=1, edit=lambda message: b"mended")
        wait_until(lambda: seen.handled, "it is handled")
    assert [attempt.body for attempt in seen.attempts] == [b"mended"]
    with pytest.raises(ConfigurationError, match="is not JSON"):
        failed.plan(patch="{")


class Plans:
    """A service's handler that is broken until it is mended."""

    def __init__(self) -> None:
        self.mended = threading.Event()

    def __call__(self, message: Message) -> None:
        if not self.mended.is_set():
            raise OutOfStock("still none")


@both
def test_a_canary_that_fails_stops_the_job_which_goes_on_when_it_is_resumed(
    service: Service, opened: Opens
) -> None:
    failed = opened(service.url, service.queue)
    plans = Plans()
    seen = Recorder(plans)
    with service.subscriber(seen):
        job = failed.requeue("error_type = 'KeyError'", canary=3, watch="60s")
        # As soon as one has failed, it stops: perhaps before it has sent the second.
        assert job.state == "stopped"
        assert 1 <= job.requeued <= 3
        assert "failed again" in job.problem
        sent = job.requeued
        wait_until(lambda: job.outcome().failed_again == sent, "they are told to have failed")
        assert sum(job.outcome()) == sent
        plans.mended.set()
        assert job.left().count == 10 - sent
        resumed = job.resume()
        assert (resumed.state, resumed.record.sent) == ("done", 10)
        wait_until(lambda: resumed.outcome().succeeded == 10 - sent, "the rest has succeeded")
    assert resumed.resume().requeued == resumed.requeued  # it is done
    assert seen.handled.total() == 10 - sent
    assert sorted(numbers(service.failed())) == sorted([*OTHERS, *KEY_ERRORS[:sent]])


def stops_at(count: int, cancel: threading.Event) -> Callable[[RequeueProgress], None]:
    """Has a job cancelled once it has sent so many."""

    def told(progress: RequeueProgress) -> None:
        if progress.requeued >= count:
            cancel.set()

    return told


@contextmanager
def journal_at(url: str, path: Path) -> Iterator[Journal]:
    """The team's journal, as somebody sees it who has this local file."""
    with Journal(url, path) as journal:
        yield journal


@both
def test_a_job_is_found_and_resumed_by_the_teams_journal_from_another_machine(
    service: Service, opened: Opens, tmp_path: Path
) -> None:
    failed = opened(service.url, service.queue)
    cancel = threading.Event()
    with journal_at(service.url, tmp_path / "mine.sqlite3") as mine:
        job = failed.requeue(
            "error_type = 'TimeoutError'",
            rate=20,
            reason="the network is back",
            journal=mine,
            on_progress=stops_at(3, cancel),
            cancel=cancel,
        )
    assert (job.state, job.cancelled) == ("interrupted", True)
    with journal_at(service.url, tmp_path / "theirs.sqlite3") as theirs:
        (record,) = theirs.jobs()
        assert (record.id, record.reason) == (job.id, "the network is back")
        assert (record.planned, record.plan["not_meant"]) == (20, 10)
        found = failed.job(record.id[:8], theirs)
        assert found.order.filter.where == "error_type = 'TimeoutError'"
        resumed = found.resume()
        assert (resumed.state, resumed.record.sent) == ("done", 20)
        (record,) = theirs.jobs()
        assert (record.state, record.sent) == ("done", 20)
    assert numbers(service.failed()) == KEY_ERRORS


@both
def test_what_a_function_of_a_program_chose_is_resumed_by_the_program_alone(
    service: Service, opened: Opens, tmp_path: Path
) -> None:
    failed = opened(service.url, service.queue)
    cancel = threading.Event()

    def chosen(message: FailedMessage) -> bool:
        return message.error_type == "KeyError"

    with journal_at(service.url, tmp_path / "journal.sqlite3") as journal:
        job = failed.requeue(
            chosen,
            rate=10,
            journal=journal,
            on_progress=stops_at(2, cancel),
            cancel=cancel,
        )
        with pytest.raises(ConfigurationError, match="a function of the program that began it"):
            failed.job(job.id, journal).resume()
        assert job.resume().record.sent == 10
    assert numbers(service.failed()) == OTHERS


@both
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"stop_at": 5}, "`stop_at` is 5"),
        ({"canary": -1}, "`canary` is -1"),
        ({"edit": lambda message: b"", "patch": "{}"}, "exclude each other"),
        ({"to": "a", "via": True}, "exclude each other"),
        ({"to": "nowhere", "canary": 1}, "there is no queue 'nowhere'"),
        ({"where": "error_typ = 'KeyError'"}, "error_typ"),
        ({"watch": "soon", "canary": 1}, "soon"),
    ],
    ids=["share", "canary", "two edits", "two ways", "no such queue", "no such column", "watch"],
)
def test_what_can_not_be_is_told_before_anything_is_sent(
    service: Service, opened: Opens, arguments: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigurationError, match=what):
        opened(service.url, service.queue).requeue(**arguments)
    assert service.failed_queue.depth() == COUNT


@both
def test_a_question_that_can_not_be_is_told(service: Service, opened: Opens) -> None:
    failed = opened(service.url, service.queue)
    with pytest.raises(ConfigurationError, match="there is no column 'colour'"):
        failed.causes(by="colour")
    with pytest.raises(ConfigurationError, match="SELECT"):
        failed.query("delete from failed")
    with pytest.raises(ConfigurationError, match="there is no queue"):
        opened(service.url, "nobody@nowhere").causes()


@both
def test_a_job_of_another_queue_is_not_taken_up(
    service: Service, opened: Opens, tmp_path: Path
) -> None:
    other = Service(service.url, queue="other@queue", routing_keys=("other",))
    other.set_aside(1)
    with journal_at(service.url, tmp_path / "journal.sqlite3") as journal:
        job = FailedQueue(other.url, other.queue).requeue(journal=journal)
        with pytest.raises(ConfigurationError, match="belongs to 'other@queue'"):
            opened(service.url, service.queue).job(job.id, journal)
