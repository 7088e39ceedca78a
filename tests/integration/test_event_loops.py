"""What only an event loop has: cancellation, a loop that ends, other loops than asyncio's own,
async iterables."""

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

from contract.shells import ASYNC
from contract.support import OutOfStock, Recorder, Service, assert_it_helps, retrying
from redrive import (
    AsyncApp,
    AsyncFailedQueue,
    AsyncPublisher,
    AsyncSubscriber,
    BrokerUnavailable,
    ConfigurationError,
    FailedMessage,
    GiveUp,
    Message,
    RequeueProgress,
    run_async,
)
from redrive.testing import Proxy
from waiting import DEADLINE

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Runs a coroutine on each kind of event loop."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(coroutine)

    return run


@pytest.fixture
def service(rabbitmq_url: str) -> Service:
    """A service, declared."""
    service = Service(rabbitmq_url, shell=ASYNC)
    service.declare()
    return service


def subscriber_of(
    service: Service, handler: Callable[[Message], Awaitable[object]], **options: Any
) -> AsyncSubscriber:
    """A subscriber that is not started."""
    subscriber = AsyncSubscriber(
        options.pop("url", service.url),
        service.queue,
        service.routing_keys,
        **{"retry": service.retry, **options},
    )
    subscriber.handler(handler)
    return subscriber


async def until(condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Waits until `condition` says something true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.01)


def rest_of(service: Service, count: int) -> list[str]:
    """The ids of what is left in the queue, in its order."""
    recorder = Recorder()
    with service.subscriber(recorder):
        recorder.wait_for_attempts(count)
    return recorder.order


# --- everything once, on both loops ---------------------------------------------------------------


def test_a_message_is_published_fails_comes_back_is_set_aside_and_requeued(
    service: Service, run: Run[Any]
) -> None:
    retries: list[int] = []
    mended = False

    async def handler(message: Message) -> None:
        retries.append(message.retries)
        if not mended:
            raise OutOfStock

    async def story() -> None:
        nonlocal mended
        failed = AsyncFailedQueue(service.url, service.queue)
        async with (
            AsyncPublisher(service.url) as publisher,
            subscriber_of(service, handler, retry=retrying(2)),
        ):
            message_id = await publisher.publish("socks", "order.paid", mandatory=True)
            async with asyncio.timeout(DEADLINE):
                while not await failed.depth():
                    await asyncio.sleep(0.02)
            assert [message.message_id async for message in failed.browse()] == [message_id]
            mended = True
            assert (await failed.requeue()).requeued == 1
            await until(lambda: retries == [0, 1, 2, 0], "it is handled again")
            assert await failed.depth() == 0
        async with subscriber_of(service, handler):
            await asyncio.sleep(0)

    run(story())


def test_handlers_run_at_the_same_time_as_many_as_asked_for(service: Service) -> None:
    running = most = 0
    handled: list[str | None] = []

    async def handler(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 5:
            together.set()
        await together.wait()
        running -= 1
        handled.append(message.message_id)

    together = asyncio.Event()

    async def work() -> None:
        async with (
            AsyncPublisher(service.url) as publisher,
            subscriber_of(service, handler, concurrency=5),
        ):
            report = await publisher.publish_many(
                [(str(number), "order.paid") for number in range(25)]
            )
            assert report.confirmed == 25
            await until(lambda: len(handled) == 25, "all are handled")

    asyncio.run(work())
    assert most == 5


def test_what_a_decorators_plain_wrapper_around_an_async_handler_gives_is_awaited(
    service: Service,
) -> None:
    handled: list[str | None] = []

    def counted(
        function: Callable[[Message], Awaitable[object]],
    ) -> Callable[[Message], Awaitable[object]]:
        @functools.wraps(function)
        def wrapper(message: Message) -> Awaitable[object]:
            return function(message)

        return wrapper

    @counted
    async def handler(message: Message) -> None:
        await asyncio.sleep(0)
        handled.append(message.message_id)

    async def work() -> None:
        async with AsyncPublisher(service.url) as publisher, subscriber_of(service, handler):
            message_id = await publisher.publish("socks", "order.paid", mandatory=True)
            await until(lambda: handled == [message_id], "it is handled")

    asyncio.run(work())


def test_a_coroutine_that_an_async_handler_returns_and_nobody_awaits_is_a_failed_attempt(
    service: Service,
) -> None:
    async def work_for_later() -> None:
        raise AssertionError("nobody awaits it")

    async def handler(message: Message) -> object:
        return work_for_later()

    async def work() -> None:
        failed = AsyncFailedQueue(service.url, service.queue)
        async with (
            AsyncPublisher(service.url) as publisher,
            subscriber_of(service, handler, retry=retrying(0)),
        ):
            await publisher.publish("socks", "order.paid", mandatory=True)
            async with asyncio.timeout(DEADLINE):
                while not await failed.depth():
                    await asyncio.sleep(0.02)
            (message,) = [message async for message in failed.browse()]
            assert "returned a coroutine that nobody awaits" in str(message.error_message)

    asyncio.run(work())


def test_a_task_of_a_handlers_task_group_gives_the_message_up(service: Service) -> None:
    attempts: list[int] = []

    async def part(error: Exception) -> None:
        raise error

    async def handler(message: Message) -> None:
        attempts.append(message.retries)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(part(OutOfStock("no socks")))
            parts.create_task(part(GiveUp("the customer is gone")))

    async def work() -> None:
        failed = AsyncFailedQueue(service.url, service.queue)
        async with AsyncPublisher(service.url) as publisher, subscriber_of(service, handler):
            await publisher.publish("socks", "order.paid", mandatory=True)
            async with asyncio.timeout(DEADLINE):
                while not await failed.depth():
                    await asyncio.sleep(0.02)
            (message,) = [message async for message in failed.browse()]
            assert (message.reason, message.error_message) == ("gave-up", "the customer is gone")

    asyncio.run(work())
    assert attempts == [0]


def test_a_thousand_tasks_share_a_publisher(service: Service, run: Run[Any]) -> None:
    async def work() -> list[str]:
        async with AsyncPublisher(service.url) as publisher:
            return await asyncio.gather(
                *(
                    publisher.publish(str(number), "order.paid", mandatory=True)
                    for number in range(1000)
                )
            )

    assert len(set(run(work()))) == 1000


def test_a_block_begins_when_the_queue_is_there_and_not_at_all_where_it_cannot_be(
    rabbitmq_url: str, run: Run[Any]
) -> None:
    service = Service(rabbitmq_url, shell=ASYNC)  # nothing of it is declared
    handled: list[str | None] = []

    async def handler(message: Message) -> None:
        handled.append(message.message_id)

    async def work() -> None:
        with pytest.raises(ConfigurationError) as told:
            async with subscriber_of(service, handler, declare=False):
                pytest.fail("the block has begun")
        assert_it_helps(told.value, "no queue 'shop@orders'")
        async with AsyncPublisher(rabbitmq_url) as publisher, subscriber_of(service, handler):
            message_id = await publisher.publish("socks", "order.paid", mandatory=True)
            await until(lambda: handled == [message_id], "it is handled")

    run(work())


# --- cancellation ---------------------------------------------------------------------------------


def test_a_run_that_is_cancelled_finishes_what_it_has_begun_and_gives_the_rest_back(
    service: Service, run: Run[Any]
) -> None:
    ids = service.publish_numbered(5)
    handled: list[str | None] = []

    async def work() -> None:
        begun = asyncio.Event()

        async def handler(message: Message) -> None:
            begun.set()
            await asyncio.sleep(0.3)
            handled.append(message.message_id)

        running = asyncio.create_task(subscriber_of(service, handler).run())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(work())
    assert handled == ids[:1]
    assert rest_of(service, 4) == ids[1:]


def test_a_run_that_is_cancelled_again_cancels_its_handler_and_the_message_is_delivered_again(
    service: Service,
) -> None:
    message_id = service.publish()
    cancelled: list[bool] = []

    async def work() -> None:
        begun = asyncio.Event()

        async def handler(message: Message) -> None:
            begun.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        running = asyncio.create_task(subscriber_of(service, handler).run())
        await begun.wait()
        running.cancel()
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(work())
    assert cancelled == [True]
    assert rest_of(service, 1) == [message_id]


def test_a_loop_that_ends_under_a_subscriber_loses_no_message(
    service: Service, run: Run[Any]
) -> None:
    ids = service.publish_numbered(3)

    async def work() -> None:
        begun = asyncio.Event()

        async def handler(message: Message) -> None:
            begun.set()
            await asyncio.sleep(600)

        await subscriber_of(service, handler).start()
        await begun.wait()  # and nobody stops it

    run(work())
    assert rest_of(service, 3) == ids
    assert service.failed() == []


def test_what_a_handler_awaited_and_was_cancelled_is_a_failed_attempt(service: Service) -> None:
    async def handler(message: Message) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def work() -> None:
        async with (
            subscriber_of(service, handler, retry=retrying(1)),
            AsyncPublisher(service.url) as publisher,
        ):
            await publisher.publish("socks", "order.paid")
            failed = AsyncFailedQueue(service.url, service.queue)
            async with asyncio.timeout(DEADLINE):
                while not await failed.depth():
                    await asyncio.sleep(0.02)

    asyncio.run(work())
    assert [(message.error_type, message.retries) for message in service.failed()] == [
        ("asyncio.exceptions.CancelledError", 1)
    ]


def test_a_handler_that_takes_too_long_is_cancelled_where_it_hangs(service: Service) -> None:
    cancelled: list[bool] = []

    async def inner() -> None:
        await asyncio.sleep(600)

    async def handler(message: Message) -> None:
        try:
            await inner()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def work() -> None:
        async with subscriber_of(service, handler, retry=retrying(0), handler_timeout=0.3):
            await until(lambda: cancelled, "the handler is cancelled")

    service.publish()
    asyncio.run(work())
    (failed,) = service.wait_for_failed()
    assert failed.error_type == "redrive.errors.HandlerTimeout"
    assert "await asyncio.sleep(600)" in (failed.traceback or "")


@pytest.mark.parametrize("swallows", [False, True])
def test_a_signal_while_a_lifespan_begins_ends_the_app(
    rabbitmq_url: str, run: Run[Any], swallows: bool
) -> None:
    app = AsyncApp(rabbitmq_url)
    ended: list[str] = []

    @app.subscriber("shop@orders", "order.*")
    async def on_order(message: Message) -> None: ...

    @app.lifespan
    async def pool(_: AsyncApp) -> AsyncIterator[None]:
        yield
        ended.append("pool")

    @app.lifespan
    async def migrations(_: AsyncApp) -> AsyncIterator[None]:
        os.kill(os.getpid(), signal.SIGTERM)
        if swallows:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
        else:
            await asyncio.sleep(600)
        yield

    run(app.run())
    assert ended == ["pool"]


@contextlib.asynccontextmanager
async def waiting_for_each(service: Service) -> AsyncIterator[list[bytes]]:
    """A subscriber with a second for each message: one that says `blocks` keeps the loop for two,
    the others wait for a moment. Gives what was handled."""
    handled: list[bytes] = []

    async def handler(message: Message) -> None:
        if message.body == b"blocks":
            time.sleep(2)
        else:
            await asyncio.sleep(0.05)
        handled.append(message.body)

    options: Any = {"concurrency": 10, "retry": retrying(0), "handler_timeout": 1}
    async with subscriber_of(service, handler, **options):
        yield handled


def test_time_in_which_the_loop_is_kept_counts_for_whoever_keeps_it_alone(
    service: Service, run: Run[Any]
) -> None:
    async def story() -> None:
        failed = AsyncFailedQueue(service.url, service.queue)
        async with waiting_for_each(service) as handled, AsyncPublisher(service.url) as publisher:
            for body in 2 * ["waits", "waits", "blocks", "waits"]:
                await publisher.publish(body, "order.paid", mandatory=True)
            async with asyncio.timeout(DEADLINE):
                while await failed.depth() < 2 or handled.count(b"waits") < 6:
                    await asyncio.sleep(0.02)

    run(story())
    assert [(message.body, message.error_type) for message in service.failed()] == 2 * [
        (b"blocks", "redrive.errors.HandlerTimeout")
    ]


def test_time_in_which_no_handler_keeps_the_loop_counts_for_nobody(
    service: Service, run: Run[Any]
) -> None:
    async def story() -> None:
        async with waiting_for_each(service) as handled, AsyncPublisher(service.url) as publisher:
            for _ in range(4):
                await publisher.publish("waits", "order.paid", mandatory=True)
            while len(handled) < 4:
                time.sleep(1.5)
                await asyncio.sleep(0.02)

    run(story())
    assert service.failed() == []


def test_a_publish_that_is_cancelled_before_it_was_sent_is_not_sent(service: Service) -> None:
    async def work() -> str:
        with Proxy(service.url) as proxy:
            async with AsyncPublisher(proxy.url) as publisher:
                proxy.refuse()
                proxy.cut()
                await asyncio.sleep(0.2)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(publisher.publish("never", "order.paid"), 0.2)
                proxy.accept()
                return await publisher.publish("later", "order.paid")

    later = asyncio.run(work())
    assert rest_of(service, 1) == [later]


def test_a_publish_many_that_is_cancelled_sends_what_it_has_taken(service: Service) -> None:
    taken: list[int] = []

    async def work() -> None:
        def numbers() -> Any:
            for number in range(10**9):
                taken.append(number)
                yield str(number), "order.paid"

        async with AsyncPublisher(service.url) as publisher:
            publishing = asyncio.create_task(publisher.publish_many(numbers()))
            await until(lambda: len(taken) > 500, "it publishes")
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            await publisher.publish("last", "order.paid")  # behind them all

    asyncio.run(work())
    recorder = Recorder()
    with service.subscriber(recorder, prefetch=1000):
        recorder.wait_for_attempts(len(taken) + 1)
    assert [attempt.body for attempt in recorder.attempts] == [
        *(str(number).encode() for number in taken),
        b"last",
    ]


@pytest.mark.nightly("cancelling is tried with one loop each time")
def test_a_requeue_that_is_cancelled_settles_what_is_on_its_way(service: Service) -> None:
    ids = service.fail(300)

    async def work() -> None:
        with Proxy(service.url) as proxy:
            proxy.delay(0.1)  # long enough to be cancelled meanwhile
            begun = asyncio.Event()
            told: list[RequeueProgress] = []

            def progress(progress: RequeueProgress) -> None:
                assert threading.current_thread() is threading.main_thread()
                told.append(progress)
                begun.set()

            requeueing = asyncio.create_task(
                AsyncFailedQueue(proxy.url, service.queue).requeue(
                    lambda _: True, on_progress=progress
                )
            )
            await begun.wait()
            requeueing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await requeueing

    asyncio.run(work())
    left = service.failed_ids()
    recorder = Recorder()
    with service.subscriber(recorder, prefetch=300):
        recorder.wait_for_attempts(300 - len(left))
    assert sorted([*recorder.handled, *left]) == sorted(ids)
    assert set(recorder.handled.values()) <= {1}


def test_a_look_that_is_cancelled_gives_everything_back(service: Service) -> None:
    ids = service.fail(20)

    async def look() -> None:
        async for _ in AsyncFailedQueue(service.url, service.queue).browse():
            await asyncio.sleep(600)

    async def work() -> None:
        looking = asyncio.create_task(look())
        await asyncio.sleep(1)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking

    asyncio.run(work())
    assert service.failed_ids() == ids


# --- what is given, and what is refused -----------------------------------------------------------


def test_publish_many_takes_an_async_generator(service: Service) -> None:
    async def messages() -> AsyncIterator[tuple[str, str]]:
        for number in range(500):
            if number % 100 == 0:
                await asyncio.sleep(0.01)
            yield str(number), "order.paid"
        yield "no such place", "nobody.listens"

    async def work() -> None:
        async with AsyncPublisher(service.url) as publisher:
            report = await publisher.publish_many(messages())
            assert (report.confirmed, report.unroutable, report.failed) == (501, 1, [])

    asyncio.run(work())


def test_a_plain_handler_is_refused_with_the_way_out() -> None:
    def plain(message: Message) -> None: ...

    with pytest.raises(ConfigurationError) as told:
        AsyncSubscriber("amqp://localhost/", "shop@orders").handler(plain)  # type: ignore[type-var]

    assert_it_helps(told.value, "plain", "use Subscriber")


def test_an_async_predicate_is_refused(service: Service) -> None:
    async def where(message: FailedMessage) -> bool:
        return True

    with pytest.raises(ConfigurationError) as told:
        asyncio.run(AsyncFailedQueue(service.url, service.queue).requeue(where))  # type: ignore[arg-type]

    assert_it_helps(told.value, "`where` is an async function")


def test_a_publisher_of_a_loop_that_is_over_begins_anew_and_one_of_another_that_runs_is_refused(
    service: Service,
) -> None:
    publisher = AsyncPublisher(service.url)

    async def publish() -> str:
        return await publisher.publish("socks", "order.paid", mandatory=True)

    async def elsewhere() -> None:
        await publish()
        with pytest.raises(ConfigurationError) as told:
            await asyncio.to_thread(asyncio.run, publish())
        assert_it_helps(told.value, "belongs to another event loop")
        await publisher.close()

    asyncio.run(publish())
    asyncio.run(elsewhere())


def test_a_broker_that_is_not_there_is_told_to_publishers_at_once_and_to_subscribers_in_time() -> (
    None
):
    async def handler(message: Message) -> None: ...

    async def work() -> None:
        with pytest.raises(BrokerUnavailable) as told:
            await AsyncPublisher("amqp://guest:s3cret@127.0.0.1:1/").publish("socks", "order.paid")
        assert_it_helps(told.value, "nothing listens there", secret="s3cret")
        subscriber = AsyncSubscriber(
            "amqp://guest:s3cret@127.0.0.1:1/", "shop@orders", patience=0, declare=False
        )
        subscriber.handler(handler)
        with pytest.raises(BrokerUnavailable):
            await subscriber.run()
        with pytest.raises(BrokerUnavailable):
            await run_async(subscriber)

    asyncio.run(work())


def test_without_its_extra_only_the_asyncio_shell_is_missing_and_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['aiormq'] = None; import redrive; redrive.Publisher; "
        "redrive.AsyncPublisher"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (
        done.stderr.strip().splitlines()[-1]
        == "ImportError: redrive.AsyncPublisher needs aiormq: pip install 'redrive[async]'"
    )
