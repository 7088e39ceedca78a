"""What the documentation points to is there: files, modules, headings; and its prose is wrapped."""

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "redrive"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]
COLUMNS = 100

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"(?<![\w/.$])((?:src|tests|docs|benchmarks|examples|\.ci)/[\w./-]*\w)")
_PARTS = "|".join(
    sorted(path.stem for path in SOURCE.iterdir() if not path.name.startswith(("_", ".")))
)
_MODULE = re.compile(rf"\bredrive((?:\.(?:{_PARTS}))(?:\.\w+)*)")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def paths_named(text: str) -> set[str]:
    """The paths of the repository that a text names, in prose and in code."""
    return set(_PATH.findall(text))


def modules_named(text: str) -> set[str]:
    """The dotted names below `redrive` that a text names."""
    return set(_MODULE.findall(text))


def is_in_package(dotted: str) -> bool:
    """Whether there is such a module below `redrive`, or a name at the top of one."""
    parts = dotted.strip(".").split(".")
    module = SOURCE.joinpath(*parts)
    if module.is_dir() or module.with_suffix(".py").is_file():
        return True
    holder = SOURCE.joinpath(*parts[:-1])
    file = holder / "__init__.py" if holder.is_dir() else holder.with_suffix(".py")
    return file.is_file() and parts[-1] in set(_names_at_the_top(file))


def _names_at_the_top(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def unquoted_labels(text: str) -> list[str]:
    """The labels of a page's Mermaid diagrams that Mermaid would read as something else: since
    version 11, an `@` begins the properties of a node. Source: mermaid 11."""
    diagrams = re.findall(r"^```mermaid\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        label for diagram in diagrams for label in re.findall(r"\[([^]\"]*@[^]\"]*)\]", diagram)
    ]


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def long_lines(text: str) -> list[str]:
    """The lines of prose that are over 100 columns; tables and code can't be wrapped."""
    return [
        line
        for line in _FENCE.sub("", text).splitlines()
        if len(line) > COLUMNS and not line.startswith(("|", "    ", "!["))
    ]


def faults_of(check: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """What a check finds on each page, by page."""
    found = {_name(page): list(check(page)) for page in PAGES}
    return {name: faults for name, faults in found.items() if faults}


@functools.cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_every_path_that_a_page_names_is_in_the_repository() -> None:
    def missing(page: Path) -> list[str]:
        named = paths_named(_LINK.sub("", text_of(page)))
        return [path for path in sorted(named) if not (ROOT / path).exists()]

    assert faults_of(missing) == {}


def test_every_module_that_a_page_names_is_in_the_package() -> None:
    def missing(page: Path) -> list[str]:
        named = modules_named(text_of(page))
        return [f"redrive{name}" for name in sorted(named) if not is_in_package(name)]

    assert faults_of(missing) == {}


def test_every_link_of_a_page_leads_somewhere() -> None:
    assert faults_of(dead_links) == {}


def dead_links(page: Path) -> Iterator[str]:
    """The links of a page to files and headings that are not there."""
    for link in _LINK.findall(_FENCE.sub("", text_of(page))):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(text_of(target))):
            yield link


def test_the_prose_of_a_page_is_wrapped() -> None:
    assert faults_of(lambda page: long_lines(text_of(page))) == {}


def test_every_name_with_an_at_sign_in_a_diagram_is_quoted() -> None:
    assert faults_of(lambda page: unquoted_labels(text_of(page))) == {}


def test_the_index_of_the_documentation_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / link.partition("#")[0]).resolve()
        for link in _LINK.findall(index.read_text(encoding="utf-8"))
    }
    of_decisions = ROOT / "docs" / "decisions"
    wanted = {page for page in DOCS if page.parent != of_decisions} | {of_decisions / "README.md"}
    assert [_name(page) for page in sorted(wanted - linked - {index})] == []


# --- the search itself ----------------------------------------------------------------------------


def test_a_path_or_a_module_that_is_gone_is_found() -> None:
    assert paths_named("see `src/redrive/gone.py`, not $HOME/src/x") == {"src/redrive/gone.py"}
    assert modules_named("`redrive.topology.gone.Name`, not redrive.job.1") == {
        ".topology.gone.Name"
    }
    assert not is_in_package(".topology.gone.Name")
    assert not is_in_package(".topology.names.gone")


@pytest.mark.parametrize(
    "name", [".topology", ".topology.names", ".topology.names.ExchangeFamily", ".testing.Proxy"]
)
def test_what_is_there_is_found(name: str) -> None:
    assert is_in_package(name)


def test_a_heading_has_the_anchor_that_github_gives_it() -> None:
    text = "## Changing what can't be changed: `migrate`\n```\n# a comment\n```\n"
    assert anchors_of(text) == {"changing-what-cant-be-changed-migrate"}


def test_a_label_that_mermaid_can_not_read_is_found() -> None:
    diagram = '```mermaid\nA[user@retry] --> B["user@failed"]\n```\n'
    assert unquoted_labels(diagram) == ["user@retry"]


def test_prose_that_is_too_long_is_found_and_a_table_is_not() -> None:
    assert long_lines(f"{'a' * 101}\n| {'b' * 101} |\n{'c' * 100}\n") == ["a" * 101]
