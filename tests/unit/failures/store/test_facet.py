"""Counting messages by a column, a header or a path."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from deliveries import failed
from kept_looks import index_in, keep
from redrive.amqp.field_table import Table
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.mask import Mask
from redrive.failures.store.facet import Facet, FacetValue, offered
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.index_reader import IndexedMessages
from redrive.failures.store.masked_messages import MaskedMessages


def message(version: str, body: bytes) -> FailedMessage:
    headers = Table.of({"X-App-Version": version, "redrive-host": "it's"})
    return FailedMessage(failed(headers, body=body))


MESSAGES = [
    message("1.0", b'{"country": "DE", "a/b": {"c d": 1}, "lines": [{"sku": "x"}]}'),
    message("1.0", b'{"country": "FR"}'),
    message("1.1", b"no JSON"),
]


def kept(folder: Path, messages: Sequence[FailedMessage] = MESSAGES) -> IndexedMessages:
    return keep(index_in(folder), [one.delivery for one in messages])


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
def test_what_is_counted_is_what_its_term_means(
    tmp_path: Path, name: str, values: list[FacetValue]
) -> None:
    facet = Facet.named(name)
    found, more = facet.counted(kept(tmp_path).matching(Filter("size > 0")))
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
def test_whatever_a_header_is_called_it_is_one_text(tmp_path: Path, name: str) -> None:
    found, _ = Facet.named(name).counted(kept(tmp_path))
    assert found == [(None, 3)]


def test_an_example_offers_headers_that_tell_a_version_and_its_plain_members() -> None:
    assert offered(MESSAGES[0]) == ["header:X-App-Version", "$.country"]


def test_of_many_values_the_most_frequent_are_told(tmp_path: Path) -> None:
    many = [message("1", b'{"n": %d}' % number) for number in range(20)]
    values, more = Facet.named("$.n").counted(kept(tmp_path, many))
    assert (len(values), more) == (8, 12)


def test_only_what_a_filter_means_is_counted(tmp_path: Path) -> None:
    chosen = kept(tmp_path).matching(Filter("headers->>'/X-App-Version' = '1.0'"))
    assert Facet.named("host").counted(chosen) == ([("it's", 2)], 0)


def test_a_masked_value_is_counted_as_it_is_shown(tmp_path: Path) -> None:
    mask = Mask.of(["$.country"])
    assert mask is not None
    masked = MaskedMessages(kept(tmp_path), mask)
    values, _ = Facet.named("$.country").counted(masked)
    assert "DE" not in dict(values)
    assert sum(count for _, count in values) == 3
    assert Facet.named("host").counted(masked) == ([("it's", 3)], 0)
