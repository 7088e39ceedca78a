"""What the pages show of the command line is there: commands, options, the words that it prints."""

import functools
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException

from page_code import ROOT
from page_sessions import Said, mentions_of, phrases_of, sessions_of, words_of
from redrive.cli.app import app

PAGES = [
    *sorted(page.name for page in ROOT.glob("*.md")),
    *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")),
    *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "examples").rglob("*.md")),
]
STORY = {
    *("master", "user.create", "ucenter", "audit", "orders", "payments", "mails"),
    *("submit-order", "policy dead", "unhandled", "the bank did not answer"),
    *("plans are deployed", "the table knows Germany now", "the bank did not answer within"),
}
"""What the pages' own services are called and say, which is nobody's word in redrive."""


@functools.cache
def said() -> Said:
    """What redrive can say. Each process of a run collects this file, and one looks it up."""
    return Said(ROOT / "src" / "redrive")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, or the group if no command follows; and the other words."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "resolve_command") and rest and not rest[0].startswith("-"):
        context = command.context_class(command)
        _, command, rest = command.resolve_command(context, rest)
    return command, rest


def options_of(command: Any) -> set[str]:
    """The options that a command's help shows."""
    return {
        name
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("-")
    } | {"--help"}


def wrong_mention(words: list[str]) -> str | None:
    """What is wrong with a command that prose names, perhaps without its arguments."""
    try:
        command, rest = found(words)
    except TyperException as error:
        return str(error)
    unknown = {word for word in rest if word.startswith("-")} - options_of(command)
    return f"{words}: no option {sorted(unknown)}" if unknown else None


def wrong_command(words: list[str]) -> str | None:
    """What is wrong with a command that a session shows: it is parsed as if it were called."""
    try:
        command, rest = found(words)
        command.make_context(words[0], list(rest))
    except TyperException as error:
        return f"{words}: {error}"
    return wrong_mention(words)


def test_every_command_that_a_session_shows_can_be_called() -> None:
    wrong = [
        (page, wrong_command(typed.words)) for page in PAGES for typed in sessions_of(text_of(page))
    ]
    assert [(page, problem) for page, problem in wrong if problem] == []


def test_every_command_and_option_that_a_page_names_is_there() -> None:
    wrong = [(page, wrong_mention(words)) for page in PAGES for words in mentions_of(text_of(page))]
    assert [(page, problem) for page, problem in wrong if problem] == []


def test_every_phrase_that_a_session_prints_is_redrives_own() -> None:
    phrases = [
        (page, phrase)
        for page in PAGES
        for typed in sessions_of(text_of(page))
        for line in typed.printed
        for phrase in phrases_of(line, STORY)
    ]
    assert [(page, phrase) for page, phrase in phrases if not said().has(phrase)] == []


def test_the_pages_show_sessions_of_most_commands() -> None:
    shown = {
        tuple(word for word in typed.words[:2] if word.isalpha())
        for page in PAGES
        for typed in sessions_of(text_of(page))
    }
    assert {("declare",), ("status",), ("failed", "groups"), ("jobs", "show")} <= shown


# --- the search itself ----------------------------------------------------------------------------


def test_a_command_that_goes_on_in_further_lines_is_one() -> None:
    text = """
    $ redrive failed query q "select 1
      from failed" \\
      --output json
    1
"""
    (typed,) = sessions_of(text)
    assert typed.words == [
        *("failed", "query", "q", "select 1\n  from failed", "--output", "json"),
    ]
    assert typed.printed == ["1"]


def test_a_comment_and_what_follows_a_pipe_are_not_part_of_a_command() -> None:
    assert words_of("redrive declare --routing-key '#' # all") == [
        *("redrive", "declare", "--routing-key", "#"),
    ]
    assert words_of("redrive topology schema > file") == ["redrive", "topology", "schema"]


@pytest.mark.parametrize(
    "words",
    [
        ["failed", "gone", "ucenter@user"],
        ["failed", "requeue", "ucenter@user", "--python", "a:b"],
        ["failed", "show", "ucenter@user"],
        ["declare", "--queue", "q", "--routing-key", "k", "--output", "xml"],
    ],
)
def test_a_session_that_can_not_be_called_is_found(words: list[str]) -> None:
    assert wrong_command(words)


def test_words_that_are_no_longer_printed_are_found() -> None:
    now = phrases_of("2 messages of ucenter@user@failed would be requeued to ucenter@user:", STORY)
    once = phrases_of("2 messages would go from ucenter@user@failed back to ucenter@user:", STORY)
    assert [said().has(phrase) for phrase in now] == [True]
    assert [said().has(phrase) for phrase in once] == [False]
