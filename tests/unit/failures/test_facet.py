"""Counting messages by a column, a header or a path."""

import pytest

from deliveries import failed
from redrive.amqp.field_table import Table
from redrive.errors import ConfigurationError
from redrive.failures.facet import Facet, FacetValue, offered
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.look import Look


def message(version: str, body: bytes) -> FailedMessage:
    headers = Table.of({"X-App-Version": version, "redrive-host": "it's"})
    return FailedMessage(failed(headers, body=body))


MESSAGES = [
    message("1.0", b'{"country": "DE", "a/b": {"c d": 1}, "lines": [{"sku": "x"}]}'),
    message("1.0", b'{"country": "FR"}'),
    message("1.1", b"no JSON"),
]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("host", [("it's", 3)]),
        ("retries", [("0", 3)]),
        ("header:X-App-Version", [("1.0", 2), ("1.1", 1)]),
        ("$.country", [("DE", 1), ("FR", 1), (None, 1)]),
        ('$."a/b"."c d"', [(None, 2), ("1", 1)]),
        ("$.lines[0].sku", [(None, 2), ("x", 1)]),
    ],
)
def test_what_is_counted_is_what_its_term_means(name: str, values: list[FacetValue]) -> None:
    facet = Facet.named(name)
    found, more = facet.counted(Look("q", messages=iter(MESSAGES)), Filter("size > 0"))
    assert sorted(found, key=str) == sorted(values, key=str)
    assert more == 0
    for text, count in found:
        with OpenFilter(Filter(facet.term(text))) as filter_:
            assert sum(filter_(MESSAGES)) == count


@pytest.mark.parametrize(
    "name", ["", "nothing", "body", "$", "$.", "$..a", "header:", "$.a'b", "x" * 201]
)
def test_what_can_not_be_counted_by_is_told(name: str) -> None:
    with pytest.raises(ConfigurationError):
        Facet.named(name)


@pytest.mark.parametrize("name", ["header:x' or '1'='1", 'header:a"b', "header:~/"])
def test_whatever_a_header_is_called_it_is_one_text(name: str) -> None:
    found, _ = Facet.named(name).counted(Look("q", messages=iter(MESSAGES)), Filter())
    assert found == [(None, 3)]


def test_an_example_offers_headers_that_tell_a_version_and_its_plain_members() -> None:
    assert offered(MESSAGES[0]) == ["header:X-App-Version", "$.country"]


def test_of_many_values_the_most_frequent_are_told() -> None:
    many = [message("1", b'{"n": %d}' % number) for number in range(20)]
    values, more = Facet.named("$.n").counted(Look("q", messages=iter(many)), Filter())
    assert (len(values), more) == (8, 12)
