"""Several people who look at one failed queue, and looks at a part of it: nobody sees a part and
takes it for all."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from contract.plain import plain_channel
from contract.shells import KeepsFailed
from contract.support import Service, assert_it_helps, both_types
from redrive import ConfigurationError
from redrive.pubsub.reports import LookProgress, LookStage
from waiting import wait_until

NOWHERE = "http://127.0.0.1:9"
MANY = 1200
"""More than a look at a few holds by the way."""


@contextlib.contextmanager
def held(failed: KeepsFailed) -> Iterator[None]:
    """Somebody looks, and holds messages, for as long as the block."""
    messages = failed.browse()
    next(messages)
    try:
        yield
    finally:
        messages.close()


@contextlib.contextmanager
def foreign_reader(url: str, queue: str, count: int) -> Iterator[None]:
    """A consumer that is none of redrive's holds so many messages for as long as the block."""
    with plain_channel(url) as channel:
        channel.basic_qos(prefetch_count=count)
        for taken, _ in enumerate(channel.consume(queue), 1):
            if taken == count:
                break
        yield


def ids_of(failed: KeepsFailed, limit: int | None = None) -> list[str | None]:
    return [message.message_id for message in failed.browse(limit)]


@contextlib.contextmanager
def failures_keep_coming(service: Service) -> Iterator[threading.Event]:
    """New messages in the failed queue, a hundred a second, for as long as the block; gives what is
    set when they have ended."""
    over, ended = threading.Event(), threading.Event()

    def fail() -> None:
        with plain_channel(service.url) as channel:
            while not over.wait(0.01):
                channel.basic_publish("", f"{service.queue}@failed", b"{}", mandatory=True)
        ended.set()

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        service_has = service.failed_queue
        wait_until(lambda: service_has.depth() > 0, "the first has come")
        yield ended
    finally:
        over.set()
        thread.join()


# --- while failures keep coming -------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda failed: list(failed.browse(3)),
        lambda failed: failed.requeue(limit=3),
        lambda failed: failed.requeue(lambda message: True, limit=3),
        lambda failed: failed.purge(),
    ],
    ids=["browse", "requeue", "requeue some", "purge"],
)
def test_what_is_done_to_a_queue_that_keeps_growing_comes_to_an_end(
    service: Service, act: Callable[[KeepsFailed], object]
) -> None:
    service.declare()
    with failures_keep_coming(service) as ended, ThreadPoolExecutor() as pool:
        done = pool.submit(act, service.failed_queue)
        wait_until(done.done, "it comes to an end")
        assert done.result()
        assert not ended.is_set()


# --- the order ------------------------------------------------------------------------------------


@both_types
def test_looks_at_a_part_show_the_same_each_time_whatever_was_looked_at_before(
    service: Service,
) -> None:
    ids = service.set_aside(MANY)
    failed = service.failed_queue
    for limit in (3, 3, None, 3, 700, 3, None, 3):
        assert ids_of(failed, limit) == ids[:limit]
    assert ids_of(failed) == ids


@both_types
def test_a_look_that_is_left_early_keeps_the_order_of_all(service: Service) -> None:
    ids = service.set_aside(MANY)
    for _ in range(3):
        messages = service.failed_queue.browse()
        assert [message.message_id for message in islice(messages, 5)] == ids[:5]
        messages.close()
        assert ids_of(service.failed_queue) == ids


@both_types
def test_sending_the_first_few_that_are_chosen_keeps_the_order_of_the_rest(
    service: Service,
) -> None:
    ids = service.set_aside(MANY)
    assert ids_of(service.failed_queue) == ids
    odd = [id_ for id_ in ids if int(id_) % 2]

    report = service.failed_queue.requeue(lambda message: message.message_id in set(odd), limit=4)

    assert report.requeued == 4
    assert ids_of(service.failed_queue) == [id_ for id_ in ids if id_ not in odd[:4]]


def test_of_a_queue_that_nobody_looked_at_only_what_is_needed_is_held(service: Service) -> None:
    ids = service.set_aside(MANY)
    told: list[LookProgress] = []

    shown = [
        message.message_id for message in service.failed_queue.browse(5, on_progress=told.append)
    ]

    assert shown == ids[:5]
    assert max(progress.held for progress in told) == 5
    assert {progress.total for progress in told if progress.stage is LookStage.LOOKING} == {MANY}


# --- one at a time --------------------------------------------------------------------------------


@both_types
def test_two_who_look_at_once_both_see_all(service: Service) -> None:
    ids = service.set_aside(MANY)
    together = threading.Barrier(2)

    def look() -> list[str | None]:
        together.wait()
        return ids_of(service.failed_queue)

    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(look) for _ in range(2))
        assert first.result() == ids
        assert second.result() == ids


def test_who_waits_is_told_for_whom_and_then_sees_all(
    service: Service, rabbitmq_management_url: str
) -> None:
    ids = service.set_aside(3)
    told: list[LookProgress] = []
    waiter = service.shell.failed_queue(
        service.url, service.queue, management_url=rabbitmq_management_url
    )

    def look() -> list[str | None]:
        return [message.message_id for message in waiter.browse(on_progress=told.append)]

    with ThreadPoolExecutor(1) as pool:
        with held(service.failed_queue):
            looking = pool.submit(look)
            wait_until(
                lambda: any(progress.holder for progress in told), "it is said who is waited for"
            )
        assert looking.result() == ids
    waited = [
        progress for progress in told if progress.stage is LookStage.WAITING and progress.holder
    ]
    assert "redrive failed queue shop@orders on " in waited[0].holder
    assert " as guest" in waited[0].holder
    assert (told[-1].stage, told[-1].total, told[-1].looked_at, told[-1].missing) == (
        LookStage.ENDED,
        3,
        3,
        0,
    )


def test_a_look_that_never_ends_is_an_error_and_no_empty_queue(service: Service) -> None:
    service.set_aside(3)
    with held(service.failed_queue), pytest.raises(ConfigurationError) as looked:
        list(service.failed_queue.browse(patience=0.5))
    assert_it_helps(
        looked.value, "is reading 'shop@orders@failed', and did not finish within 0.5 s"
    )


def test_sending_waits_for_a_look(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.set_aside(3)
    with ThreadPoolExecutor(1) as pool:
        with held(service.failed_queue):
            sending = pool.submit(service.failed_queue.requeue)
            wait_until(
                lambda: "is reading shop@orders@failed" in caplog.text,
                "the log says that sending waits",
            )
        assert sending.result().requeued == 3


def test_purging_waits_for_a_look(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.set_aside(3)
    with ThreadPoolExecutor(1) as pool:
        with held(service.failed_queue):
            purging = pool.submit(service.failed_queue.purge)
            wait_until(
                lambda: "is reading shop@orders@failed" in caplog.text,
                "the log says that purging waits",
            )
        assert purging.result() == 3


def test_a_reader_who_takes_no_turn_is_counted_as_missing(
    service: Service, rabbitmq_management_url: str
) -> None:
    service.set_aside(5)
    failed = service.shell.failed_queue(
        service.url, service.queue, management_url=rabbitmq_management_url
    )
    told: list[LookProgress] = []

    def missing() -> int | None:
        told.clear()
        seen = len(list(failed.browse(on_progress=told.append)))
        assert seen == 3
        return told[-1].missing

    with foreign_reader(service.url, "shop@orders@failed", 2):
        wait_until(lambda: missing() == 2, "the management API has counted what the reader holds")


def test_where_nobody_tells_what_a_reader_holds_the_number_is_unknown(service: Service) -> None:
    service.set_aside(5)
    failed = service.shell.failed_queue(service.url, service.queue, management_url=NOWHERE)
    told: list[LookProgress] = []
    with foreign_reader(service.url, "shop@orders@failed", 2):
        assert len(list(failed.browse(on_progress=told.append))) == 3
    assert told[-1].missing is None


# --- counting -------------------------------------------------------------------------------------


@pytest.mark.versions("how the broker counts what is unsettled")
@both_types
def test_messages_that_are_looked_at_are_counted(
    service: Service, rabbitmq_management_url: str
) -> None:
    service.set_aside(5)
    failed = service.shell.failed_queue(
        service.url, service.queue, management_url=rabbitmq_management_url
    )

    def counted() -> tuple[int, int | None] | None:
        depth = failed.count()
        return None if depth is None else (depth.total, depth.held)

    assert counted() == (5, 0)
    with held(service.failed_queue):
        wait_until(lambda: counted() == (5, 5), "the management API has counted what is held")
    wait_until(lambda: counted() == (5, 0), "none is held")


def test_where_nobody_tells_how_many_are_looked_at_the_number_is_unknown(service: Service) -> None:
    service.set_aside(5)
    failed = service.shell.failed_queue(service.url, service.queue, management_url=NOWHERE)
    with held(failed):
        depth = failed.count()
        assert depth is not None
        assert depth.held is None


def test_a_queue_that_is_not_there_has_no_count(service: Service) -> None:
    assert service.failed_queue.count() is None
