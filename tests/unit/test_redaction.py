import json
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive import redaction
from redrive.redaction import in_one_line, printable, printable_json, redact

PASSWORDS = [
    "hunter2",
    "p@ss",
    "p@s@s",
    "a:b",
    ":",
    "p@s:s@w:d",
    "p%40ss",
    "p#ss",
    "p?ss",
    "a=b&c",
    "grün",
    "it's",
    "***",
    "[x]",
]
PIECES = [
    "amqp://",
    "https://",
    "u",
    ":",
    "p",
    "@",
    "/",
    "?token=",
    "&sig=",
    "&",
    " ",
    "'",
    '"',
    "***",
    "h",
    "\n",
    "ü",
]

messy = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
plain_words = st.text(string.ascii_letters + " .,;()[]{}<>-", max_size=30)
# No space, slash or quote: none of them can stand in the password of a URL.
passwords = st.text(
    string.ascii_letters + string.digits + "!$&()*+,;=:@%#?-._~", min_size=1, max_size=20
).map(lambda text: f"S3{text}cret")


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("before", ["", "no answer from ", "url='", 'url="', "(", "["])
def test_the_password_of_a_url_is_taken_out(before: str, password: str) -> None:
    assert (
        redact(f"{before}amqp://guest:{password}@localhost:5672/vhost")
        == f"{before}amqp://guest:***@localhost:5672/vhost"
    )


@given(plain_words, passwords, plain_words)
def test_a_password_is_taken_out_of_the_middle_of_a_text(
    before: str, password: str, after: str
) -> None:
    assert (
        redact(f"{before} amqps://shop:{password}@host/ {after}")
        == f"{before} amqps://shop:***@host/ {after}"
    )


def test_a_password_without_a_user_is_taken_out() -> None:
    assert redact("redis://:hunter2@localhost/0") == "redis://:***@localhost/0"


def test_every_password_of_a_list_of_urls_is_taken_out() -> None:
    text = (
        "amqp://a:hunter2@one/,amqp://b:hunter3@two/ amqp://c:hunter4@three,amqp://d:hunter5@four"
    )
    assert (
        redact(text) == "amqp://a:***@one/,amqp://b:***@two/ amqp://c:***@three,amqp://d:***@four"
    )


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "password",
        "passwd",
        "pwd",
        "secret",
        "access_token",
        "api_key",
        "apikey",
        "signature",
        "sig",
        "TOKEN",
    ],
)
def test_a_secret_in_a_query_is_taken_out(name: str) -> None:
    assert (
        redact(f"GET https://host/path?a=1&{name}=hunter2&b=2 failed")
        == f"GET https://host/path?a=1&{name}=***&b=2 failed"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user@example.com",
        "https://host:8080/path?page=2",
        "amqp://localhost/",
        "amqp://guest@localhost/",
        "see https://host:8080/ or write to a@b.c",
        "a=1, b=2",
        "12:30@noon",
    ],
)
def test_a_text_without_secrets_is_left_alone(text: str) -> None:
    assert redact(text) == text


@given(messy)
def test_no_text_makes_redacting_raise(text: str) -> None:
    assert isinstance(redact(text), str)


@given(messy)
@example("a://b:c?token=d/e&x@f")
def test_redacting_again_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("piece", ["a-", "a.", "a+", "a://", "a:", "@", "?token=", "x"])
def test_a_text_of_a_megabyte_is_redacted_at_once(piece: str) -> None:
    text = piece * (1024 * 1024 // len(piece)) + " a=b amqp://guest:hunter2@localhost/"
    assert redact(text).endswith("amqp://guest:***@localhost/")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),
        ("a\u202eb\u2028c\u2029d", "a\\u202eb\\u2028c\\u2029d"),
        ("\U000e0068\ufeff\x7f\r", "\\U000e0068\\ufeff\\x7f\\r"),
        ("\udc80", "\\udc80"),
        ("grün 日本 🙂 é́\n\t", "grün 日本 🙂 é́\n\t"),
    ],
)
def test_what_would_steer_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_one_line_has_no_line_break_of_any_kind() -> None:
    assert in_one_line("a\nb\r\nc\x0bd\x85e\u2028f\u2029g\x1ch") == "a b c d e f g h"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@example(["\x9b\x7f\u202e\u200b\U000e0041\u2028\ud800 🙂 \\u0041"])
def test_printable_json_is_the_same_json(value: object) -> None:
    text = printable_json(value, indent=2)
    assert json.loads(text) == value
    assert printable(text) == text


def test_printable_json_leaves_letters_of_all_languages() -> None:
    assert printable_json({"é": "日本 🙂"}) == '{"é": "日本 🙂"}'


def test_no_quantifier_of_a_group_is_possessive() -> None:
    """Python before 3.11.5 leaves secrets in a text that such a pattern should find."""
    on_group = re.compile(r"\)(?:[?*+]|\{\d*,?\d*\})\+")
    assert [
        rule.pattern.pattern for rule in redaction._RULES if on_group.search(rule._pattern)
    ] == []
