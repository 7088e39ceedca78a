from collections.abc import Collection, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.topology.model import Binding, Exchange, Subscription
from redrive.topology.tags import TagFilter, headers_of

TAGS = ["vip", "eu", "us", "new", "a-b"]


def terms(expression: str) -> list[list[str]]:
    return [sorted(term) for term in TagFilter(expression).terms]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("vip", [["vip"]]),
        ("vip || eu", [["eu"], ["vip"]]),
        ("vip && eu", [["eu", "vip"]]),
        ("vip && (eu || us)", [["eu", "vip"], ["us", "vip"]]),
        ("a || b && c", [["a"], ["b", "c"]]),
        ("(a || b) && (a || c)", [["a"], ["b", "c"]]),
        ("a || a && b", [["a"]]),
        ("vip||eu", [["eu"], ["vip"]]),
        ("team:shop.eu/1", [["team:shop.eu/1"]]),
    ],
)
def test_an_expression_becomes_the_ways_to_satisfy_it(
    expression: str, expected: list[list[str]]
) -> None:
    assert terms(expression) == expected


expressions = st.recursive(
    st.sampled_from(TAGS),
    lambda inner: st.tuples(inner, st.sampled_from(["||", "&&"]), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=6,
)


def holds(expression: str, tags: Set[str]) -> bool:
    """What Python makes of the expression."""
    for tag in TAGS:
        expression = expression.replace(tag, str(tag in tags))
    return bool(eval(expression.replace("||", "or").replace("&&", "and")))  # of the few words above


@given(expressions, st.sets(st.sampled_from(TAGS)))
def test_a_message_satisfies_the_expression_where_it_satisfies_one_of_its_terms(
    expression: str, tags: set[str]
) -> None:
    assert any(term <= tags for term in TagFilter(expression).terms) == holds(expression, tags)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("!vip", "character 1: it needs a negation"),
        ("vip && not eu", "character 8: it needs a negation"),
        ("vip &&", "character 7: it has no tag where one is needed"),
        ("", "character 1: it has no tag"),
        ("vip eu", "character 5: it has text after its end"),
        ("(vip", "character 5: it has a bracket that is not closed"),
        ("vip | eu", "character 5: it has text after its end"),
        ("|| vip", "has '||' where a tag is needed"),
        ("vip)", "has text after its end"),
        (7, "the tags are 7"),
    ],
)
def test_an_expression_that_cannot_be_read_is_refused_with_the_place(
    expression: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        TagFilter(expression)
    assert problem in str(refused.value)


def test_an_expression_with_more_ways_than_a_queue_has_bindings_is_refused() -> None:
    TagFilter(" || ".join(f"t{number}" for number in range(64)))
    with pytest.raises(ConfigurationError, match="65 ways"):
        TagFilter(" || ".join(f"t{number}" for number in range(65)))


def test_an_expression_that_explodes_is_refused_before_it_is_written_out() -> None:
    with pytest.raises(ConfigurationError, match="too many ways"):
        TagFilter(" && ".join(f"(a{number} || b{number})" for number in range(60)))


def test_expressions_that_mean_the_same_have_the_same_filter() -> None:
    assert (
        TagFilter("a && (b || c)").fingerprint
        == TagFilter("(c && a) || (a && b) || (a && b)").fingerprint
    )
    assert TagFilter("a").fingerprint != TagFilter("b").fingerprint


def test_a_tag_is_a_header_of_its_own() -> None:
    assert headers_of({"vip", "eu"}) == {"redrive-tag-eu": True, "redrive-tag-vip": True}


@pytest.mark.parametrize("tags", [{"a b"}, {""}, {"-a"}, {"ä"}, {"a" * 201}, {1}, "vip"], ids=repr)
def test_a_tag_that_cannot_be_is_refused(tags: Collection[str]) -> None:
    with pytest.raises(ConfigurationError, match="tag"):
        headers_of(tags)


def test_a_subscription_with_tags_gets_its_messages_through_its_filter_alone() -> None:
    subscription = Subscription("q", ["user.*"], tags=TagFilter("vip && eu || us"))
    name = subscription.filter_exchange
    topology = subscription.topology()
    assert name == f"q@tags.{TagFilter('us || (eu && vip)').fingerprint}"
    assert Exchange(name, "headers") in topology.exchanges
    assert [
        binding for binding in topology.bindings if name in (binding.source, binding.destination)
    ] == [
        Binding(
            name,
            "q",
            "",
            arguments=(("x-match", "all"), ("redrive-tag-eu", True), ("redrive-tag-vip", True)),
        ),
        Binding(name, "q", "", arguments=(("x-match", "all"), ("redrive-tag-us", True))),
        Binding("master.deliver", name, "*." * 28 + "p.user.*", to="exchange"),
        Binding("master", name, "user.*", to="exchange"),
    ]
    assert topology.unwanted == (
        Binding("master.deliver", "q", "*." * 28 + "p.user.*"),
        Binding("master", "q", "user.*"),
    )
    assert not set(topology.unwanted) & set(topology.bindings)
    assert Binding("master", "q", "q") in topology.bindings
    assert [pointer.arguments for pointer in topology.pointers] == [{"alternate-exchange": name}]


def test_a_queue_whose_name_leaves_no_room_for_its_filter_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="256 bytes; at most 255"):
        Subscription("q" * 242, tags=TagFilter("vip"))
