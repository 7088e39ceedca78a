"""Which tests run when is said with a reason, and of tests that are there."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.brokers import REPRESENTATIVES

TESTS = Path(__file__).resolve().parents[2]
MARKS = ("nightly", "versions")


def marks_without_a_reason(source: str) -> list[str]:
    """The uses of a mark that say no reason."""
    tree = ast.parse(source)
    with_reason = {id(call.func) for call in ast.walk(tree) if _says_why(call)}  # type: ignore[attr-defined]
    return [ast.unparse(node) for node in _uses(tree) if id(node) not in with_reason]


def _uses(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark":
            yield from [node] if node.attr in MARKS else []


def _says_why(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and len(node.args) == 1


def test_every_mark_says_why() -> None:
    found = {
        file.relative_to(TESTS).as_posix(): marks_without_a_reason(source)
        for file in TESTS.rglob("*.py")
        if "node_modules" not in file.parts
        and any(f"mark.{mark}" in (source := file.read_text(encoding="utf-8")) for mark in MARKS)
    }
    assert {name: marks for name, marks in found.items() if marks} == {}


@pytest.mark.parametrize("source", ["@pytest.mark.nightly\ndef f(): ...", "pytest.mark.versions()"])
def test_a_mark_without_a_reason_is_found(source: str) -> None:
    assert len(marks_without_a_reason(source)) == 1


def test_every_test_that_is_listed_is_there() -> None:
    functions = {
        node.name
        for file in (TESTS / "contract").glob("test_*.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert set(REPRESENTATIVES) - functions == set()
