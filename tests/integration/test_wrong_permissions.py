"""What a user without a right gets: the object, the right, and what to do."""

import pytest

from contract.administration import Administration
from contract.support import Recorder, Service, always_fails, assert_it_helps, retrying
from redrive import FailedQueue, PermissionDenied, Publisher, Subscriber
from waiting import DEADLINE, wait_until


@pytest.fixture
def administration(rabbitmq_management_url: str, rabbitmq_url: str) -> Administration:
    """Who makes users."""
    return Administration(rabbitmq_management_url, rabbitmq_url)


def test_a_user_without_a_right_in_the_virtual_host_is_told_so(
    administration: Administration,
) -> None:
    with (
        administration.user(
            administration.unique("nothing"), configure="", write="", read=""
        ) as url,
        pytest.raises(PermissionDenied) as told,
    ):
        Subscriber(url, "shop@orders").declare()

    assert_it_helps(
        told.value,
        "exchange 'master'",
        "configure permission",
        "rabbitmqctl set_permissions",
        secret="s3cret",
    )


def test_a_user_that_may_only_read_cannot_declare(
    administration: Administration, rabbitmq_url: str
) -> None:
    Service(rabbitmq_url).declare()
    with (
        administration.user(administration.unique("reader"), configure="", write="") as url,
        pytest.raises(PermissionDenied) as told,
    ):
        Subscriber(url, "shop@orders").declare()

    assert_it_helps(
        told.value,
        "exchange 'master'",
        "configure permission",
        "rabbitmqctl set_permissions",
        secret="s3cret",
    )


def test_a_user_that_may_only_read_cannot_publish(
    administration: Administration, rabbitmq_url: str
) -> None:
    Service(rabbitmq_url).declare()
    with (
        administration.user(administration.unique("reader"), configure="", write="") as url,
        Publisher(url) as publisher,
        pytest.raises(PermissionDenied) as told,
    ):
        publisher.publish("socks", "order.paid")

    assert_it_helps(
        told.value,
        "exchange 'master'",
        "write permission",
        "rabbitmqctl set_permissions",
        secret="s3cret",
    )


def test_publish_many_of_a_user_that_may_not_reports_each(
    administration: Administration, rabbitmq_url: str
) -> None:
    Service(rabbitmq_url).declare()
    with (
        administration.user(administration.unique("reader"), configure="", write="") as url,
        Publisher(url) as publisher,
    ):
        report = publisher.publish_many([("socks", "order.paid")] * 10)

    assert report.confirmed == 0
    assert [type(failed.error) for failed in report.failed] == [PermissionDenied] * 10


def test_a_user_that_may_only_write_publishes_where_the_exchanges_are(
    administration: Administration, rabbitmq_url: str
) -> None:
    service = Service(rabbitmq_url)
    recorder = Recorder()
    with (
        service.subscriber(recorder),
        administration.user(administration.unique("writer"), configure="", read="") as url,
        Publisher(url) as publisher,
    ):
        recorder.wait_for_handled([publisher.publish("socks", "order.paid")])


def test_a_user_that_may_only_write_cannot_publish_where_there_are_no_exchanges(
    administration: Administration,
) -> None:
    with (
        administration.user(administration.unique("writer"), configure="", read="") as url,
        pytest.raises(PermissionDenied) as told,
        Publisher(url),
    ):
        pass

    assert_it_helps(
        told.value,
        "exchange 'master'",
        "configure permission",
        "rabbitmqctl set_permissions",
        secret="s3cret",
    )


def test_a_user_that_may_not_read_cannot_subscribe(
    administration: Administration, rabbitmq_url: str
) -> None:
    Service(rabbitmq_url).declare()
    with administration.user(administration.unique("writer"), configure="", read="") as url:
        subscriber = Subscriber(url, "shop@orders", declare=False)
        subscriber.handler(Recorder())
        with pytest.raises(PermissionDenied) as told:
            subscriber.run()

    assert_it_helps(
        told.value,
        "queue 'shop@orders'",
        "read permission",
        "rabbitmqctl set_permissions",
        secret="s3cret",
    )


def test_a_user_that_may_not_read_the_failed_queue_cannot_look_at_it(
    administration: Administration, rabbitmq_url: str
) -> None:
    Service(rabbitmq_url).fail(3)
    with (
        administration.user(administration.unique("writer"), read="") as url,
        pytest.raises(PermissionDenied) as told,
    ):
        list(FailedQueue(url, "shop@orders").browse())

    assert_it_helps(
        told.value,
        "'shop@orders@failed'",
        "read permission",
        "rabbitmqctl set_permissions",
        secret="s3cret",
    )


def test_a_user_that_may_only_read_looks_where_the_management_api_tells_the_limit(
    administration: Administration, rabbitmq_management_url: str, rabbitmq_url: str
) -> None:
    ids = Service(rabbitmq_url).fail(3)
    with administration.user(
        administration.unique("reader"), configure="", write="", tags="monitoring"
    ) as url:
        failed = FailedQueue(url, "shop@orders", management_url=rabbitmq_management_url)

        assert [message.message_id for message in failed.browse()] == ids


def test_a_user_that_may_not_publish_sends_nothing_back(
    administration: Administration, rabbitmq_url: str
) -> None:
    service = Service(rabbitmq_url)
    ids = service.fail(3)
    with administration.user(administration.unique("reader"), write="^nothing$") as url:
        report = FailedQueue(url, "shop@orders").requeue()

    assert report.requeued == 0
    assert [type(failed.error) for failed in report.failed] == [PermissionDenied] * 3
    assert service.failed_ids() == ids


def test_a_worker_whose_user_may_not_declare_works_with_what_is_there(
    administration: Administration, rabbitmq_url: str
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    with administration.user(administration.unique("worker"), configure="") as url:
        subscriber = Subscriber(url, "shop@orders", declare=False, retry=retrying(0))
        subscriber.handler(always_fails)
        subscriber.start()
        service.publish()
        wait_until(lambda: service.failed_queue.depth() == 1, "the message is set aside")
        subscriber.stop()
        assert subscriber.wait(DEADLINE)


def test_a_worker_that_may_not_write_to_the_failed_exchange_keeps_the_message(
    administration: Administration, rabbitmq_url: str
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    with administration.user(
        administration.unique("worker"), configure="", write="^nothing$"
    ) as url:
        recorder = Recorder(always_fails)
        subscriber = Subscriber(url, "shop@orders", declare=False, retry=retrying(0), grace=1)
        subscriber.handler(recorder)
        subscriber.start()
        message_id = service.publish()
        recorder.wait_for_attempts(1)
        subscriber.stop()
        assert subscriber.wait(DEADLINE)
    after = Recorder()
    with service.subscriber(after):
        after.wait_for_handled([message_id])
