"""Rules for kinds of errors: what they retry, discard, and set aside in a queue of their own."""

import pytest

from contract.support import SOON, OutOfStock, Recorder, Service, both_types
from redrive import DISCARD, NO_RETRY, ConfigurationError, ErrorRule, Message, RetryPolicy
from waiting import wait_until


def fails_as_told(message: Message) -> None:
    """Fail as the body says, by way of an error that only the cause of tells."""
    try:
        raise OutOfStock(message.body.decode())
    except OutOfStock as error:
        raise RuntimeError("the handler of this shop failed") from error


def says(text: str) -> ErrorRule:
    return ErrorRule(0, when=lambda error: str(error) == text, failed_queue=text)


POLICY = RetryPolicy(
    2,
    SOON,
    errors={
        OutOfStock: [
            ErrorRule(when=lambda error: error.no_such_attribute),  # type: ignore[attr-defined]
            ErrorRule(0, when=lambda error: str(error) == "old", discard=True),
            ErrorRule(1, when=lambda error: str(error) == "stale", discard=True),
            says("invalid"),
            NO_RETRY,
        ]
    },
)


@both_types
def test_a_rule_discards_what_no_retry_can_help_and_counts_it(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder(fails_as_told)
    with service.subscriber(handler, retry=POLICY) as subscriber:
        old, stale = service.publish("old"), service.publish("stale")
        wait_until(lambda: subscriber.discarded == 2, "both are discarded")
        last = service.publish("other")
        (failed,) = service.wait_for_failed()

    assert handler.tried == {old: 1, stale: 2, last: 1}
    assert (failed.message_id, failed.reason) == (last, "not-retryable")
    assert "gone: its error's rule discards it (retries-exhausted after 1 retry)" in caplog.text
    assert "the `when` of an error rule failed" in caplog.text


@both_types
def test_a_rule_has_a_failed_queue_of_its_own_which_is_looked_at_and_requeued_like_any_other(
    service: Service,
) -> None:
    queue = f"{service.queue}@failed.invalid"
    with service.subscriber(Recorder(fails_as_told), retry=POLICY):
        message_id = service.publish("invalid")
        own = service.shell.failed_queue(service.url, queue)
        wait_until(lambda: own.depth() == 1, "it is set aside there")
        assert service.failed() == []
    (failed,) = own.browse()
    assert (failed.queue, failed.failed_queue) == (service.queue, queue)
    assert (failed.message_id, failed.body) == (message_id, b"invalid")
    assert failed.error_type == "RuntimeError"

    again = Recorder()
    with service.subscriber(again, retry=POLICY):
        assert own.requeue().requeued == 1
        again.wait_for_handled([message_id])
    assert own.depth() == 0


def test_what_a_rule_discards_lets_the_next_of_its_key_go_on(service: Service) -> None:
    handler = Recorder(lambda message: fails_as_told(message) if message.body == b"old" else None)
    with service.subscriber(handler, retry=RetryPolicy(errors={OutOfStock: DISCARD}), ordered=True):
        service.publish("old")
        handler.wait_for_handled([service.publish("new")])
    assert service.failed() == []


def test_a_queue_that_parks_has_no_failed_queue_for_a_kind_of_error(service: Service) -> None:
    with pytest.raises(ConfigurationError, match="parked together"):
        service.declare(retry=POLICY, ordered=True, when_given_up="park")
