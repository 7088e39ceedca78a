"""A subscription's filter means what the same text means to an operator."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.pubsub.message import Message
from redrive.pubsub.text_predicate import predicate_of
from redrive.topology.headers import Delivery
from redrive.topology.text_filter import TextFilter

WORDS = ("", "DE", "5", "true", "1.5", "it's", "ü", '"DE"', "null")
VALUES: tuple[FieldValue, ...] = (None, *WORDS, 5, -1, True, False, 1.5, 2**40)


def delivery(
    headers: dict[str, FieldValue], body: bytes, key: str = "DE", app_id: str | None = None
) -> Delivery:
    properties = Properties(headers=Table.of(headers), app_id=app_id, content_type="DE")
    return Delivery("q", "master", key, properties, body)


def condition() -> st.SearchStrategy[str]:
    word = st.sampled_from(WORDS).map(lambda text: "'" + text.replace("'", "''") + "'")
    place = st.sampled_from(
        [
            *("headers->>'a'", "headers->>'b-c'", "body->>'$.a'", "body->>'$.a.b'", "body->>'b'"),
            *("routing_key", "app_id", "content_type", "correlation_id"),
        ]
    )
    test = st.one_of(
        st.builds("{} {}".format, st.sampled_from(["=", "!=", "<>"]), word),
        st.lists(word, min_size=1, max_size=3).map(lambda words: f"in ({', '.join(words)})"),
        st.sampled_from(["is null", "IS NOT NULL"]),
    )
    return st.builds("{} {}".format, place, test)


HEADERS = st.dictionaries(st.sampled_from(["a", "b-c"]), st.sampled_from(VALUES))
BODIES = st.one_of(
    st.sampled_from([b"", b"no JSON", b"[]", b'"DE"', b"5"]),
    st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.one_of(
            st.sampled_from([*VALUES, {}]), st.fixed_dictionaries({"b": st.sampled_from(VALUES)})
        ),
    ).map(lambda body: json.dumps(body).encode()),
)


def contradicts_itself(expression: str) -> bool:
    """Whether a header is to have two values, which is refused: see
    `tests/unit/topology/test_text_filter.py`."""
    try:
        TextFilter(expression)
    except ConfigurationError as error:
        return "matches no message" in str(error)
    return False


@given(
    st.lists(condition(), min_size=1, max_size=3).map(" and ".join),
    HEADERS,
    BODIES,
    st.sampled_from(WORDS[1:]),
    st.sampled_from([None, *WORDS]),
)
def test_it_matches_what_an_operators_filter_matches(
    expression: str, headers: dict[str, FieldValue], body: bytes, key: str, app_id: str | None
) -> None:
    assume(not contradicts_itself(expression))
    one = delivery(headers, body, key, app_id)
    with OpenFilter(Filter(expression)) as matcher:
        (expected,) = matcher([FailedMessage(one)])
    text_filter = TextFilter(expression)
    assert predicate_of(text_filter)(Message(one, 3)) is expected, text_filter.sql
    if expected:  # the broker passes everything that matches
        assert all(headers[name] == text for name, text in text_filter.for_the_broker)


@pytest.mark.parametrize("expression", ["headers.country = 'DE'", "body.address.country = 'DE'"])
def test_the_short_forms_mean_headers_and_paths(expression: str) -> None:
    matches = predicate_of(TextFilter(expression))
    body = b'{"address": {"country": "DE"}}'
    assert matches(Message(delivery({"country": "DE"}, body), 3))
    assert not matches(Message(delivery({"country": "AT"}, b"{}"), 3))
    assert not matches(Message(delivery({"country": b"\xff"}, b"\xff"), 3))
