"""A failed queue with a limit refuses what it has no room for, and nothing is dropped."""

import time

import pytest

from contract.plain import drain
from contract.support import Recorder, Service, always_fails, both_types, retrying
from redrive import Message
from waiting import wait_until


@both_types
def test_what_a_full_failed_queue_refuses_stays_until_there_is_room(service: Service) -> None:
    def fails_slowly(message: Message) -> None:
        time.sleep(0.02)
        always_fails(message)

    handler = Recorder(fails_slowly)
    with service.subscriber(handler, retry=retrying(0), max_failed=5, prefetch=20):
        ids = service.publish_numbered(60)
        handler.wait_for_attempts(25)
        wait_until(lambda: service.failed_queue.depth() >= 5, "it is full")
    # Quorum queues check the limit a moment late. Source: https://www.rabbitmq.com/docs/maxlength
    kept = service.failed_ids()
    assert 5 <= len(kept) < 60
    assert service.failed_queue.purge() == len(kept)
    rest = Recorder()
    with service.subscriber(rest, retry=retrying(0), max_failed=5):
        rest.wait_for_handled(set(ids) - set(kept))

    assert rest.handled.keys() | set(kept) == set(ids)
    assert rest.handled.keys().isdisjoint(kept)


@both_types
def test_a_stop_does_not_wait_for_room(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry=retrying(0), max_failed=1, prefetch=20):
        ids = service.publish_numbered(1)
        wait_until(lambda: service.failed_queue.depth() == 1, "it is full")

        def one_more_is_refused() -> bool:
            # A quorum queue checks the limit a moment late, and a busy one takes some more.
            ids.extend(service.publish_numbered(1))
            return "trying again" in caplog.text

        wait_until(one_more_is_refused, "some are refused")
    rest = Recorder()
    with service.subscriber(rest, retry=retrying(0), max_failed=1):
        wait_until(
            lambda: rest.handled.keys() | set(service.failed_ids()) == set(ids),
            "all are handled or set aside",
        )

    assert "will be delivered again" in caplog.text
    assert "grace period" not in caplog.text


@pytest.mark.versions("how a full queue refuses")
@both_types
def test_what_was_refused_is_set_aside_once_there_is_room(service: Service) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry=retrying(0), max_failed=1):
        ids = service.publish_numbered(3)
        handler.wait_for_attempts(3)
        seen: set[str] = set()

        def all_have_been_there() -> bool:
            seen.update(
                str(properties.message_id)
                for properties, _ in drain(service.url, f"{service.queue}@failed")
            )
            return seen >= set(ids)

        wait_until(all_have_been_there, "each was in the failed queue")

    assert handler.tried.keys() == set(ids)
    assert handler.tried.total() == 3
