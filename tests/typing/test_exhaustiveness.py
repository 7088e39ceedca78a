"""A decision, an outcome or an object that somebody adds and forgets to treat fails the type
check."""

import inspect
import sys
from pathlib import Path

from mypy import api

from redrive.topology import decision

NEW = '''

@dataclass(frozen=True, slots=True)
class Novelty:
    """Somebody's new idea."""


'''
SETTLEMENTS = "Settlement = Ack | Retried | PutBack | MoveToFailed | Discard | Drop\n"
OUTCOMES = "Outcome = Arrived | Handled | Raised | Overtaken\n"


def with_a_new_one(source: str, union: str) -> str:
    """A source with one more class in one of its unions."""
    assert source.count(union) == 1
    return source.replace(union, NEW + union.rstrip() + " | Novelty\n")


def errors_of(sources: dict[str, str], folder: Path) -> dict[str, list[str]]:
    """What mypy has in its strict mode against each of these sources."""
    files = {name: folder / f"{name}.py" for name in sources}
    for name, file in files.items():
        file.write_text(sources[name])
    options = [
        "--strict",
        "--config-file=",
        f"--cache-dir={folder / 'mypy'}",
        f"--python-executable={sys.executable}",
        "--no-error-summary",
        "--no-sqlite-cache",  # mypy leaves it open, of which Python 3.13 warns
    ]
    told, problem, _ = api.run([*options, *map(str, files.values())])
    assert problem == ""
    return {
        name: [line for line in told.splitlines() if line.startswith(f"{file}:")]
        for name, file in files.items()
    }


def test_a_new_one_that_is_treated_nowhere_fails_the_type_check(tmp_path: Path) -> None:
    """One test: mypy reads the library of Python for each process that asks it."""
    source = inspect.getsource(decision)
    errors = errors_of(
        {
            "unchanged": source,
            "settlement": with_a_new_one(source, SETTLEMENTS),
            "outcome": with_a_new_one(source, OUTCOMES),
        },
        tmp_path,
    )

    assert errors["unchanged"] == []
    untreated = 'Argument 1 to "assert_never" has incompatible type "Novelty"'
    assert any(untreated in error for error in errors["outcome"])
    # Both the route and the words of a new settlement are asked for.
    assert [untreated in error for error in errors["settlement"]] == [True, True]
