"""The text of a 406, as RabbitMQ 3.10 and 4.x write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.diff import mismatch_of

QUEUE_TEXT = (
    "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q@retry' in vhost '/': "
)


@pytest.mark.parametrize(
    ("values", "wanted", "found"),
    [
        ("received '1000' but current is '30000'", "1000", "30000"),
        ("received none but current is the value '30000' of type 'signedint'", "none", "30000"),
        ("received the value '1000' of type 'signedint' but current is none", "1000", "none"),
        (
            (
                "received the value '1000' of type 'signedint' but current is the value '30000' of "
                "type 'long'"
            ),
            "1000",
            "30000",
        ),
        ("received '' but current is 'master'", "", "master"),
    ],
)
def test_the_two_values_are_read(values: str, wanted: str, found: str) -> None:
    mismatch = mismatch_of(QUEUE_TEXT + values)
    assert mismatch is not None
    assert mismatch.args == ("queue", "q@retry", "x-message-ttl", wanted, found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'master' in vhost '/': "
                "received 'topic' but current is 'direct'"
            ),
            ("exchange", "master", "type", "topic", "direct"),
        ),
        (
            (
                "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost 'a b': "
                "received 'true' but current is 'false'"
            ),
            ("queue", "q", "durable", "true", "false"),
        ),
        (
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': "
                "received 'quorum' but current is 'classic'"
            ),
            ("queue", "q", "x-queue-type", "quorum", "classic"),
        ),
        (
            (
                "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'it's' "
                "in vhost '/': "
                "received none but current is the value 'master.unrouted' of type 'longstr'"
            ),
            ("exchange", "it's", "alternate-exchange", "none", "master.unrouted"),
        ),
    ],
    ids=lambda part: part[2] if isinstance(part, tuple) else "",
)
def test_the_object_and_the_argument_are_read(text: str, expected: tuple[str, ...]) -> None:
    mismatch = mismatch_of(text)
    assert mismatch is not None
    assert mismatch.args == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PRECONDITION_FAILED - unknown delivery tag 7",
        "NOT_FOUND - no exchange 'master' in vhost '/'",
        (
            "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "{value_negative,-1}"
        ),
    ],
)
def test_another_text_tells_of_no_mismatch(text: str) -> None:
    assert mismatch_of(text) is None


def test_a_text_that_was_cut_short_makes_nothing_raise() -> None:
    text = (
        QUEUE_TEXT
        + "received the value '1000' of type 'signedint' but current is the value '30000' of type "
        "'signedint'"
    )
    for length in range(255):
        mismatch = mismatch_of(text[:length])
        assert mismatch is None or mismatch.name == "q@retry", length


@given(st.text(max_size=255))
def test_no_text_makes_reading_raise(values: str) -> None:
    mismatch = mismatch_of(QUEUE_TEXT + values)
    assert mismatch is None or mismatch.argument == "x-message-ttl"
