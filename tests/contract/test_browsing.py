"""Looking at a failed queue changes nothing in it."""

import contextlib
import itertools
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeout

import pika
import pytest

from contract.administration import Administration
from contract.plain import drain, plain_channel
from contract.support import Recorder, Service, assert_it_helps, both_types
from effort import effort
from redrive import BrokerUnavailable, ConfigurationError
from redrive.testing import Broker, Proxy
from redrive.testing.address import Address
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.names import failed_queue
from waiting import DEADLINE, wait_until


@both_types
def test_looking_again_and_again_loses_nothing_and_keeps_the_order(service: Service) -> None:
    ids = service.fail(20)

    # RabbitMQ 4.0 drops what was returned twenty times.
    for _ in range(effort(25, nightly=50)):
        assert service.failed_ids() == ids


@pytest.mark.versions("where a returned message stands")
@both_types
def test_looking_at_the_first_few_keeps_the_order(service: Service) -> None:
    ids = service.fail(20)

    for count in (1, 7, 19, 20, 21):
        assert [message.message_id for message in service.failed_queue.browse(count)] == ids[:count]
    assert service.failed_ids() == ids


@both_types
def test_looking_can_be_left_in_the_middle(service: Service) -> None:
    ids = service.fail(20)

    for message in service.failed_queue.browse():
        if message.message_id == ids[7]:
            break
    wait_until(lambda: service.failed_queue.depth() == 20, "all are back")
    assert service.failed_ids() == ids


@both_types
def test_a_message_that_is_looked_at_is_not_handled(service: Service) -> None:
    recorder = Recorder()
    ids = service.fail(3)
    with service.subscriber(recorder):
        assert service.failed_ids() == ids
        last = service.publish()
        recorder.wait_for_handled([last])

    assert recorder.tried == {last: 1}


@pytest.mark.versions("where a returned message stands")
@both_types
def test_messages_that_a_dying_process_still_holds_are_waited_for(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.failures.queue.failed_queue_base._OTHERS_LEAVE", DEADLINE)
    ids = service.fail(20)
    with Proxy(service.url) as proxy:
        connection = pika.BlockingConnection(pika.URLParameters(proxy.url))
        connection.channel().basic_consume(f"{service.queue}@failed", lambda *_: None)
        wait_until(lambda: service.failed_queue.depth() == 0, "all are held")
        threading.Timer(0.5, proxy.cut).start()

        assert service.failed_ids() == ids
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def test_an_empty_failed_queue_shows_nothing(service: Service) -> None:
    service.declare()

    assert service.failed() == []
    assert service.failed_queue.depth() == 0


def test_a_failed_queue_that_is_not_there_is_an_error_that_names_it(service: Service) -> None:
    with pytest.raises(ConfigurationError) as told:
        service.failed()

    assert_it_helps(told.value, "there is no queue 'shop@orders@failed'")


@both_types
def test_purging_deletes_all_and_says_how_many(service: Service) -> None:
    service.fail(5)

    assert service.failed_queue.purge() == 5
    assert service.failed() == []


_SET_POLICY = re.compile(
    r"rabbitmqctl set_policy (?:-p \S+ )?(\S+) '(.+?)' '(.+?)' (--apply-to) (\w+)"
)


class ForeignQueue:
    """A quorum failed queue that somebody declared without a delivery limit, with one message in
    it."""

    def __init__(self, service: Service, broker: Broker) -> None:
        assert broker.management_url is not None
        self.loses_messages = (
            BrokerVersion.parse(broker.version).deletes_after_deliveries is not None
        )
        self.administration = Administration(broker.management_url, service.url)
        with plain_channel(service.url) as channel:
            channel.queue_declare(
                "shop@orders@failed", durable=True, arguments={"x-queue-type": "quorum"}
            )
            channel.queue_declare("shop@orders", durable=True)
            properties = pika.BasicProperties(message_id="old", delivery_mode=2)  # type: ignore[no-untyped-call]
            channel.basic_publish("", "shop@orders@failed", b"socks", properties, mandatory=True)
        self.failed = service.shell.failed_queue(
            service.url, service.queue, management_url=broker.management_url
        )

    def look(self) -> list[str | None]:
        """The ids of what is in it."""
        return [message.message_id for message in self.failed.browse()]

    def is_safe(self) -> bool:
        """Whether looking is not refused."""
        try:
            self.look()
        except ConfigurationError:
            return False
        return True


@pytest.fixture
def foreign(service: Service, rabbitmq_broker: Broker) -> ForeignQueue:
    """The foreign failed queue."""
    return ForeignQueue(service, rabbitmq_broker)


@pytest.mark.versions("the delivery limit that a queue has by default")
def test_a_failed_queue_that_looking_would_empty_is_refused_where_the_broker_has_a_limit(
    foreign: ForeignQueue,
) -> None:
    if not foreign.loses_messages:
        assert [foreign.look() for _ in range(50)] == [["old"]] * 50
        return
    with pytest.raises(ConfigurationError) as told:
        foreign.look()

    assert_it_helps(
        told.value, "'shop@orders@failed' could delete messages", "rabbitmqctl set_policy"
    )


@pytest.mark.versions("the delivery limit that a queue has by default")
def test_choosing_what_to_requeue_from_such_a_queue_is_refused_too(foreign: ForeignQueue) -> None:
    if not foreign.loses_messages:
        assert foreign.failed.requeue(lambda message: False).skipped == 1
        return
    with pytest.raises(ConfigurationError) as told:
        foreign.failed.requeue(lambda message: True)

    assert_it_helps(
        told.value, "'shop@orders@failed' could delete messages", "rabbitmqctl set_policy"
    )


@pytest.mark.versions("the delivery limit that a queue has by default")
def test_the_policy_that_the_refusal_names_mends_the_queue(
    foreign: ForeignQueue, rabbitmq_broker: Broker
) -> None:
    if not foreign.loses_messages:
        assert foreign.look() == ["old"]
        return
    with pytest.raises(ConfigurationError) as told:
        foreign.look()
    command = _SET_POLICY.search(str(told.value))
    assert command is not None
    rabbitmq_broker.control(
        "set_policy", "-p", foreign.administration.virtual_host, *command.groups()
    )
    wait_until(foreign.is_safe, "the management API shows the policy")

    assert [foreign.look() for _ in range(50)] == [["old"]] * 50


@pytest.mark.versions("the delivery limit that a queue has by default")
def test_all_of_such_a_queue_can_be_requeued_without_a_policy(foreign: ForeignQueue) -> None:
    assert foreign.failed.requeue().requeued == 1


class LimitedQueue:
    """A failed queue of three messages, each of which was looked at four times, and the policy that
    gives it a delivery limit."""

    def __init__(self, service: Service, broker: Broker) -> None:
        assert broker.management_url is not None
        self.service = service
        self.ids = service.fail(3)
        self._administration = Administration(broker.management_url, service.url)
        self.queue = service.shell.failed_queue(
            service.url, service.queue, management_url=broker.management_url
        )
        for _ in range(4):
            assert self.look() == self.ids

    def look(self) -> list[str | None]:
        """The ids of what is in it."""
        return [message.message_id for message in self.queue.browse()]

    def limit(self, returns: int) -> None:
        """Sets the limit."""
        self._administration.set_policy(
            "low", "^shop@orders@failed$", {"delivery-limit": returns}, "queues"
        )

    def drained(self) -> list[str]:
        """The ids of what is in it, which is taken out."""
        taken = drain(self.service.url, "shop@orders@failed")
        return sorted(str(properties.message_id) for properties, _ in taken)


@pytest.fixture
def limited(service: Service, rabbitmq_broker: Broker) -> LimitedQueue:
    """The failed queue."""
    return LimitedQueue(service, rabbitmq_broker)


@pytest.mark.versions("what a policy with a delivery limit does")
@pytest.mark.parametrize("returns", [0, 2, 4])
def test_nothing_is_deleted_where_a_policy_lowers_the_limit_while_somebody_looks(
    limited: LimitedQueue, returns: int
) -> None:
    look = limited.queue.browse()
    seen = [message.message_id for message in itertools.islice(look, 3)]
    limited.limit(returns)
    assert [*seen, *(message.message_id for message in look)] == limited.ids

    wait_until(lambda: limited.service.failed_queue.depth() == 3, "all are back")
    assert limited.drained() == sorted(limited.ids)


@pytest.mark.versions("what a policy with a delivery limit does")
def test_nothing_is_deleted_by_looks_where_a_policy_has_lowered_the_limit(
    limited: LimitedQueue,
) -> None:
    limited.limit(6)
    for _ in range(6):
        with contextlib.suppress(ConfigurationError):
            limited.look()

    wait_until(lambda: limited.service.failed_queue.depth() == 3, "all are back")
    assert limited.drained() == sorted(limited.ids)


@contextlib.contextmanager
def silent_leader(broker: Broker, url: str, queue: str) -> Iterator[None]:
    """A queue whose leader, or process, answers nobody, as one that has much to do."""
    virtual_host = Address.parse(url).virtual_host
    name = f'rabbit_misc:r(<<"{virtual_host}">>, queue, <<"{queue}">>)'
    find = (
        f"{{ok, Queue}} = rabbit_amqqueue:lookup({name}), "
        "Leader = case amqqueue:get_pid(Queue) of {Quorum, _} -> Quorum; Classic -> Classic end"
    )
    broker.control("eval", f"{find}, sys:suspend(Leader).")
    try:
        yield
    finally:
        broker.control("eval", f"{find}, sys:resume(Leader).")


def test_a_queue_whose_leader_is_silent_for_a_while_is_not_taken_for_empty(
    rabbitmq_broker: Broker, rabbitmq_url: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "redrive.pubsub.blocking.declarer.ANSWER_TIMEOUT", 10 * DEADLINE
    )  # to hold a leader up takes a busy machine long
    service.set_aside(3)
    with ThreadPoolExecutor(1) as pool:
        with silent_leader(rabbitmq_broker, rabbitmq_url, failed_queue(service.queue)):
            depth = pool.submit(service.failed_queue.depth)
            with pytest.raises(FuturesTimeout):
                depth.result(1)
        assert depth.result(DEADLINE) == 3


@pytest.mark.versions("how a queue without a leader answers")
@both_types
def test_a_queue_that_never_answers_is_not_waited_for_for_ever(
    rabbitmq_broker: Broker, rabbitmq_url: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.set_aside(3)
    monkeypatch.setattr("redrive.pubsub.blocking.declarer.ANSWER_TIMEOUT", 0.5)
    with (
        silent_leader(rabbitmq_broker, rabbitmq_url, failed_queue(service.queue)),
        pytest.raises(BrokerUnavailable) as told,
    ):
        service.failed_queue.depth()

    assert_it_helps(told.value, failed_queue(service.queue))


@pytest.mark.versions("how a queue that does not answer is declared")
@pytest.mark.parametrize("queue_type", ["classic"])
def test_a_declaration_that_is_never_answered_is_not_waited_for_for_ever(
    rabbitmq_broker: Broker, rabbitmq_url: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.declare()
    monkeypatch.setattr("redrive.pubsub.blocking.declarer.ANSWER_TIMEOUT", 0.5)
    with (
        silent_leader(rabbitmq_broker, rabbitmq_url, service.queue),
        pytest.raises(BrokerUnavailable) as told,
    ):
        service.declare()

    assert_it_helps(told.value, service.queue)


@both_types
def test_more_than_one_consumer_holds_is_shown_requeued_and_given_back_in_its_order(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.pubsub.transfer.queue_reader.WINDOW", 40)
    ids = service.fail(150)
    wanted = set(ids[::3])

    assert service.failed_ids() == ids
    report = service.failed_queue.requeue(lambda message: message.message_id in wanted)
    assert (report.requeued, report.skipped) == (50, 100)
    assert service.failed_ids() == [message_id for message_id in ids if message_id not in wanted]
