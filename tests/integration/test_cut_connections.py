"""A wire that is cut, at every place that has one."""

import threading
import time

import pytest

from contract.administration import Administration
from contract.plain import plain_channel
from contract.shells import APP, ASYNC, ASYNC_APP, BLOCKING, Shell
from contract.support import Recorder, Service, both_shells, mostly
from effort import effort, nightly
from journey import MOST_DUPLICATES, Journey
from redrive import BrokerUnavailable, Message, Publisher, Subscriber
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.url import BrokerURL
from redrive.testing import Broker, Proxy
from redrive.topology.model import QueueType
from waiting import DEADLINE, wait_until


@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    ("shell", "queue_type"),
    [
        pytest.param(BLOCKING, "classic", id="blocking-classic"),
        pytest.param(ASYNC, "quorum", id="async-quorum"),
        nightly(BLOCKING, "quorum", why="each half is tried each time", id="blocking-quorum"),
        nightly(APP, "quorum", why="the engine of its shell", id="app"),
        nightly(ASYNC_APP, "quorum", why="the engine of its shell", id="async-app"),
    ],
)
def test_connections_cut_in_the_middle_of_thousands_of_messages_lose_none(
    rabbitmq_url: str, shell: Shell, queue_type: QueueType
) -> None:
    with Proxy(rabbitmq_url) as proxy:

        def cut_twice() -> None:
            proxy.cut()
            wait_until(lambda: proxy.connections, "somebody is connected again")
            proxy.cut()

        journey = Journey(Service(proxy.url, shell=shell, queue_type=queue_type), cut_twice)

    assert journey.unconfirmed == 0
    assert journey.lost_at(rabbitmq_url) == set()
    assert journey.duplicates <= 2 * MOST_DUPLICATES


@both_shells
@pytest.mark.timeout(3600)
def test_however_often_it_is_cut_a_subscriber_comes_back_with_one_consumer(
    rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    recorder = Recorder()
    ids: list[str] = []
    with (
        Proxy(rabbitmq_url) as proxy,
        service.subscriber(recorder, url=proxy.url, prefetch=3) as subscriber,
        plain_channel(rabbitmq_url) as channel,
    ):

        def consumers() -> int:
            declared = channel.queue_declare(service.queue, passive=True)
            return int(declared.method.consumer_count)

        for _ in range(effort(10, nightly=1000)):
            ids += [service.publish() for _ in range(3)]  # it is cut with some in hand, or none
            proxy.cut()
            wait_until(
                lambda: proxy.connections and subscriber.ready and consumers() == 1,
                "it consumes again, once",
            )
        recorder.wait_for_handled(ids)
        assert (subscriber.ready, consumers()) == (True, 1)

    assert service.failed() == []


@both_shells
def test_a_publisher_whose_wire_was_cut_between_two_messages_publishes_the_second(
    rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    recorder = Recorder()
    with (
        Proxy(rabbitmq_url) as proxy,
        service.subscriber(recorder),
        service.publisher(url=proxy.url) as publisher,
    ):
        first = publisher.publish("socks", "order.paid")
        proxy.cut()
        second = publisher.publish("socks", "order.paid")
        recorder.wait_for_handled([first, second])


@both_shells
def test_a_message_on_its_way_when_the_wire_is_cut_is_published_on_the_next_one(
    rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    recorder = Recorder()
    with (
        Proxy(rabbitmq_url) as proxy,
        service.subscriber(recorder),
        service.publisher(url=proxy.url, timeout=DEADLINE) as publisher,
    ):
        published: list[str] = []
        proxy.freeze()
        thread = threading.Thread(
            target=lambda: published.append(
                publisher.publish("socks", "order.paid", mandatory=True)
            )
        )
        thread.start()
        time.sleep(0.3)  # the message is in the frozen wire
        assert not published
        proxy.cut()
        proxy.thaw()
        thread.join(DEADLINE)

        assert len(published) == 1
        recorder.wait_for_handled(published)


def test_a_subscriber_whose_wire_was_cut_comes_back_and_goes_on(rabbitmq_url: str) -> None:
    recorder = Recorder()
    ids = set()
    with Proxy(rabbitmq_url) as proxy, Service(proxy.url).subscriber(recorder):
        for _ in range(3):
            message_id = Service(rabbitmq_url).publish()
            ids.add(message_id)
            recorder.wait_for_handled([message_id])
            proxy.cut()

    assert recorder.handled.keys() == ids
    # A cut may come before the ack has left: the one message that was in hand is then handled
    # again.
    assert max(recorder.handled.values()) <= 2


@both_shells
def test_a_message_whose_handler_ran_while_the_wire_was_cut_is_delivered_again(
    rabbitmq_url: str, shell: Shell
) -> None:
    begun, released = threading.Event(), threading.Event()

    def handler(_: object) -> None:
        begun.set()
        released.wait(DEADLINE)

    recorder = Recorder(handler)
    with Proxy(rabbitmq_url) as proxy, Service(proxy.url, shell=shell).subscriber(recorder):
        message_id = Service(rabbitmq_url).publish()
        assert begun.wait(DEADLINE)
        proxy.cut()
        recorder.wait_for_attempts(1)
        released.set()
        wait_until(lambda: recorder.handled[message_id] == 2, "it is handled again")


@both_shells
def test_a_subscriber_waits_for_a_broker_that_is_away(rabbitmq_url: str, shell: Shell) -> None:
    recorder = Recorder()
    with Proxy(rabbitmq_url) as proxy, Service(proxy.url, shell=shell).subscriber(recorder):
        before = Service(rabbitmq_url).publish()
        recorder.wait_for_handled([before])
        proxy.refuse()
        proxy.cut()
        time.sleep(2)  # it knocks, and nobody is there
        after = Service(rabbitmq_url).publish()
        proxy.accept()
        recorder.wait_for_handled([after])


@both_shells
def test_a_subscriber_that_is_stopped_while_it_connects_just_ends(
    rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    with Proxy(rabbitmq_url) as proxy:
        proxy.freeze()
        with shell.subscriber(Recorder(), proxy.url, service.queue, declare=False) as running:
            wait_until(lambda: proxy.connections, "it knocks")
            running.stop()

            assert running.stopped(DEADLINE)


@pytest.mark.nightly("the torture run restarts one each time")
@mostly(ASYNC)
def test_a_broker_that_was_restarted_finds_publisher_and_subscriber_at_work_again(
    rabbitmq_broker: Broker, rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    recorder = Recorder()
    with service.subscriber(recorder), service.publisher() as publisher:
        before = publisher.publish("socks", "order.paid", mandatory=True)
        recorder.wait_for_handled([before])
        rabbitmq_broker.restart()
        after = publisher.publish("socks", "order.paid", mandatory=True, timeout=2 * DEADLINE)
        recorder.wait_for_handled([after])


@pytest.mark.parametrize("what", ["queue", "exchange"])
def test_what_was_deleted_is_declared_again_when_a_subscriber_comes_back(
    rabbitmq_url: str, what: str
) -> None:
    recorder = Recorder()
    service = Service(rabbitmq_url)
    with Proxy(rabbitmq_url) as proxy, Service(proxy.url).subscriber(recorder):
        recorder.wait_for_handled([service.publish()])
        proxy.refuse()
        with plain_channel(rabbitmq_url) as channel:
            channel.queue_delete(service.queue) if what == "queue" else channel.exchange_delete(
                "master"
            )
        proxy.cut()
        proxy.accept()
        after = published_once_there_is_a_queue(service)
        recorder.wait_for_handled([after])


@both_shells
def test_a_queue_that_is_deleted_under_a_subscriber_is_declared_again(
    rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    recorder = Recorder()
    with service.subscriber(recorder):
        recorder.wait_for_handled([service.publish()])
        with plain_channel(rabbitmq_url) as channel:
            channel.queue_delete(service.queue)
        after = published_once_there_is_a_queue(service)
        recorder.wait_for_handled([after])


@both_shells
def test_a_connection_that_an_administrator_closes_comes_back(
    rabbitmq_url: str, rabbitmq_management_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    recorder = Recorder()
    with service.subscriber(recorder, connection_name="to be closed"):
        # It consumes: the connection that it declared with, of the same name, is gone.
        recorder.wait_for_handled([service.publish()])
        wait_until(
            lambda: administration.connection_names().count("to be closed") == 1,
            "the broker lists it alone",
        )
        assert administration.close_connections("to be closed") == 1
        recorder.wait_for_handled([service.publish()])


def test_a_connection_that_is_cut_while_something_is_looked_up_leaves_no_error_of_pikas(
    rabbitmq_url: str,
) -> None:
    def cut_and_look() -> None:
        with Connector(BrokerURL.parse(proxy.url), "test").blocking() as connection:
            proxy.cut()
            connection.channel()

    with (
        Proxy(rabbitmq_url) as proxy,
        pytest.raises(BrokerUnavailable, match="connection was lost"),
    ):
        cut_and_look()


def test_credentials_are_asked_for_again_at_each_connection(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    passwords = {"now": "first"}
    asked: list[str] = []

    user = administration.unique("rotating")

    def credentials() -> tuple[str, str]:
        asked.append(passwords["now"])
        return user, passwords["now"]

    service = Service(rabbitmq_url)
    recorder = Recorder()
    with (
        administration.user(user, password="first"),
        Proxy(rabbitmq_url) as proxy,
        Service(proxy.url).subscriber(recorder, credentials=credentials),
    ):
        recorder.wait_for_handled([service.publish()])
        administration.change_password(user, "second")
        passwords["now"] = "second"
        proxy.cut()
        recorder.wait_for_handled([service.publish()])

    assert "first" in asked
    assert asked[-1] == "second"


def test_the_next_host_of_a_url_is_used_where_the_first_is_dead(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url)
    recorder = Recorder()
    with Proxy(rabbitmq_url) as dead:
        two_hosts = rabbitmq_url.replace(
            "@", f"@127.0.0.1:{dead.url.rpartition(':')[2].partition('/')[0]},"
        )
        dead.refuse()
        subscriber = Subscriber(two_hosts, service.queue, service.routing_keys, retry=service.retry)
        subscriber.handler(recorder)
        subscriber.start()
        try:
            with Publisher(two_hosts) as publisher:
                wait_until(
                    lambda: publisher.publish("socks", "order.paid") and recorder.handled,
                    "a message is handled",
                )
        finally:
            subscriber.stop()
            assert subscriber.wait(DEADLINE)


def test_a_subscriber_goes_on_with_the_second_host_when_the_first_dies(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url)
    recorder = Recorder()
    with Proxy(rabbitmq_url) as first, Proxy(rabbitmq_url) as second:
        hosts = ",".join(proxy.url.partition("@")[2].partition("/")[0] for proxy in (first, second))
        url = f"{rabbitmq_url.partition('@')[0]}@{hosts}/{rabbitmq_url.rpartition('/')[2]}"
        with Service(url).subscriber(recorder):
            recorder.wait_for_handled([service.publish()])
            for gone in (first, second):
                gone.refuse()
                gone.cut()
                (second if gone is first else first).accept()
                recorder.wait_for_handled([service.publish()])


def test_a_handler_longer_than_the_heartbeat_keeps_its_connection(rabbitmq_url: str) -> None:
    service = Service(f"{rabbitmq_url}?heartbeat=4")

    def handler(message: Message) -> None:
        if message.body == b"long":
            time.sleep(13)

    recorder = Recorder(handler)
    with service.subscriber(recorder):
        long = Service(rabbitmq_url).publish("long")
        recorder.wait_for_handled([long])
        last = Service(rabbitmq_url).publish()
        recorder.wait_for_handled([last])

    assert recorder.tried == {long: 1, last: 1}


def published_once_there_is_a_queue(service: Service) -> str:
    """Publishes until a message finds a queue; returns its id."""
    with Publisher(service.url) as publisher:

        def find() -> str:
            before = publisher.unroutable
            message_id = publisher.publish("socks", "order.paid")
            return message_id if publisher.unroutable == before else ""

        return wait_until(find, "a message finds its queue again")
