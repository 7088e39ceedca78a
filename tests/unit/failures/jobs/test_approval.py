"""A requeue that one person asks for and another approves, on the broker in memory."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pika
import pytest

from redrive import FailedQueue
from redrive.errors import ConfigurationError
from redrive.failures.jobs.approval import approve, ask
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal_entry import EDITS_LEFT_OUT
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.message_source import answer_of
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.testing import MemoryBroker

QUEUE = "ucenter@user"
FAILED = f"{QUEUE}@failed"
KEY_ERRORS = Order(Filter("error_type = 'KeyError'"))


class JournalOf(LocalJournal):
    """A journal that somebody has open, whom the broker vouches for."""

    def __init__(self, path: Path, user: str) -> None:
        self._name = user
        super().__init__(path)

    @property
    def _user(self) -> str:
        return self._name


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """A broker with five failed messages, three of them KeyErrors."""
    with MemoryBroker(real_time=True) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            for queue in (QUEUE, FAILED):
                channel.queue_declare(queue, durable=True)
        for number in range(5):
            fail(broker, f"id-{number}", "KeyError" if number < 3 else "OSError")
        yield broker


@pytest.fixture
def failed(broker: MemoryBroker) -> FailedQueue:
    return FailedQueue(broker.url, QUEUE)


@pytest.fixture
def anna(tmp_path: Path) -> Iterator[LocalJournal]:
    """The journal as Anna has it open."""
    with JournalOf(tmp_path / "journal.sqlite3", "anna") as journal:
        yield journal


@pytest.fixture
def ben(tmp_path: Path) -> Iterator[LocalJournal]:
    """The same journal as Ben has it open."""
    with JournalOf(tmp_path / "journal.sqlite3", "ben") as journal:
        yield journal


def fail(broker: MemoryBroker, id_: str, error: str) -> None:
    """Puts a failed message into the failed queue."""
    properties = pika.BasicProperties(  # type: ignore[no-untyped-call]
        message_id=id_,
        headers={
            "redrive-failure-id": id_,
            "redrive-error-type": error,
            "redrive-error-message": "plan",
        },
    )
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().basic_publish("", FAILED, b"{}", properties)


def in_main_queue(broker: MemoryBroker) -> list[str]:
    return sorted(str(one.message_id) for one in broker.messages(QUEUE))


def asked(failed: FailedQueue, journal: LocalJournal, order: Order = KEY_ERRORS) -> JobRecord:
    """A job that somebody has asked for, of what is in the queue now."""
    return answer_of(
        failed, lambda look: ask(failed, journal, order, look.messages, reason="plans are deployed")
    )[0]


def test_a_job_that_was_asked_for_waits_in_the_journal_and_sends_nothing(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    id_ = asked(failed, anna).id
    waits = ben.job(id_)
    assert (waits.state, waits.planned, waits.user) == (State.ASKED, 3, "anna")
    assert (waits.queue, waits.reason) == (QUEUE, "plans are deployed")
    assert in_main_queue(broker) == []
    assert failed.depth() == 5


def test_what_is_asked_for_is_no_more_than_was_there(
    failed: FailedQueue, anna: LocalJournal
) -> None:
    assert Order.from_json(asked(failed, anna).order).limit == 3


def test_nothing_to_requeue_is_not_asked_for(failed: FailedQueue, anna: LocalJournal) -> None:
    with pytest.raises(ConfigurationError, match="there is nothing to requeue"):
        asked(failed, anna, Order(Filter("error_type = 'nothing'")))
    assert anna.jobs() == []


def test_somebody_else_approves_and_the_very_messages_are_sent(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    job = approve(failed, ben, asked(failed, anna))
    assert (job.state, job.requeued) == (State.DONE, 3)
    assert in_main_queue(broker) == ["id-0", "id-1", "id-2"]
    assert failed.depth() == 2
    known = anna.job(job.id)
    assert known.asked_by.endswith("as anna")
    assert known.approved_by.endswith("as ben")


def test_who_has_asked_can_not_approve(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal
) -> None:
    record = asked(failed, anna)
    with pytest.raises(ConfigurationError, match="who can't approve it"):
        approve(failed, anna, record)
    assert in_main_queue(broker) == []
    assert anna.job(record.id).state is State.ASKED


def test_what_was_asked_for_is_not_approved_by_who_has_seen_something_else(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    seen = asked(failed, anna)
    seen = replace(seen, order={**seen.order, "rate": 5.0})
    with pytest.raises(ConfigurationError, match="is not what was shown"):
        approve(failed, ben, seen)
    assert in_main_queue(broker) == []


@pytest.mark.parametrize(
    "causes",
    [
        lambda real: [{**real[0], "error_type": "TimeoutError"}],
        lambda real: [{**real[0], "count": 2}],
        lambda real: [],
        lambda real: [*real, *real],
        lambda real: [{**real[0], "count": True}],
        lambda real: [[]],
        lambda real: [{**real[0], "group_id": []}],
        lambda real: None,
    ],
    ids=["another error", "fewer", "none", "twice", "yes", "no mappings", "no text", "no list"],
)
def test_a_job_whose_causes_are_made_up_is_not_approved(
    failed: FailedQueue,
    anna: LocalJournal,
    ben: LocalJournal,
    causes: Callable[[list[dict[str, object]]], object],
) -> None:
    asked = ask(failed, anna, KEY_ERRORS, list(failed.browse()), reason="fixed")
    forged = {**asked.plan, "causes": causes(asked.plan["causes"])}  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="names other causes than its messages have"):
        approve(failed, ben, replace(asked, plan=forged))


def test_what_has_not_all_of_its_edits_is_not_approved(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    seen = asked(failed, anna)
    seen = replace(seen, order={**seen.order, EDITS_LEFT_OUT: 1})
    with pytest.raises(ConfigurationError, match="are not in the shared journal"):
        approve(failed, ben, seen)
    assert in_main_queue(broker) == []


def test_where_the_broker_vouches_for_nobody_no_approval_can_be_asked_for(
    failed: FailedQueue, tmp_path: Path
) -> None:
    with (
        LocalJournal(tmp_path / "journal.sqlite3") as journal,
        pytest.raises(ConfigurationError, match="does not vouch for who asks"),
    ):
        asked(failed, journal)


def test_a_queue_with_more_of_what_was_asked_for_is_not_approved(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    record = asked(failed, anna)
    failed.discard("failure_id = 'id-0'")
    fail(broker, "another", "KeyError")
    with pytest.raises(ConfigurationError, match="the queue has changed since"):
        approve(failed, ben, record)
    assert in_main_queue(broker) == []
    assert ben.job(record.id).state is State.ASKED


def test_a_queue_with_less_of_it_is_not_approved_and_both_numbers_are_said(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    record = asked(failed, anna)
    failed.discard("failure_id = 'id-0'")
    with pytest.raises(ConfigurationError, match=r"\(2 of 3 messages\)"):
        approve(failed, ben, record)
    assert in_main_queue(broker) == []


def test_what_else_comes_into_the_queue_is_no_reason_against_it(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    record = asked(failed, anna)
    fail(broker, "another", "OSError")
    assert approve(failed, ben, record).requeued == 3
    assert failed.depth() == 3


def test_what_was_approved_is_not_resumed_for_messages_that_nobody_approved(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    record = asked(failed, anna)
    cancel = threading.Event()
    cancel.set()
    approve(failed, ben, record, cancel=cancel)
    assert anna.job(record.id).state is State.INTERRUPTED
    failed.discard("failure_id = 'id-0'")
    fail(broker, "another", "KeyError")
    for journal in (anna, ben):
        with pytest.raises(ConfigurationError, match="for the messages that were there then"):
            failed.job(record.id, journal).resume()
    assert in_main_queue(broker) == []


def test_a_job_that_was_declined_is_approved_by_nobody(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    record = asked(failed, anna)
    assert ben.decline(record, "too many").problem.endswith("as ben: too many")
    with pytest.raises(ConfigurationError, match="is declined: it is not waiting for approval"):
        approve(failed, ben, ben.job(record.id))
    # Neither by what somebody still has on the screen from before.
    with pytest.raises(ConfigurationError, match="was declined by"):
        approve(failed, ben, record)
    assert in_main_queue(broker) == []


def test_who_has_asked_may_withdraw_it(failed: FailedQueue, anna: LocalJournal) -> None:
    record = asked(failed, anna)
    assert anna.decline(record, "").state is State.DECLINED


def test_a_job_that_ran_can_be_neither_approved_again_nor_declined(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    record = asked(failed, anna)
    approve(failed, ben, record)
    with pytest.raises(ConfigurationError, match="is done: it is not waiting for approval"):
        approve(failed, ben, ben.job(record.id))
    with pytest.raises(ConfigurationError, match="is done: it is not waiting for approval"):
        ben.decline(record, "too late")
    assert in_main_queue(broker) == ["id-0", "id-1", "id-2"]


def test_a_job_that_waits_is_not_run_without_an_approval(
    broker: MemoryBroker, failed: FailedQueue, anna: LocalJournal, ben: LocalJournal
) -> None:
    record = asked(failed, anna)
    with pytest.raises(ConfigurationError, match="waits for approval, asked for by"):
        failed.job(record.id, ben).resume()
    assert in_main_queue(broker) == []
