"""tests/unit has the folders of src/redrive and that of the torture run, and each of its files is
named after the module it tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import redrive

SOURCE = Path(redrive.__file__).parent
TESTS = Path(__file__).resolve().parents[1]
TORTURE = TESTS.parent / "torture"
FILES = sorted(
    file for file in TESTS.rglob("test_*.py") if not file.is_relative_to(TESTS / "repository")
)


def modules_named(test: Path) -> list[Path]:
    """The modules that a file of tests may be named after: `test_decision_route.py` after
    `decision.py` or `decision_route.py`, and `test_main.py` after `__main__.py`."""
    stem = test.stem.removeprefix("test_")
    of_torture = test.parent.name == TORTURE.name
    folder = TORTURE if of_torture else SOURCE / test.parent.relative_to(TESTS)
    return [
        module
        for module in folder.glob("*.py")
        if f"{stem}_".startswith(module.stem.strip("_") + "_") and module.stem != "__init__"
    ]


def imported(source: str) -> Iterator[str]:
    """The dotted names that a source imports, of modules and of what is in them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _dotted(module: Path) -> str:
    root = TORTURE.parent if module.is_relative_to(TORTURE) else SOURCE.parent
    return ".".join(module.relative_to(root).with_suffix("").parts)


def test_a_file_of_unit_tests_is_named_after_the_module_that_it_tests() -> None:
    assert [str(test.relative_to(TESTS)) for test in FILES if not is_named_well(test)] == []


def is_named_well(test: Path) -> bool:
    """Whether a file of tests is named after a module, and imports it."""
    named = {_dotted(module) for module in modules_named(test)}
    if test.parent.name == "cli":  # a command may be run by its name as well
        return bool(named)
    return bool(named & set(imported(test.read_text(encoding="utf-8"))))


def test_every_folder_of_tests_is_a_package() -> None:
    """Files of one name in two folders can't be told apart otherwise."""
    folders = {file.parent for file in TESTS.rglob("test_*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


# --- the rule itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "modules"),
    [
        ("topology/test_policy.py", ["policy.py"]),
        ("topology/test_decision_route.py", ["decision.py"]),
        ("cli/test_main.py", ["__main__.py"]),
        ("test_errors.py", ["errors.py"]),
        ("torture/test_checker.py", ["checker.py"]),
        ("topology/test_policies.py", []),
        ("failures/test_policy.py", []),
        ("elsewhere/test_policy.py", []),
    ],
)
def test_a_name_stands_for_a_module_of_its_own_folder(test: str, modules: list[str]) -> None:
    assert [module.name for module in modules_named(TESTS / test)] == modules
