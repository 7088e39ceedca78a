"""A decision, an outcome or an object that somebody adds and forgets to treat fails the type
check."""

import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest
from mypy import api

from redrive.topology import decision

NEW = '''

@dataclass(frozen=True, slots=True)
class Novelty:
    """Somebody's new idea."""


'''
SETTLEMENTS = "Settlement = Ack | Retried | MoveToFailed | Drop\n"
OUTCOMES = "Outcome = Arrived | Handled | Raised\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def type_check(source: str, folder: Path, cache: Path) -> str:
    """What mypy says about a source in its strict mode."""
    module = folder / "changed.py"
    module.write_text(source)
    options = [
        "--strict",
        "--config-file=",
        f"--cache-dir={cache}",
        f"--python-executable={sys.executable}",
    ]
    return api.run([*options, str(module)])[0]


def with_a_new_one(module: ModuleType, union: str) -> str:
    """The module's source with one more class in one of its unions."""
    source = inspect.getsource(module)
    assert source.count(union) == 1
    return source.replace(union, NEW + union.rstrip() + " | Novelty\n")


def test_the_decisions_as_they_are_pass_the_type_check(tmp_path: Path, cache: Path) -> None:
    assert type_check(inspect.getsource(decision), tmp_path, cache).startswith("Success")


@pytest.mark.parametrize("union", [SETTLEMENTS, OUTCOMES], ids=["settlement", "outcome"])
def test_a_new_one_that_is_treated_nowhere_fails_the_type_check(
    union: str, tmp_path: Path, cache: Path
) -> None:
    found = type_check(with_a_new_one(decision, union), tmp_path, cache)
    assert 'Argument 1 to "assert_never" has incompatible type "Novelty"' in found


def test_both_the_route_and_the_words_of_a_new_settlement_are_asked_for(
    tmp_path: Path, cache: Path
) -> None:
    assert (
        type_check(with_a_new_one(decision, SETTLEMENTS), tmp_path, cache).count('"Novelty"') == 2
    )
