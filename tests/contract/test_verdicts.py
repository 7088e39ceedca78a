"""What a handler says by the way it fails."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pydantic
import pytest

from contract.support import SOON, OutOfStock, Recorder, Service, both_types, retrying
from redrive import NO_RETRY, GiveUp, Message, Retry, RetryPolicy
from redrive.failures.message.cause import cause_of
from waiting import wait_until


class Order(pydantic.BaseModel):
    """What some of these handlers ask for."""

    id: int
    item: str


@both_types
def test_a_body_that_is_no_model_of_the_handlers_is_set_aside_at_once_with_the_reason(
    service: Service,
) -> None:
    seen: list[Order] = []

    def handler(order: Order) -> None:
        seen.append(order)

    with service.subscriber(handler):
        service.publish({"id": "many", "item": "socks"})
        (failed,) = service.wait_for_failed()

    assert seen == []
    assert failed.reason == "invalid-message"
    assert failed.retries == 0
    assert failed.error_type == "redrive.errors.InvalidMessage"
    assert failed.error_message is not None
    assert "id: Input should be a valid integer" in failed.error_message
    assert failed.body == b'{"id":"many","item":"socks"}'


def test_a_body_that_is_a_model_of_the_handlers_arrives_as_one(service: Service) -> None:
    seen: list[Order] = []
    done = Recorder()

    def handler(order: Order) -> None:
        seen.append(order)

    with (
        service.subscriber(handler),
        Service(service.url, service.shell, queue="mail@orders").subscriber(done),
    ):
        message_id = service.publish(Order(id=1, item="socks"))
        done.wait_for_handled([message_id])
        wait_until(lambda: seen, "the other queue's handler has it")
    assert seen == [Order(id=1, item="socks")]


@both_types
@pytest.mark.parametrize("body", [b"\xff\xfe", b"", b'{"id": 1', b"[" * 100_000])
def test_a_body_that_is_no_json_at_all_is_set_aside_at_once(service: Service, body: bytes) -> None:
    def handler(order: dict[str, object]) -> None:
        raise AssertionError("there is no order")

    with service.subscriber(handler):
        service.publish(body)
        (failed,) = service.wait_for_failed()

    assert failed.reason == "invalid-message"
    assert failed.retries == 0
    assert failed.body == body


@both_types
def test_a_handler_that_gives_up_sets_the_message_aside_at_once(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(message: Message) -> None:
        raise GiveUp("the customer is gone")

    recorder = Recorder(handler)
    with service.subscriber(recorder):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert len(recorder.attempts) == 1
    assert failed.reason == "gave-up"
    assert failed.error_message == "the customer is gone"
    assert "was given up: the customer is gone; it is now in" in caplog.text


@both_types
def test_a_retry_that_the_handler_asks_for_counts_as_any_other_failure(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(message: Message) -> None:
        raise Retry("the bank is closed")

    recorder = Recorder(handler)
    with service.subscriber(recorder):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in recorder.attempts] == [0, 1, 2, 3]
    assert failed.reason == "retries-exhausted"
    assert failed.error_message == "the bank is closed"
    assert "asked for a retry: the bank is closed; it is now in" in caplog.text


@pytest.mark.parametrize(
    "verdict",
    [GiveUp(ValueError("the customer is gone")), GiveUp("ValueError: the customer is gone")],
    ids=["exception", "text"],
)
def test_giving_up_over_an_exception_says_which(service: Service, verdict: GiveUp) -> None:
    def handler(message: Message) -> None:
        raise verdict

    with service.subscriber(handler):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert (failed.reason, failed.retries, failed.error_message) == (
        "gave-up",
        0,
        "ValueError: the customer is gone",
    )


@pytest.mark.parametrize("wait", [timedelta(milliseconds=50), 0.05, "50ms"], ids=repr)
def test_a_wait_alone_is_one(service: Service, wait: timedelta | float | str) -> None:
    def handler(message: Message) -> None:
        raise Retry(wait)

    with service.subscriber(handler, retry=retrying(1, timedelta(hours=1))):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert (failed.reason, failed.retries, failed.error_type) == (
        "retries-exhausted",
        1,
        "redrive.errors.Retry",
    )


def test_a_delay_that_is_none_is_a_failed_attempt_that_says_so(service: Service) -> None:
    def handler(message: Message) -> None:
        raise Retry("the bank is closed", after=timedelta(seconds=-1))

    with service.subscriber(handler):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert failed.error_type == "redrive.errors.ConfigurationError"
    assert "Give a timedelta from 0 up, an aware datetime" in str(failed.error_message)


@dataclass
class Unspeakable(Exception):
    """An exception that can't be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@dataclass
class Rude(Exception):
    """An exception that ends whoever prints it."""

    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Unspeakable, Rude, MemoryError])
def test_whatever_a_handler_raises_is_a_failed_attempt_and_the_worker_lives(
    service: Service, kind: type[BaseException]
) -> None:
    def handler(message: Message) -> None:
        if message.body == b"bad":
            raise kind

    recorder = Recorder(handler)
    with service.subscriber(recorder):
        service.publish("bad")
        good = service.publish("good")
        recorder.wait_for_handled([good])
        (failed,) = service.wait_for_failed()

    assert failed.retries == 3
    assert failed.error_type is not None
    assert failed.error_type.endswith(kind.__name__)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Rude])
def test_whatever_a_predicate_raises_is_a_failed_attempt_and_the_worker_lives(
    service: Service, kind: type[BaseException]
) -> None:
    def wanted(message: Message) -> bool:
        if message.body == b"bad":
            raise kind
        return True

    recorder = Recorder()
    with service.subscriber(recorder, where=wanted):
        service.publish("bad")
        good = service.publish("good")
        recorder.wait_for_handled([good])
        (failed,) = service.wait_for_failed()
    assert (failed.body, failed.retries) == (b"bad", 3)
    assert str(failed.error_type).endswith(kind.__name__)


async def send_a_mail(message: Message) -> None:
    """Work that somebody would have to await."""
    raise AssertionError("nobody awaits it")


def count_the_socks(message: Message) -> Iterator[None]:
    """Work that somebody would have to iterate."""
    yield


@pytest.mark.parametrize(
    ("work", "what"),
    [
        (send_a_mail, "coroutine that nobody awaits"),
        (count_the_socks, "generator that nobody iterates"),
    ],
)
def test_work_that_a_handler_returns_and_nobody_does_is_a_failed_attempt(
    service: Service, work: Callable[[Message], object], what: str
) -> None:
    def handler(message: Message) -> object:
        return work(message)

    with service.subscriber(handler):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert (failed.reason, failed.retries) == ("retries-exhausted", 3)
    assert failed.error_type == "redrive.errors.ConfigurationError"
    assert what in str(failed.error_message)


def test_a_predicate_that_gives_a_coroutine_has_decided_nothing(service: Service) -> None:
    recorder = Recorder()
    with service.subscriber(recorder, where=lambda message: send_a_mail(message)) as subscriber:
        service.publish()
        (failed,) = service.wait_for_failed()

    assert "the predicate" in str(failed.error_message)
    assert "a coroutine that nobody awaits" in str(failed.error_message)
    assert (recorder.attempts, subscriber.declined) == ([], 0)


def in_groups(*errors: Exception) -> ExceptionGroup[Exception]:
    """What a task group in a task group raises."""
    return ExceptionGroup(
        "unhandled errors in a TaskGroup",
        [ExceptionGroup("unhandled errors in a TaskGroup", errors)],
    )


@pytest.mark.parametrize(
    ("errors", "reason", "kind"),
    [
        (
            (OutOfStock("no socks"), GiveUp("the customer is gone")),
            "gave-up",
            "redrive.errors.GiveUp",
        ),
        ((OutOfStock("no socks"), KeyError("size")), "not-retryable", "KeyError"),
        ((OutOfStock("no socks"),), "retries-exhausted", "contract.support.OutOfStock"),
    ],
)
def test_what_is_raised_in_an_exception_group_counts_as_if_it_was_raised_alone(
    service: Service, errors: tuple[Exception, ...], reason: str, kind: str
) -> None:
    def handler(message: Message) -> None:
        raise in_groups(*errors)

    recorder = Recorder(handler)
    with service.subscriber(
        recorder, retry=RetryPolicy(max_retries=1, delay=SOON, errors={KeyError: NO_RETRY})
    ):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert (failed.reason, failed.error_type) == (reason, kind)
    assert len(recorder.attempts) == (2 if reason == "retries-exhausted" else 1)
    assert failed.error_message == str(errors[-1])
    assert "unhandled errors in a TaskGroup" in str(failed.traceback)
    assert all(str(error) in str(failed.traceback) for error in errors)


def test_failures_in_groups_of_other_kinds_are_of_other_causes(service: Service) -> None:
    def handler(message: Message) -> None:
        raise in_groups(
            OutOfStock("no socks") if message.body == b"socks" else LookupError("no such customer")
        )

    with service.subscriber(handler, retry=retrying(0)):
        service.publish("socks")
        service.publish("shoes")
        failed = service.wait_for_failed(2)

    assert len({cause_of(message).group_id for message in failed}) == 2
