"""The sessions of a terminal on the pages of the documentation: what is typed, what is printed.

A session is a block of code with a line that begins with `$ redrive`: fenced, or indented by four
spaces. Lines that go on (a quote that is open, a backslash) belong to the command.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

_INDENTED = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MENTIONED = re.compile(r"`redrive ([a-z]+(?:\s[^`]*)?)`")
_OPERATORS = {"|", ">", "&&", ";"}


@dataclass
class Typed:
    """A command that a page shows, and what it prints there.

    Attributes:
        words: the command's words after `redrive`, as a shell would split them.
        printed: the lines below it, up to the next command.
    """

    words: list[str]
    printed: list[str] = field(default_factory=list)


def words_of(command: str) -> list[str]:
    """Split a command as a shell does, without a comment and what follows a pipe.

    Raises:
        ValueError: a quote is still open.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word in _OPERATORS:
            break
        words.append(word)
    return words


def sessions_of(text: str) -> list[Typed]:
    """The commands of `redrive` that a page's sessions show, from its top to its end."""
    return [typed for block in _blocks_of(text) for typed in _typed_in(block)]


def mentions_of(text: str) -> list[list[str]]:
    """The words of each command that a page's prose and tables name in backquotes."""
    prose = _FENCED.sub("", text)
    return [
        words_of(re.sub(r"\s+", " ", named).replace("\\|", "|"))
        for named in _MENTIONED.findall(prose)
    ]


def _blocks_of(text: str) -> Iterator[list[str]]:
    for language, block in _FENCED.findall(text):
        if language == "console":
            yield block.splitlines()
    for block in _INDENTED.findall(_FENCED.sub("", text)):
        yield [line[4:] for line in block.splitlines()]


def _typed_in(lines: list[str]) -> Iterator[Typed]:
    typed: Typed | None = None
    rest = iter(lines)
    for line in rest:
        if line.startswith("$ ") or re.match(r"redrive [a-z]", line):
            if typed is not None:
                yield typed
            words = _whole_command(line.removeprefix("$ "), rest)
            typed = Typed(words[1:]) if words[0] == "redrive" else None
        elif typed is not None and line:
            typed.printed.append(line)
    if typed is not None:
        yield typed


def _whole_command(line: str, rest: Iterator[str]) -> list[str]:
    """The words of a command that may go on in the lines below it."""
    while True:
        try:
            if not line.endswith("\\"):
                return words_of(line)
            line = line[:-1]
        except ValueError:
            line += "\n"
        line += next(rest)


class Said:
    """What a package can say: the words of its strings, in their order.

    Where a string is filled in, any word may follow; that word must begin a string or follow a
    place that is filled in.
    """

    def __init__(self, source: Path) -> None:
        words: list[str] = []
        for file in sorted(source.rglob("*.py")):
            for literal in _literals_in(file):
                words += ["\n", *_SPLIT.sub(" ", literal).split(), "\n"]
        self._pairs = set(pairwise(words))

    def has(self, phrase: str) -> bool:
        """Whether each two neighbouring words are neighbours in a string, or can become that."""
        return all(self._may_follow(first, then) for first, then in pairwise(phrase.split()))

    def _may_follow(self, first: str, then: str) -> bool:
        ends = any((first, end) in self._pairs for end in _ENDS)
        begins = any((end, then) in self._pairs for end in _ENDS)
        return (first, then) in self._pairs or (ends and begins)


_ENDS = ("\0", "\n")
_SPLIT = re.compile(r"\s+|(?<=\w)(?=[,;:.?!()](?:\s|$))|(?<=\()|(?=\0)|(?<=\0)")


def _literals_in(file: Path) -> Iterator[str]:
    """The strings of a module, with a NUL in place of what each is filled in with."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.JoinedStr(values=values):
                yield "".join(
                    str(value.value) if isinstance(value, ast.Constant) else "\0"
                    for value in values
                )
            case ast.Constant(value=str(text)):
                yield re.sub(r"\{\w*\}", "\0", text)


_VALUE = re.compile(
    r"""'[^']*'|"[^"]*"                    # quoted
    |\d[\w,.%]*\s\w+                     # a count of something
    |\w+Error\b|\S+\.(?:py|\w+l|parquet)  # a class, a file
    |\S*[\d@/=…→<*]\S*                    # a name, an id, an address, an argument
    """,
    re.VERBOSE,
)
_MARK = re.compile(r"\s{2,}|[,;:.?!](?:\s|$)|[()\[\]]|\0")


def phrases_of(printed: str, story: set[str]) -> list[str]:
    """What a printed line says by itself: each run of three or more words between values, marks
    and what the page's `story` brought in."""
    text = _VALUE.sub("\0", printed)
    for told in sorted(story, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(told)}(?!\w)", "\0", text)
    return [piece.strip() for piece in _MARK.split(text) if len(piece.split()) >= 3]
