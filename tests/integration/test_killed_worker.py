"""A worker that dies takes no message with it."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from worker_process import Notes, Supervised, Worker

from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import Recorder, Service, mostly
from effort import effort, nightly
from redrive.topology.model import QueueType
from waiting import wait_until

pytestmark = [pytest.mark.timeout(480), pytest.mark.versions("how the broker counts deliveries")]


def _names(value: object) -> str:
    return str(getattr(value, "name", value))


@pytest.mark.parametrize(
    ("shell", "queue_type"),
    [
        (BLOCKING, "quorum"),
        nightly(BLOCKING, "classic", why="the other type"),
        nightly(ASYNC, "quorum", why="the other shell"),
    ],
    ids=_names,
)
def test_a_worker_killed_in_its_handler_loses_no_message(
    rabbitmq_url: str, shell: Shell, queue_type: QueueType, tmp_path: Path
) -> None:
    service = Service(rabbitmq_url, shell=shell, queue_type=queue_type)
    notes = Notes(tmp_path / "notes")
    service.declare()
    before = service.publish_numbered(20)
    held = service.publish("hang")
    after = service.publish_numbered(20)
    with Worker(service, notes, "hang", prefetch=10) as worker:
        wait_until(lambda: held in notes.begun, "the handler hangs")
        worker.kill()
    rest = Recorder()
    with service.subscriber(rest):
        rest.wait_for_handled([held, *after])

    assert notes.handled.keys() | rest.handled.keys() == {*before, held, *after}
    # Acked in the same instant that the kill came: at most what the worker held.
    assert (notes.handled + rest.handled).total() <= 41 + 10
    assert service.failed() == []


def test_a_message_that_survives_a_killed_worker_has_no_fewer_retries_left(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    service = Service(rabbitmq_url)
    notes = Notes(tmp_path / "notes")
    service.declare()
    held = service.publish("hang")
    for _ in range(3):
        with Worker(service, notes, "hang") as worker:
            count = notes.begun[held]
            wait_until(lambda count=count: notes.begun[held] > count, "the handler hangs")  # type: ignore[misc]
            worker.kill()
    recorder = Recorder(lambda _: 1 / 0)
    with service.subscriber(recorder):
        service.wait_for_failed()

    assert [attempt.retries for attempt in recorder.attempts] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("shell", "behaviour", "failures"),
    [
        (BLOCKING, "fail then die", 2),
        nightly(BLOCKING, "die", 0, why="dying is half of failing and dying"),
        (ASYNC, "die", 0),
    ],
    ids=_names,
)
def test_a_message_that_kills_its_worker_each_time_is_set_aside_and_its_neighbours_are_handled(
    rabbitmq_url: str, tmp_path: Path, shell: Shell, behaviour: str, failures: int
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare()
    before = service.publish_numbered(10)
    poison = service.publish("poison")
    after = service.publish_numbered(10)
    with Supervised(service, notes, behaviour) as supervised:
        supervised.wait_until(lambda: service.failed_queue.depth() == 1, "the poison is set aside")
        supervised.wait_until(
            lambda: {*before, *after} <= notes.handled.keys(), "its neighbours are handled"
        )
    (failed,) = service.failed()

    assert failed.message_id == poison
    assert failed.reason == "crashed"
    assert failed.error_type == "redrive.Crashed"
    assert notes.begun[poison] == failures + supervised.deaths
    # RabbitMQ 3.10 counts deliveries anew after each retry: one more crash passes for each.
    assert 5 <= supervised.deaths <= 5 + failures
    assert notes.handled.keys() == {*before, *after}


@mostly(BLOCKING)
def test_what_was_in_hand_beside_a_message_that_kills_counts_its_first_crash_and_no_other(
    rabbitmq_url: str, tmp_path: Path, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare()
    good = service.publish_numbered(20)
    poison = service.publish("poison")
    good += service.publish_numbered(20)
    options = {"concurrency": 4, "max_crashes": 2}
    with (
        Supervised(service, notes, "die beside others", **options) as one,
        Supervised(service, notes, "die beside others", **options) as other,
    ):
        one.wait_until(
            lambda: (
                other.revived() and service.failed_queue.depth() and notes.handled.keys() >= {*good}
            ),
            "the poison is set aside, and all others are handled",
        )

    assert [message.message_id for message in service.failed()] == [poison]
    assert one.deaths + other.deaths == 2


@pytest.mark.nightly("one message that kills is tried each time")
def test_two_messages_that_kill_their_worker_are_both_set_aside(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    service = Service(rabbitmq_url)
    notes = Notes(tmp_path / "notes")
    service.declare()
    poison = [service.publish("poison"), service.publish("poison")]
    good = service.publish_numbered(10)
    with Supervised(service, notes, "die") as supervised:
        supervised.wait_until(lambda: {*service.failed_ids()} == {*poison}, "both are set aside")
        supervised.wait_until(
            lambda: set(good) <= notes.handled.keys(), "their neighbours are handled"
        )

    failed = service.failed()
    assert {message.message_id for message in failed} == set(poison)
    assert {message.reason for message in failed} == {"crashed"}
    # A delivery that the other one's crash took along counts, whether its handler had begun or not.
    assert max(notes.begun[message_id] for message_id in poison) <= 5


@mostly(BLOCKING)
def test_rolling_deploys_by_signals_and_kills_set_nothing_aside(
    rabbitmq_url: str, tmp_path: Path, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare()
    ids: list[str] = []
    with ExitStack() as workers:
        old = workers.enter_context(Worker(service, notes, "take a moment", prefetch=50))
        for number in range(effort(3, nightly=12)):
            ids += service.publish_numbered(100)
            begun = notes.begun.total()
            wait_until(lambda begun=begun: notes.begun.total() > begun, "messages are handled")  # type: ignore[misc]
            new = workers.enter_context(Worker(service, notes, "take a moment", prefetch=50))
            if number % 2:
                old.kill()
            else:
                old.terminate()
                assert old.wait() == 0
            old = new
        wait_until(lambda: notes.handled.keys() >= {*ids}, "all are handled")

    assert service.failed() == []


@pytest.mark.parametrize(
    ("shell", "behaviour"),
    [
        (BLOCKING, "fork and return"),
        (ASYNC, "fork and exit"),
        nightly(BLOCKING, "fork and exit", why="the other way"),
        nightly(ASYNC, "fork and return", why="the other way"),
    ],
    ids=_names,
)
def test_a_process_that_a_handler_forks_ends_with_the_handler(
    rabbitmq_url: str, tmp_path: Path, shell: Shell, behaviour: str
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare()
    ids = service.publish_numbered(3)
    with Worker(service, notes, behaviour) as worker:
        wait_until(lambda: notes.handled.keys() == {*ids}, "its children have ended, each time")
        worker.terminate()
        assert worker.wait() == 0

    once = dict.fromkeys(ids, 1)
    assert notes.begun == notes.handled == once
    assert notes.of("after") == once, "the middleware of the child was not run"


@mostly(BLOCKING)
def test_an_ordered_queue_keeps_its_order_while_its_workers_are_killed(
    rabbitmq_url: str, tmp_path: Path, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare(ordered=True)
    ids: list[str] = []
    for round_ in range(3):
        # A worker may be done with all of these before the kill comes: each finds new ones, and so
        # does the last.
        ids += service.publish_numbered(100)
        with Worker(service, notes, ordered=True) as worker:
            least = 100 * round_ + 50
            wait_until(lambda least=least: len(notes.handled) > least, "it has handled some")  # type: ignore[misc]
            worker.kill()
    ids += service.publish_numbered(100)
    rest = Recorder()
    with service.subscriber(rest, ordered=True):
        rest.wait_for_handled(ids[-1:])
    order = [*notes.handled_in_order, *rest.order]

    # What was handled in the instant of a kill, and not acked, is handled again; nothing else comes
    # before it.
    assert list(dict.fromkeys(order)) == ids
    assert len(order) <= len(ids) + 3
    assert [ids.index(message_id) for message_id in order] == sorted(
        ids.index(message_id) for message_id in order
    )
