import copy
import inspect
import pickle
from datetime import UTC, datetime, timedelta

import pytest

from redrive import errors
from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    DependencyDown,
    GiveUp,
    HandlerTimeout,
    InvalidMessage,
    PermissionDenied,
    PublishError,
    PublishNacked,
    PublishRefused,
    PublishTimeout,
    RedriveError,
    Retry,
    TopologyMismatch,
    Unroutable,
)

EXAMPLES: list[RedriveError] = [
    RedriveError("something"),
    ConfigurationError("the delay is negative", "Give a positive one."),
    ConfigurationError("the delay is negative"),
    TopologyMismatch("queue", "ucenter@user@retry", "x-message-ttl", "1000", "30000"),
    BrokerUnavailable("amqp://guest:guest@localhost/", "connection refused"),
    BrokerUnavailable("localhost:5672", "no answer from amqp://guest:guest@localhost/", "Wait."),
    PermissionDenied("ACCESS_REFUSED", "Ask for the right to configure."),
    PublishError("m-1", "user.create", "the connection was lost"),
    PublishNacked("m-1", "user.create", "the queue is full"),
    PublishRefused("m-1", "user.create", "it is too large"),
    Unroutable("m-1", "user.create", "no queue is bound"),
    PublishTimeout("m-1", "user.create", "no confirm within 30 s"),
    InvalidMessage("the body is no JSON"),
    HandlerTimeout(30),
    Retry(),
    Retry("the shop is closed"),
    DependencyDown("503", "billing"),
    GiveUp(),
    GiveUp("the user is gone"),
    Retry(timedelta(minutes=5)),
    Retry(ValueError("closed"), after="1h30m"),
    GiveUp(ValueError("gone")),
]
FREE_TEXTS = {"problem", "reason", "remedy", "address"}
SECRET = "hunter2"
WITH_SECRET = f"no answer from amqp://guest:{SECRET}@localhost/ at all"


def every_error() -> list[type[RedriveError]]:
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, RedriveError)
    ]


def test_the_examples_have_every_error() -> None:
    assert {type(error) for error in EXAMPLES} == set(every_error())


@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
def test_an_error_comes_through_a_pickle_as_it_was(error: RedriveError) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert (type(again), str(again), again.args, vars(again)) == (
            type(error),
            str(error),
            error.args,
            vars(error),
        )


@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
def test_an_error_is_copied_as_it_is(error: RedriveError) -> None:
    assert str(copy.copy(error)) == str(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
def test_an_error_says_something(error: RedriveError) -> None:
    assert str(error).strip()


def texts_of(error: type[RedriveError]) -> list[tuple[type[RedriveError], str]]:
    return [(error, name) for name in inspect.signature(error).parameters if name in FREE_TEXTS]


@pytest.mark.parametrize(
    ("error", "parameter"),
    [pair for error in every_error() if error is not RedriveError for pair in texts_of(error)],
)
def test_no_error_holds_a_password(error: type[RedriveError], parameter: str) -> None:
    texts = {
        name: "x"
        for name in inspect.signature(error).parameters
        if name not in {"after", "seconds"}
    }
    raised = error(**texts | {parameter: WITH_SECRET})
    assert SECRET not in f"{raised!s} {raised!r} {raised.args} {vars(raised)}"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigurationError("a problem"), "a problem"),
        (ConfigurationError("a problem", "A remedy."), "a problem\nA remedy."),
        (
            TopologyMismatch("queue", "q@retry", "x-message-ttl", "1000", "30000"),
            (
                "queue 'q@retry' is on the broker with x-message-ttl=30000; x-message-ttl=1000 is "
                "asked for.\n"
                "RabbitMQ can't change this on a live queue: keep delay='30s' and add "
                "backoff=['1s'] with max_retries, which needs no other queue, or migrate it "
                "(redrive topology init topology.yaml, change it there, redrive topology migrate "
                "topology.yaml --queue q)."
            ),
        ),
        (
            TopologyMismatch("queue", "q", "x-queue-type", "quorum", "classic"),
            (
                "queue 'q' is on the broker with x-queue-type=classic; x-queue-type=quorum is "
                "asked for.\n"
                "RabbitMQ can't change this on a live queue: ask for classic, use another name, "
                "or migrate it (redrive topology init topology.yaml, change it there, redrive "
                "topology migrate topology.yaml --queue q)."
            ),
        ),
        (
            BrokerUnavailable("amqp://guest:guest@localhost/", "connection refused"),
            (
                "RabbitMQ at amqp://guest:***@localhost/ can't be used: connection refused.\n"
                "Check that RabbitMQ runs there, and the host and port."
            ),
        ),
        (PermissionDenied("ACCESS_REFUSED", "Ask."), "ACCESS_REFUSED.\nAsk."),
        (
            Unroutable("m-1", "a.b", "no queue"),
            "message m-1 with routing key 'a.b' was not confirmed: no queue",
        ),
        (HandlerTimeout(1.5), "the handler ran for more than 1.5 s"),
        (Retry(), "the handler asked for a retry"),
        (Retry("closed"), "closed"),
        (GiveUp(), "the handler gave up"),
        (GiveUp("gone"), "gone"),
        (InvalidMessage("no JSON"), "no JSON"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_the_text_of_an_error(error: RedriveError, text: str) -> None:
    assert str(error) == text


NOW = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("after", "wait"),
    [
        (None, None),
        (timedelta(minutes=5), timedelta(minutes=5)),
        (timedelta(0), timedelta(0)),
        (NOW + timedelta(hours=1), timedelta(hours=1)),
        (NOW - timedelta(hours=1), timedelta(0)),
    ],
)
def test_a_handler_says_how_long_or_until_when_a_message_waits(
    after: timedelta | datetime | None, wait: timedelta | None
) -> None:
    assert Retry("later", after=after).wait(NOW) == wait


FIVE_MINUTES = timedelta(minutes=5)


@pytest.mark.parametrize("wait", [FIVE_MINUTES, 300, 300.0, "5m", NOW + FIVE_MINUTES], ids=repr)
def test_a_wait_may_be_given_in_any_way_that_people_write_one_also_as_the_only_argument(
    wait: timedelta | float | str | datetime,
) -> None:
    for retry in (Retry(wait), Retry("later", wait), Retry(after=wait), Retry("later", after=wait)):
        assert retry.wait(NOW) == FIVE_MINUTES
    assert Retry(wait).reason == ""
    assert Retry("later", wait).reason == "later"


def test_a_text_that_is_no_duration_is_the_reason_and_so_is_one_beside_a_wait() -> None:
    assert (Retry("5 apples").reason, Retry("5 apples").after) == ("5 apples", None)
    assert (Retry("5m", 60).reason, Retry("5m", 60).after) == ("5m", timedelta(minutes=1))


@pytest.mark.parametrize(
    "after",
    [
        timedelta(seconds=-1),
        datetime(2024, 5, 17),
        -5,
        float("nan"),
        float("inf"),
        1e300,
        True,
        "soon",
        "",
        object,
    ],
    ids=repr,
)
def test_a_retry_after_what_is_no_wait_is_refused(after: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="a timedelta from 0 up, an aware datetime"):
        Retry("later", after=after)


@pytest.mark.parametrize(
    "reason",
    [timedelta(seconds=-1), datetime(2024, 5, 17), -5, True, float("nan"), object, b"5m", None],
    ids=repr,
)
def test_a_retry_for_what_is_neither_a_reason_nor_a_wait_is_refused(reason: str) -> None:
    with pytest.raises(
        ConfigurationError, match="a timedelta from 0 up, an aware datetime"
    ) as told:
        Retry(reason)
    assert "a text or an exception" in told.value.remedy


def test_two_waits_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="which is not a reason"):
        Retry(FIVE_MINUTES, after=FIVE_MINUTES)


class Unspeakable(Exception):
    """An exception that can't be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("kind", [Retry, GiveUp, InvalidMessage])
@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (ValueError("gone"), "ValueError: gone"),
        (KeyError(), "KeyError"),
        (Unspeakable(), "Unspeakable: <its text is not available: RuntimeError>"),
        (OSError(WITH_SECRET), "OSError: no answer from amqp://guest:***@localhost/ at all"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_an_exception_is_a_reason_and_the_cause(
    kind: type[Retry] | type[GiveUp] | type[InvalidMessage], reason: Exception, text: str
) -> None:
    error = kind(reason)
    assert str(error) == text
    assert error.args[0] == text
    assert error.__cause__ is reason


@pytest.mark.parametrize("kind", [Retry, GiveUp, InvalidMessage])
def test_a_reason_in_words_keeps_what_was_being_handled_in_the_traceback(
    kind: type[RedriveError],
) -> None:
    assert not kind("gone").__suppress_context__


@pytest.mark.parametrize("reason", [FIVE_MINUTES, 5, None, ValueError], ids=repr)
def test_giving_up_for_what_is_no_reason_is_refused(reason: str) -> None:
    with pytest.raises(ConfigurationError, match="a text or an exception"):
        GiveUp(reason)


@pytest.mark.parametrize("error", [PublishNacked, PublishRefused, Unroutable, PublishTimeout])
def test_whatever_keeps_a_message_from_being_confirmed_is_a_publish_error(
    error: type[RedriveError],
) -> None:
    assert issubclass(error, PublishError)


@pytest.mark.parametrize("error", every_error())
def test_every_error_stands_in_the_tree_of_the_docstring(error: type[RedriveError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__
