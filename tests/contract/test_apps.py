"""Apps: subscribers that share a connection, a publisher, routers, and what is around them."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from contract.administration import Administration
from contract.apps import APPS, DrivenApp
from contract.plain import depth, drain, plain_channel, publish_plain, wait_for_consumers
from contract.support import SOON, Recorder, always_fails, assert_it_helps, fails_first
from redrive import (
    BrokerUnavailable,
    ConfigurationError,
    Message,
    RetryPolicy,
    TopologyMismatch,
)
from redrive.pubsub.publisher_base import Extras
from waiting import DEADLINE, wait_until

ONE_RETRY = RetryPolicy(1, SOON)
NO_RETRY = RetryPolicy(0, SOON)
FOREVER = RetryPolicy(100, SOON)


class Held:
    """A handler that has begun, and goes on when it is told."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._go_on = threading.Event()
        self.recorder = Recorder(self._hold)

    def _hold(self, _: Message) -> None:
        self.begun.set()
        assert self._go_on.wait(DEADLINE)

    def go_on(self) -> None:
        """Lets it, and all that follow, return."""
        self._go_on.set()


@pytest.fixture(params=APPS, ids=lambda one: one.name)
def driven(request: pytest.FixtureRequest) -> type[DrivenApp]:
    """Each shell's app in turn."""
    found: type[DrivenApp] = request.param
    return found


@pytest.fixture
def app(driven: type[DrivenApp], rabbitmq_url: str) -> Iterator[DrivenApp]:
    """An app without subscribers."""
    with driven(rabbitmq_url, name="shop", retry=ONE_RETRY) as app:
        yield app


def _subscribe(
    app: DrivenApp, handler: Callable[[Message], object], name: str, **options: Any
) -> Any:
    """A subscriber of the queue `shop@name`, for the key `name`."""
    return app.subscriber(app.app, handler, f"shop@{name}", name, **options)


def _publish_to_lone(url: str, routing_key: str, message_id: str) -> None:
    """Publishes to another family's main exchange than the app's."""
    properties = pika.BasicProperties(message_id=message_id)  # type: ignore[no-untyped-call]
    publish_plain(url, routing_key, b"socks", properties, exchange="lone")


def test_each_subscriber_handles_its_own(app: DrivenApp) -> None:
    orders, users = Recorder(), Recorder()
    _subscribe(app, orders, "orders")
    _subscribe(app, users, "users")
    with app.running():
        order = app.publisher.publish("socks", "orders")
        user = app.publisher.publish("anna", "users")
        orders.wait_for_handled([order])
        users.wait_for_handled([user])

    assert (orders.tried, users.tried) == ({order: 1}, {user: 1})


def test_what_fails_is_retried_and_set_aside_by_its_own_subscriber(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    failing, well = Recorder(always_fails), Recorder()
    _subscribe(app, failing, "orders")
    _subscribe(app, well, "users")
    with app.running():
        order = app.publisher.publish("socks", "orders")
        wait_until(lambda: depth(rabbitmq_url, "shop@orders@failed") == 1, "it is set aside")

    assert failing.tried == {order: 2}
    assert well.tried == {}


def test_subscribers_what_they_set_aside_and_a_publisher_take_two_connections(
    app: DrivenApp, rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    recorders = [Recorder() for _ in range(30)]
    for number, recorder in enumerate(recorders):
        _subscribe(app, recorder, f"n{number}")
    _subscribe(app, Recorder(always_fails), "failing")
    with app.running():
        app.publisher.publish("socks", "failing")
        wait_until(lambda: depth(rabbitmq_url, "shop@failing@failed") == 1, "one is set aside")
        for number, recorder in enumerate(recorders):
            recorder.wait_for_handled([app.publisher.publish(str(number), f"n{number}")])
        administration.wait_for_connection("shop")
        administration.wait_for_connection("shop (publisher)")

        # What declares has a third one for a moment, which the broker lists for a while longer.
        wait_until(
            lambda: sorted(administration.connection_names()) == ["shop", "shop (publisher)"],
            "two connections are left",
        )


def test_subscribers_that_have_nothing_to_do_take_no_thread(rabbitmq_url: str) -> None:
    with APPS[0](rabbitmq_url) as app:
        before = set(threading.enumerate())
        for number in range(30):
            _subscribe(app, Recorder(), f"n{number}", concurrency=4)
        with app.running():
            wait_until(
                lambda: len(set(threading.enumerate()) - before) <= 2,
                "its threads are the connection's, and the one that heeds outcomes",
            )


def test_a_channel_that_the_broker_closes_hurts_its_subscriber_alone(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    held = Held()
    failing = Recorder(always_fails)
    _subscribe(app, held.recorder, "orders")
    app.subscriber(app.app, failing, "shop@users", "users", exchange="lone", retry=NO_RETRY)
    with app.running():
        order = app.publisher.publish("socks", "orders")
        assert held.begun.wait(DEADLINE)
        # What sets a message aside publishes to an exchange: the broker closes its channel.
        with plain_channel(rabbitmq_url) as channel:
            channel.exchange_delete("lone.failed")
            channel.exchange_delete("lone.retry")
        _publish_to_lone(rabbitmq_url, "users", "anna")
        wait_until(lambda: depth(rabbitmq_url, "shop@users@failed") == 1, "it is set aside")
        held.go_on()
        held.recorder.wait_for_handled([order])

    assert held.recorder.tried == {order: 1}
    assert depth(rabbitmq_url, "shop@orders") == 0


def test_a_queue_that_is_deleted_is_there_again_and_the_others_do_not_notice(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    held, users = Held(), Recorder()
    _subscribe(app, held.recorder, "orders")
    _subscribe(app, users, "users")
    with app.running():
        order = app.publisher.publish("socks", "orders")
        assert held.begun.wait(DEADLINE)
        with plain_channel(rabbitmq_url) as channel:
            channel.queue_delete("shop@users")
        wait_for_consumers(rabbitmq_url, "shop@users")
        users.wait_for_handled([app.publisher.publish("anna", "users")])
        held.go_on()
        held.recorder.wait_for_handled([order])

    assert held.recorder.tried == {order: 1}


def test_one_that_can_not_run_is_told_and_ends_those_that_could(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_declare("shop@users", durable=True, arguments={"x-max-length": 3})
    _subscribe(app, Recorder(), "orders")
    _subscribe(app, Recorder(), "users")

    with pytest.raises(TopologyMismatch) as told, app.running():
        pytest.fail("the block began")

    assert_it_helps(told.value, "shop@users")
    assert not app.app.ready
    wait_for_consumers(rabbitmq_url, "shop@orders", 0)


def test_all_stop_taking_messages_at_the_same_time(app: DrivenApp, rabbitmq_url: str) -> None:
    # A quorum queue counts a consumer that was cancelled as long as it holds a message.
    holders = [Held(), Held()]
    for name, held in zip(("orders", "users"), holders, strict=True):
        _subscribe(app, held.recorder, name, queue_type="classic")
    app.start()
    ids = [app.publisher.publish("first", name) for name in ("orders", "users")]
    for held in holders:
        assert held.begun.wait(DEADLINE)
    app.app.stop()

    # Neither waits for the other's handler.
    for name in ("orders", "users"):
        wait_for_consumers(rabbitmq_url, f"shop@{name}", 0)
    for held in holders:
        held.go_on()
    app.close()
    for held, message_id in zip(holders, ids, strict=True):
        assert held.recorder.handled == {message_id: 1}


def test_an_app_that_was_closed_can_be_started_again(app: DrivenApp) -> None:
    recorder = Recorder()
    _subscribe(app, recorder, "orders")
    for _ in range(3):
        with app.running():
            recorder.wait_for_handled([app.publisher.publish("socks", "orders")])

    assert len(recorder.handled) == 3


def test_an_app_that_runs_is_not_started_twice(app: DrivenApp) -> None:
    _subscribe(app, Recorder(), "orders")
    with app.running(), pytest.raises(ConfigurationError) as told:
        app.start()

    assert_it_helps(told.value, "already running")


def test_only_some_of_its_queues_are_consumed(app: DrivenApp, rabbitmq_url: str) -> None:
    orders, users = Recorder(), Recorder()
    _subscribe(app, orders, "orders")
    _subscribe(app, users, "users")
    with app.running():
        pass  # both queues are there
    app.start(["shop@orders"])
    user = app.publisher.publish("anna", "users")
    orders.wait_for_handled([app.publisher.publish("socks", "orders")])
    app.close()

    assert users.tried == {}
    assert [properties.message_id for properties, _ in drain(rabbitmq_url, "shop@users")] == [user]


def test_a_queue_that_it_does_not_have_is_refused(app: DrivenApp) -> None:
    _subscribe(app, Recorder(), "orders")

    with pytest.raises(ConfigurationError) as told:
        app.start(["shop@order"])

    assert_it_helps(told.value, "'shop@order'", "'shop@orders'")


def test_a_subscriber_without_a_handler_lets_nothing_be_consumed(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    _subscribe(app, Recorder(), "orders")
    app.app.subscriber("shop@users", "users")

    with pytest.raises(ConfigurationError) as told:
        app.start()

    assert_it_helps(told.value, "'shop@users'", "no handler")


def test_an_ordered_subscriber_keeps_its_order_beside_others(app: DrivenApp) -> None:
    ordered, users = Recorder(fails_first(1)), Recorder()
    _subscribe(app, ordered, "orders", ordered=True)
    _subscribe(app, users, "users")
    with app.running():
        ids = [app.publisher.publish(str(number), "orders") for number in range(5)]
        users.wait_for_handled([app.publisher.publish("anna", "users")])
        ordered.wait_for_handled(ids)

    assert ordered.order == ids
    assert ordered.tried == dict.fromkeys(ids, 2)


def test_each_gets_what_its_own_tags_ask_for(app: DrivenApp) -> None:
    important, european = Recorder(), Recorder()
    app.subscriber(app.app, important, "shop@important", "order.*", tags="vip")
    app.subscriber(app.app, european, "shop@european", "order.*", tags="eu")
    with app.running():
        vip = app.publisher.publish("1", "order.paid", tags=["vip"])
        eu = app.publisher.publish("2", "order.paid", tags=["eu"])
        both = app.publisher.publish("3", "order.paid", tags=["vip", "eu"])
        important.wait_for_handled([vip, both])
        european.wait_for_handled([eu, both])

    assert important.tried == {vip: 1, both: 1}
    assert european.tried == {eu: 1, both: 1}


def test_a_routers_subscribers_are_the_apps(app: DrivenApp, rabbitmq_url: str) -> None:
    recorder = Recorder()
    outer, inner = app.router(), app.router(exchange="lone")
    app.subscriber(inner, recorder, "shop@orders", "orders")
    outer.include(inner)
    app.app.include(outer)
    with app.running():
        message_id = app.publisher.publish("not for it", "orders")
        _publish_to_lone(rabbitmq_url, "orders", "socks")
        recorder.wait_for_handled(["socks"])

    assert message_id not in recorder.tried


def test_middleware_is_around_from_the_outermost_to_the_handler(app: DrivenApp) -> None:
    events: list[str] = []
    router = app.router()
    subscriber = app.subscriber(
        router, Recorder(lambda _: events.append("handler")), "shop@orders", "orders"
    )
    for place, name in ((subscriber, "subscriber"), (router, "router"), (app.app, "app")):
        app.surround(place, events.append, name)
    app.app.include(router)
    with app.running():
        app.publisher.publish("socks", "orders")
        wait_until(lambda: "app after" in events, "it is handled")

    assert events == [
        "app before",
        "router before",
        "subscriber before",
        "handler",
        "subscriber after",
        "router after",
        "app after",
    ]


def test_lifespans_are_around_all_handlers_the_first_is_the_outermost(app: DrivenApp) -> None:
    events: list[str] = []
    for name in ("pool", "cache"):
        app.lifespan(
            lambda name=name: events.append(f"{name} opens"),  # type: ignore[misc]
            lambda name=name: events.append(f"{name} closes"),  # type: ignore[misc]
        )
    held = Held()
    _subscribe(app, held.recorder, "orders")
    with app.running():
        app.publisher.publish("socks", "orders")
        assert held.begun.wait(DEADLINE)
        events.append("handling")
        held.go_on()

    assert events == ["pool opens", "cache opens", "handling", "cache closes", "pool closes"]


def test_an_app_is_not_ready_while_its_lifespans_begin(app: DrivenApp) -> None:
    ready: list[bool] = []
    app.lifespan(lambda: ready.append(app.app.ready), lambda: None)
    app.subscriber(app.app, Recorder(), "shop@orders", "order.*")
    with app.running():
        ready.append(app.app.ready)
    assert ready == [False, True]


def test_an_app_that_only_publishes_is_ready_once_it_has_started(app: DrivenApp) -> None:
    with app.running():
        assert app.app.ready


def test_a_lifespan_that_fails_lets_nothing_be_consumed(app: DrivenApp, rabbitmq_url: str) -> None:
    def no_pool() -> None:
        raise OSError("the database is away")

    closed: list[str] = []
    app.lifespan(lambda: None, lambda: closed.append("cache"))
    app.lifespan(no_pool, lambda: closed.append("pool"))
    _subscribe(app, Recorder(), "orders")

    with pytest.raises(ConfigurationError) as told:
        app.start()

    assert_it_helps(told.value, "lifespan", "the database is away")
    assert closed == ["cache"]
    with plain_channel(rabbitmq_url) as channel, pytest.raises(Exception, match="NOT_FOUND"):
        channel.queue_declare("shop@orders", passive=True)


def test_a_lifespan_that_fails_at_the_end_is_told_once_all_have_ended(app: DrivenApp) -> None:
    def fail() -> None:
        raise OSError("the database is away")

    closed: list[str] = []
    app.lifespan(lambda: None, lambda: closed.append("cache"))
    app.lifespan(lambda: None, fail)
    recorder = Recorder()
    _subscribe(app, recorder, "orders")
    app.start()
    recorder_id = app.publisher.publish("socks", "orders")
    wait_until(lambda: app.app.ready, "it consumes")
    with pytest.raises(ConfigurationError) as told:
        app.close()

    assert_it_helps(told.value, "lifespan", "at the end", "the database is away")
    assert closed == ["cache"]
    assert recorder.tried in ({}, {recorder_id: 1})


def test_a_test_can_have_another_broker_and_a_short_delay(
    driven: type[DrivenApp], rabbitmq_url: str
) -> None:
    recorder = Recorder(always_fails)
    with driven("amqp://guest:guest@nowhere.invalid/", retry=RetryPolicy(3, 3600)) as app:
        subscriber = _subscribe(app, recorder, "orders")
        usual = subscriber.subscription
        with app.app.override(rabbitmq_url, retry_delay=SOON), app.running():
            app.publisher.publish("socks", "orders")
            wait_until(lambda: depth(rabbitmq_url, "shop@orders@failed") == 1, "it gives up")

        assert subscriber.subscription is usual
    assert len(recorder.attempts) == 4


def test_the_url_can_come_from_the_environment(
    driven: type[DrivenApp], rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    with driven() as app:
        _subscribe(app, recorder, "orders")
        monkeypatch.setenv("REDRIVE_URL", rabbitmq_url)
        with app.running():
            recorder.wait_for_handled([app.publisher.publish("socks", "orders")])


def test_what_a_handler_publishes_carries_its_messages_correlation(app: DrivenApp) -> None:
    seen: dict[str, str | None] = {}

    def on_order(message: Message) -> None:
        app.publisher.publish("invoice", "users")

    def on_user(message: Message) -> None:
        seen[message.message_id or ""] = message.properties.correlation_id

    _subscribe(app, on_order, "orders")
    users = Recorder(on_user)
    _subscribe(app, users, "users")
    with app.running():
        own = app.publisher.publish("no correlation", "orders")
        app.publisher.publish(  # type: ignore[call-arg]  # not in the protocol
            "correlated", "orders", extras=Extras(correlation_id="basket 7")
        )
        wait_until(lambda: len(seen) == 2, "both are handled")

    assert set(seen.values()) == {own, "basket 7"}


def test_what_is_to_be_published_before_the_ack_is_published_when_the_handler_has_returned(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    before: list[int] = []

    def on_order(message: Message) -> None:
        for number in range(3):
            app.app.publisher.publish_then_ack(str(number), "users", message_id=str(number))
        before.append(depth(rabbitmq_url, "shop@users"))

    with plain_channel(rabbitmq_url) as channel:
        channel.exchange_declare("master", "topic", durable=True)
        channel.queue_declare("shop@users", durable=True)
        channel.queue_bind("shop@users", "master", "users")
    orders = Recorder(on_order)
    _subscribe(app, orders, "orders")
    with app.running():
        orders.wait_for_handled([app.publisher.publish("socks", "orders")])
        wait_until(lambda: depth(rabbitmq_url, "shop@users") == 3, "they are published")

    assert before == [0]
    ids = [properties.message_id for properties, _ in drain(rabbitmq_url, "shop@users")]
    assert ids == ["0", "1", "2"]


def test_an_attempt_that_fails_publishes_nothing_before_an_ack(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    def on_order(message: Message) -> None:
        app.app.publisher.publish_then_ack(str(message.retries), "users")
        always_fails(message) if message.retries == 0 else None

    users, orders = Recorder(), Recorder(on_order)
    _subscribe(app, orders, "orders")
    _subscribe(app, users, "users")
    with app.running():
        order = app.publisher.publish("socks", "orders")
        wait_until(lambda: users.handled, "it is published")

    assert orders.tried == {order: 2}
    assert [attempt.body for attempt in users.attempts] == [b"1"]


def test_what_can_not_be_published_before_the_ack_fails_the_attempt(
    app: DrivenApp, rabbitmq_url: str
) -> None:
    def on_order(message: Message) -> None:
        app.app.publisher.publish_then_ack("nobody hears", "nobody", mandatory=True)

    orders = Recorder(on_order)
    _subscribe(app, orders, "orders")
    with app.running():
        order = app.publisher.publish("socks", "orders")
        wait_until(lambda: depth(rabbitmq_url, "shop@orders@failed") == 1, "it is set aside")

    assert orders.tried == {order: 2}


def test_outside_of_a_handler_there_is_nothing_to_ack(app: DrivenApp) -> None:
    with pytest.raises(ConfigurationError) as told:
        app.app.publisher.publish_then_ack("socks", "orders")

    assert_it_helps(told.value, "no message is being handled", "publish")


def test_what_outlives_its_handler_can_not_publish_before_the_ack(app: DrivenApp) -> None:
    """What it asked for would be lost without a word."""
    contexts: list[Any] = []

    def on_order(message: Message) -> None:
        contexts.append(contextvars.copy_context())

    orders = Recorder(on_order)
    _subscribe(app, orders, "orders")
    with app.running():
        app.publisher.publish("socks", "orders")
        wait_for_consumers(app.app._place().url, "shop@orders")
        wait_until(lambda: orders.handled, "it is handled")
    with pytest.raises(ConfigurationError) as told:
        contexts[0].run(app.app.publisher.publish_then_ack, "socks", "orders")

    assert_it_helps(told.value, "has returned already")


def test_a_broker_that_is_away_at_the_start_is_told(driven: type[DrivenApp]) -> None:
    with driven("amqp://guest:guest@127.0.0.1:1/", patience=0) as app:
        _subscribe(app, Recorder(), "orders")
        _subscribe(app, Recorder(), "users")

        with pytest.raises(BrokerUnavailable), app.running():
            pytest.fail("the block began")


def test_declaring_makes_all_of_its_queues(app: DrivenApp, rabbitmq_url: str) -> None:
    for name in ("orders", "users"):
        _subscribe(app, Recorder(), name)
    app.declare()

    assert [depth(rabbitmq_url, f"shop@{name}") for name in ("orders", "users")] == [0, 0]
