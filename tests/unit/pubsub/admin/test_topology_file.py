import os
from datetime import date
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.pubsub.admin import topology_file

GOOD = """
subscriptions:
  ucenter@user:
    routing_keys: [user.*]
    retry: {delay: 5m}
"""


def mistake_in(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        topology_file.parse(text, "team.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    return lines


def what_python_says_of_a_day_that_is_none() -> str:
    """Its words are its version's: 3.14 names the day."""
    with pytest.raises(ValueError) as told:
        date(2026, 1, 32)
    return str(told.value)


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(GOOD)
    assert [subscription.queue for subscription in topology_file.read(file).built()] == [
        "ucenter@user"
    ]


def test_anchors_and_merges_mean_what_yaml_says() -> None:
    text = (
        "subscriptions:\n  a: &usual\n    retry: {delay: 5m}\n  b:\n    <<: *usual\n    "
        "routing_keys: [x]\n"
    )
    first, second = topology_file.parse(text, "team.yaml").built()
    assert first.retry == second.retry


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", "team.yaml, line 1", "an empty value is not a mapping"),
        (
            "subscriptions:\n  a:\n    typo: 1\n",
            "team.yaml, line 3, subscriptions → a → typo",
            "'typo' is not a known key",
        ),
        (
            "subscriptions:\n  a: {}\n  b: {}\n  a: {}\n",
            "team.yaml, line 4, subscriptions → a",
            "the key appears twice, first in line 2",
        ),
        (
            "subscriptions:\n  a:\n    retry: {delay: 1s}\n    retry: {delay: 2s}\n",
            "team.yaml, line 4, subscriptions → a → retry",
            "the key appears twice, first in line 3",
        ),
        (
            "subscriptions:\n  a:\n    retry:\n      delay: 30\n",
            "team.yaml, line 4, subscriptions → a → retry → delay",
            "the duration is 30",
        ),
        (
            "subscriptions:\n  a:\n    routing_keys:\n      - x\n      - #\n",
            "team.yaml, line 5, subscriptions → a → routing_keys → 1",
            "an empty value is not a text",
        ),
        (
            "subscriptions:\n  a: {}\n  a@migrating: {}\n",
            "team.yaml, line 3, subscriptions → a@migrating",
            "is reserved: 'a' uses it",
        ),
        (
            "subscriptions:\n  a:\n    routing_keys: [*.x]\n",
            "team.yaml, line 3",
            "expected alphabetic",
        ),
        ("subscriptions: [\n", "team.yaml, line 2", "expected the node content"),
        (
            "a: !!python/object:os.system {}\n",
            "team.yaml, line 1",
            "could not determine a constructor",
        ),
        (
            "subscriptions: {}\nx: 2026-01-32\n",
            "team.yaml has a value that can't be read",
            what_python_says_of_a_day_that_is_none(),
        ),
        ("a: 1\n---\nb: 1\n", "team.yaml, line 2", "but found another document"),
        ("\x00", "team.yaml is not valid YAML", "special characters are not allowed"),
        ("[" * 5000, "team.yaml is not valid YAML", "recursion"),
        ("&a [*a]", "team.yaml, line 1", "is not a mapping"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(text: str, place: str, problem: str) -> None:
    line = mistake_in(text)[0]
    assert line.startswith(f"{place}: ")
    assert problem in line


def test_a_pattern_that_yaml_misreads_comes_with_the_way_out() -> None:
    assert mistake_in("subscriptions:\n  a:\n    routing_keys: [*.x]\n")[1].startswith(
        "Put a pattern that begins with * or # into quotes"
    )


def test_of_several_mistakes_the_first_in_the_file_is_told_and_the_rest_counted() -> None:
    line = mistake_in("subscriptions:\n  a:\n    retry: {delay: 1}\n    typo: 1\n  b: {typo: 2}\n")[
        0
    ]
    assert line.startswith("team.yaml, line 3, subscriptions → a → retry → delay: ")
    assert line.endswith("(and 2 more)")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read: No such file"):
        topology_file.read(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigurationError, match=r"is not UTF-8 text \(byte 3\)"):
        topology_file.read(tmp_path / "team.yaml")


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").touch()
    os.truncate(tmp_path / "team.yaml", 17 * 1024 * 1024)
    with pytest.raises(ConfigurationError, match="is larger than 16 MiB"):
        topology_file.read(tmp_path / "team.yaml")
