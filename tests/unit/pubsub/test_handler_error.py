"""What a handler's exception means, and which one of an exception group decides."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from redrive import ConfigurationError, GiveUp, InvalidMessage, Retry
from redrive.pubsub.handler_error import raised, traceback_of, with_causes
from redrive.topology.decision import Raised
from redrive.topology.policy import DISCARD, NO_RETRY, THE_USUAL, ErrorRule, RetryPolicy

NOW = datetime(2024, 5, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLICY = RetryPolicy(
    errors={
        KeyError: NO_RETRY,
        ConnectionError: ErrorRule(max_retries=20),
        TimeoutError: ErrorRule(backoff=MINUTE),
        OSError: ErrorRule(),
    }
)


def group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("unhandled errors in a TaskGroup", errors)


def outcome(*errors: BaseException) -> Raised:
    """What a group of these means, which lies in another group."""
    return raised(group(group(*errors)), NOW, POLICY)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no socks"),
        KeyError("size"),
        GiveUp("gone"),
        InvalidMessage("no JSON"),
        Retry("later", MINUTE),
        SystemExit(1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_group_of_one_is_that_one(error: BaseException) -> None:
    assert outcome(error) == raised(error, NOW, POLICY)


def test_a_give_up_anywhere_gives_up() -> None:
    decided = raised(
        group(
            ValueError("x"),
            group(Retry("later", MINUTE), group(GiveUp("gone"))),
            InvalidMessage("no JSON"),
        ),
        NOW,
        POLICY,
    )
    assert (decided.give_up, decided.error.message) == ("gave-up", "gone")


def test_an_invalid_message_anywhere_is_one() -> None:
    decided = outcome(KeyError("size"), InvalidMessage("no JSON"))
    assert (decided.give_up, decided.error.message) == ("invalid-message", "no JSON")


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        (
            [ConnectionResetError("cut"), ValueError("x"), KeyError("size"), KeyError("other")],
            KeyError,
        ),
        ([ConnectionResetError("cut"), ValueError("x"), RuntimeError("y")], ValueError),
        ([ValueError("x"), TimeoutError("slow")], TimeoutError),
        ([Retry("later"), ValueError("x")], Retry),
    ],
)
def test_else_the_first_that_is_allowed_the_fewest_retries_decides_and_among_equals_one_with_a_rule(
    errors: list[Exception], kind: type[Exception]
) -> None:
    decided = outcome(*errors)
    assert decided.error.message == str(next(error for error in errors if type(error) is kind))


def test_the_longest_wait_that_a_retry_asks_for_is_the_groups() -> None:
    errors = (
        KeyError("size"),
        Retry("soon", MINUTE),
        Retry("whenever"),
        Retry("at noon", NOW + 5 * MINUTE),
    )
    assert outcome(*errors).after == 5 * MINUTE
    assert outcome(ValueError("x"), Retry("whenever")).after is None


def test_the_traceback_keeps_the_whole_group() -> None:
    text = traceback_of(group(ValueError("one"), group(GiveUp("two"))))
    assert all(
        part in text
        for part in ("unhandled errors in a TaskGroup", "ValueError: one", "GiveUp: two")
    )


def test_groups_in_groups_may_be_deep() -> None:
    error: BaseException = GiveUp("gone")
    for _ in range(5000):
        error = group(error)
    assert raised(error, NOW, POLICY).give_up == "gave-up"


@pytest.mark.parametrize("kind", [ExceptionGroup, BaseExceptionGroup])
def test_a_rule_for_groups_which_nothing_would_look_at_is_refused(
    kind: type[BaseException],
) -> None:
    with pytest.raises(ConfigurationError, match="groups are split into their exceptions"):
        RetryPolicy(errors={kind: NO_RETRY})


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


REFUSED = ConnectionRefusedError("no dependency")


def test_the_nearest_explicit_cause_with_a_rule_decides() -> None:
    wrapped = caused(RuntimeError("outer"), caused(ValueError("inner"), REFUSED))
    decided = raised(wrapped, NOW, POLICY)
    assert (decided.rule, decided.error.message) == (ErrorRule(max_retries=20), "outer")
    assert raised(caused(KeyError("own"), REFUSED), NOW, POLICY).rule == NO_RETRY


def test_a_group_among_the_causes_is_split() -> None:
    wrapped = caused(RuntimeError("outer"), group(ValueError("x"), group(REFUSED)))
    assert raised(wrapped, NOW, POLICY).rule == ErrorRule(max_retries=20)


def test_an_error_during_the_handling_of_another_is_not_caused_by_it() -> None:
    error = RuntimeError("while cleaning up")
    error.__context__ = REFUSED
    assert raised(error, NOW, POLICY).rule is THE_USUAL


def test_causes_in_a_circle_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    caused(one, other)
    caused(other, one)
    assert list(with_causes([one])) == [one, other]


def test_a_message_that_is_given_up_is_not_looked_through() -> None:
    policy = RetryPolicy(errors={ConnectionError: DISCARD, InvalidMessage: DISCARD})
    assert raised(caused(GiveUp("gone"), REFUSED), NOW, policy).rule is THE_USUAL
    assert raised(caused(InvalidMessage("no JSON"), REFUSED), NOW, policy).rule is DISCARD


def test_a_predicate_decides_beside_a_class_and_the_first_that_applies_wins() -> None:
    throttled = ErrorRule(50, when=lambda error: "429" in str(error))
    policy = RetryPolicy(errors={OSError: [throttled, ErrorRule(1)], KeyError: NO_RETRY})
    assert raised(OSError("429"), NOW, policy).rule is throttled
    assert raised(OSError("500"), NOW, policy).rule == ErrorRule(1)
    assert raised(KeyError("429"), NOW, policy).rule == NO_RETRY


async def asks_later(error: BaseException) -> bool:
    return True


def exits(error: BaseException) -> bool:
    raise SystemExit


@pytest.mark.parametrize("when", [exits, asks_later, lambda error: error.status == 429])
def test_a_predicate_that_fails_does_not_match_and_is_logged(
    when: Callable[[BaseException], bool], caplog: pytest.LogCaptureFixture
) -> None:
    policy = RetryPolicy(errors={ValueError: [ErrorRule(discard=True, when=when), NO_RETRY]})
    decided = raised(ValueError("x"), NOW, policy)
    assert (decided.rule, decided.error.message) == (NO_RETRY, "x")
    assert "the `when` of an error rule failed" in caplog.text
