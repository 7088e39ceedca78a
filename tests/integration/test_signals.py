"""SIGTERM ends a worker after what it has begun; a second one ends it at once."""

import time
from pathlib import Path

from worker_process import Notes, Worker

from contract.shells import Shell
from contract.support import Recorder, Service, both_shells
from waiting import wait_until


@both_shells
def test_a_worker_asked_to_leave_finishes_what_runs_acks_it_and_leaves(
    rabbitmq_url: str, shell: Shell, tmp_path: Path
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare()
    ids = service.publish_numbered(5)
    with Worker(service, notes, "take long") as worker:
        wait_until(lambda: notes.begun, "a handler runs")
        worker.terminate()
        assert worker.wait() == 0
    rest = Recorder()
    with service.subscriber(rest):
        rest.wait_for_handled(ids[1:])

    assert notes.left_in_order == 1
    assert notes.handled == {ids[0]: 1}
    assert rest.order == ids[1:]


@both_shells
def test_a_second_signal_ends_a_worker_at_once(
    rabbitmq_url: str, shell: Shell, tmp_path: Path
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare()
    message_id = service.publish("hang")
    with Worker(service, notes, "hang") as worker:
        wait_until(lambda: notes.begun, "a handler runs")
        worker.terminate()
        asked_at = time.monotonic()
        while time.monotonic() < asked_at + 1:
            assert worker.process.poll() is None
            time.sleep(0.05)
        wait_until(lambda: notes.asked_to_leave, "it has heard the first")
        worker.terminate()
        assert worker.wait() == 0
    recorder = Recorder()
    with service.subscriber(recorder):
        recorder.wait_for_handled([message_id])


@both_shells
def test_a_worker_whose_handler_does_not_end_leaves_when_its_grace_is_over(
    rabbitmq_url: str, shell: Shell, tmp_path: Path
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    notes = Notes(tmp_path / "notes")
    service.declare()
    message_id = service.publish("hang")
    with Worker(service, notes, "hang", grace=1) as worker:
        wait_until(lambda: notes.begun, "a handler runs")
        worker.terminate()
        assert worker.wait() == 0
    recorder = Recorder()
    with service.subscriber(recorder):
        recorder.wait_for_handled([message_id])


def test_a_worker_that_waits_for_messages_leaves_at_once(rabbitmq_url: str, tmp_path: Path) -> None:
    service = Service(rabbitmq_url)
    notes = Notes(tmp_path / "notes")
    service.declare()
    message_id = service.publish()
    with Worker(service, notes) as worker:
        wait_until(lambda: message_id in notes.handled, "the worker is at work")
        worker.terminate()
        assert worker.wait() == 0

    assert notes.left_in_order == 1
