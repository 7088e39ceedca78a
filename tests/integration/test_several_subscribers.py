"""Several subscriptions in one process."""

import threading

import pytest

from contract.support import Recorder, Service, always_fails, assert_it_helps, retrying
from redrive import ConfigurationError, Message, RedriveError, Subscriber, run
from waiting import DEADLINE, wait_until


class Run:
    """`redrive.run` on a thread of its own, and what it raised."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self.error: RedriveError | None = None
        self._subscribers = subscribers
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            run(*self._subscribers)
        except RedriveError as error:
            self.error = error

    def has_ended(self, seconds: float = DEADLINE) -> bool:
        """Waits for its end."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends it."""
        for subscriber in self._subscribers:
            subscriber.stop()
        assert self.has_ended()


@pytest.fixture
def orders(rabbitmq_url: str) -> Service:
    """A service of orders."""
    service = Service(rabbitmq_url)
    service.declare()
    return service


@pytest.fixture
def users(rabbitmq_url: str) -> Service:
    """A service of users."""
    service = Service(rabbitmq_url, queue="shop@users", routing_keys=("user.*",))
    service.declare()
    return service


def subscriber_of(service: Service, handler: Recorder, **options: bool) -> Subscriber:
    """A subscriber that does not run yet."""
    subscriber = Subscriber(
        service.url,
        service.queue,
        service.routing_keys,
        retry=service.retry,
        **options,  # type: ignore[arg-type]
    )
    subscriber.handler(handler)
    return subscriber


def test_several_subscribers_each_handle_their_own(orders: Service, users: Service) -> None:
    of_orders, of_users = Recorder(), Recorder()
    running = Run(subscriber_of(orders, of_orders), subscriber_of(users, of_users))
    order, user = (
        orders.publish(routing_key="order.paid"),
        users.publish(routing_key="user.created"),
    )
    of_orders.wait_for_handled([order])
    of_users.wait_for_handled([user])
    running.stop()

    assert running.error is None
    assert of_orders.tried == {order: 1}
    assert of_users.tried == {user: 1}


def test_one_that_stops_ends_them_all(orders: Service, users: Service) -> None:
    of_orders, of_users = Recorder(), Recorder()
    first = subscriber_of(orders, of_orders)
    running = Run(first, subscriber_of(users, of_users))
    of_users.wait_for_handled([users.publish(routing_key="user.created")])
    first.stop()

    assert running.has_ended()
    assert running.error is None


def test_one_that_cannot_run_ends_them_all_and_says_why(orders: Service, rabbitmq_url: str) -> None:
    missing = Service(rabbitmq_url, queue="shop@missing")
    running = Run(
        subscriber_of(orders, Recorder()), subscriber_of(missing, Recorder(), declare=False)
    )

    assert running.has_ended()
    assert isinstance(running.error, ConfigurationError)
    assert_it_helps(running.error, "'shop@missing'")


def test_a_handler_can_stop_its_own_subscriber(orders: Service) -> None:
    def handler(message: Message) -> None:
        subscriber.stop()

    recorder = Recorder(handler)
    subscriber = subscriber_of(orders, recorder)
    ids = orders.publish_numbered(3)
    running = Run(subscriber)

    assert running.has_ended()
    assert recorder.order == ids[:1]
    rest = Recorder()
    with orders.subscriber(rest):
        rest.wait_for_handled(ids[1:])
    assert rest.order == ids[1:]


def test_a_subscriber_can_be_started_again_after_it_stopped(orders: Service) -> None:
    recorder = Recorder()
    subscriber = subscriber_of(orders, recorder)
    for _ in range(3):
        running = Run(subscriber)
        recorder.wait_for_handled([orders.publish()])
        running.stop()

    assert len(recorder.handled) == 3


def test_a_subscriber_that_runs_is_not_started_twice(orders: Service) -> None:
    recorder = Recorder()
    subscriber = subscriber_of(orders, recorder)
    subscriber.start()
    try:
        with pytest.raises(ConfigurationError) as told:
            subscriber.start()
    finally:
        subscriber.stop()
        assert subscriber.wait(DEADLINE)

    assert_it_helps(told.value, "already running")


def test_two_workers_of_one_queue_retry_and_set_aside_together(orders: Service) -> None:
    one, other = Recorder(always_fails), Recorder(always_fails)
    with orders.subscriber(one, retry=retrying(3)), orders.subscriber(other, retry=retrying(3)):
        ids = orders.publish_numbered(20)
        wait_until(lambda: orders.failed_queue.depth() == 20, "all are set aside")

    tried = one.tried + other.tried
    assert tried == dict.fromkeys(ids, 4)
    assert sorted(orders.failed_ids()) == sorted(ids)
