"""Others who listen on the same exchange see what is published, and nothing of what becomes of it
elsewhere."""

from contract.plain import drain, plain_channel
from contract.support import Recorder, Service, always_fails, both_types


@both_types
def test_a_queue_bound_with_hash_gets_one_copy_of_what_another_retries_sets_aside_and_requeues(
    service: Service,
) -> None:
    service.declare()
    with plain_channel(service.url) as channel:
        channel.queue_declare("audit", durable=True)
        channel.queue_bind("audit", "master", "#")
    with service.subscriber(always_fails):
        message_id = service.publish()
        service.wait_for_failed()
    requeued = Recorder()
    with service.subscriber(requeued):
        service.failed_queue.requeue()
        requeued.wait_for_handled([message_id])

    assert [properties.message_id for properties, _ in drain(service.url, "audit")] == [message_id]


def test_a_subscription_of_everything_handles_once_what_another_retries_sets_aside_and_requeues(
    service: Service,
) -> None:
    everything = Recorder()
    others = Service(service.url, service.shell, queue="audit@everything", routing_keys=("#",))
    with others.subscriber(everything):
        with service.subscriber(always_fails):
            message_id = service.publish()
            service.wait_for_failed()
        requeued = Recorder()
        with service.subscriber(requeued):
            service.failed_queue.requeue()
            requeued.wait_for_handled([message_id])
        last = service.publish("the last one")
        everything.wait_for_handled([last])

    assert everything.tried == {message_id: 1, last: 1}


def test_two_subscriptions_of_one_message_fail_each_for_itself(service: Service) -> None:
    handled = Recorder()
    others = Service(service.url, service.shell, queue="mail@orders")
    with others.subscriber(handled), service.subscriber(always_fails):
        message_id = service.publish()
        service.wait_for_failed()
        handled.wait_for_handled([message_id])

    assert handled.tried == {message_id: 1}
    assert others.failed() == []


def test_a_message_published_with_the_queue_as_its_key_reaches_only_that_queue(
    service: Service,
) -> None:
    handler, other = Recorder(), Recorder()
    with (
        service.subscriber(handler),
        Service(service.url, service.shell, queue="mail@orders").subscriber(other),
    ):
        direct = service.publish(routing_key=service.queue)
        both = service.publish()
        handler.wait_for_handled([direct, both])
        other.wait_for_handled([both])

    assert other.tried == {both: 1}
