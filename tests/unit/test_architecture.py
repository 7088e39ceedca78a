"""The arrows of the design: which part of redrive may import what."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import redrive

SOURCE = Path(redrive.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

PURE = frozenset({"durations", "errors", "redaction", "topology"})
MAY_IMPORT = {
    "redaction": frozenset({"redaction"}),
    "durations": frozenset({"durations"}),
    "errors": frozenset({"durations", "errors", "redaction"}),
    "topology": PURE,
    "pubsub": PURE | {"pubsub"},
    "failures": PURE | {"pubsub", "failures"},
    "cli": PURE | {"pubsub", "spark_reprocess", "failures", "cli", "testing", ""},
    "spark_reprocess": PURE | {"pubsub", "failures", "spark_reprocess", ""},
    "testing": PURE | {"pubsub", "testing", ""},
    "": PURE | {"pubsub", ""},
}
"""What each part of redrive may import of it; the empty name is the package itself, which gives the public names."""

IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "platform",
        "random",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
TOPOLOGY_LIBRARIES = (sys.stdlib_module_names - IMPURE) | {"pydantic"}
CLOCKS = frozenset({"now", "utcnow", "today"})


def part_of(module: Path) -> str:
    """The part of redrive that a file belongs to."""
    first = module.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first.startswith("__") else first


def imported(source: str) -> Iterator[str]:
    """The dotted name of each module that a source imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and node.module == "redrive":
            yield from (f"redrive.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def forbidden_imports(part: str, source: str) -> list[str]:
    """What a source of this part imports and must not."""
    return [name for name in imported(source) if not _is_allowed(part, name)]


def _is_allowed(part: str, name: str) -> bool:
    library, _, rest = name.partition(".")
    if library == "redrive":
        target = rest.split(".")[0]
        return (target if target in MAY_IMPORT else "") in MAY_IMPORT[part]
    if not library:
        return False
    return library in TOPOLOGY_LIBRARIES if part in PURE else True


def clock_readings(source: str) -> list[int]:
    """The lines that ask a clock for the time."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS
    ]


def _name(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_arrows_point_one_way(module: Path) -> None:
    assert forbidden_imports(part_of(module), module.read_text()) == []


@pytest.mark.parametrize("module", [module for module in MODULES if part_of(module) in PURE], ids=_name)
def test_the_pure_part_looks_at_no_clock(module: Path) -> None:
    assert clock_readings(module.read_text()) == []


@pytest.mark.parametrize("module", [module for module in MODULES if part_of(module) == "pubsub"], ids=_name)
def test_what_the_shells_share_knows_no_client_and_each_shell_only_its_own(module: Path) -> None:
    names = set(imported(module.read_text()))
    shell = module.parent.name
    if shell != "blocking":
        assert not {name for name in names if name.partition(".")[0] == "pika"}
    if shell != "aio":
        assert not {name for name in names if name.partition(".")[0] in ("aiormq", "aio_pika", "pamqp") or "pubsub.aio" in name}
    if shell == "pubsub":
        assert not {name for name in names if "pubsub.blocking" in name}
    if shell == "aio" and module.name not in ("declare.py", "failed.py", "outcomes.py"):  # which do their work on a thread
        assert not {name for name in names if "pubsub.blocking" in name}


def test_every_part_of_the_package_has_its_arrows() -> None:
    assert {part_of(module) for module in MODULES} <= set(MAY_IMPORT)


# --- the walk itself ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("topology", "import socket"),
        ("topology", "import os.path"),
        ("topology", "from time import monotonic"),
        ("topology", "def f() -> None:\n    import random"),
        ("topology", "import pika"),
        ("topology", "from redrive.pubsub import config"),
        ("topology", "from redrive import pubsub"),
        ("topology", "from redrive import Publisher"),
        ("topology", "import redrive"),
        ("topology", "from . import names"),
        ("topology", "from .names import retry_queue"),
        ("pubsub", "from redrive.cli import main"),
        ("pubsub", "from redrive.testing import broker"),
        ("pubsub", "from redrive.failures import columns"),
        ("failures", "from redrive.cli import main"),
        ("failures", "from redrive import Publisher"),
        ("spark_reprocess", "from redrive.cli import main"),
        ("errors", "from redrive.topology import table"),
        ("redaction", "from redrive.errors import RedriveError"),
    ],
)
def test_an_import_against_the_arrows_is_found(part: str, source: str) -> None:
    assert len(forbidden_imports(part, source)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("topology", "from redrive.topology import names"),
        ("topology", "from datetime import datetime"),
        ("topology", "from pydantic import BaseModel"),
        ("pubsub", "import pika, socket, time, logging, os"),
        ("pubsub", "from redrive.topology.decision import decide"),
        ("failures", "from redrive.pubsub.message import FailedMessage"),
        ("cli", "from redrive import Publisher"),
        ("cli", "from redrive.failures import columns"),
        ("spark_reprocess", "from redrive.pubsub.message import Message"),
        ("cli", "from redrive.spark_reprocess import job"),
    ],
)
def test_an_import_along_the_arrows_is_allowed(part: str, source: str) -> None:
    assert forbidden_imports(part, source) == []


@pytest.mark.parametrize("source", ["datetime.now(UTC)", "datetime.datetime.utcnow()", "date.today()"])
def test_a_look_at_the_clock_is_found(source: str) -> None:
    assert clock_readings(source) == [1]


def test_a_time_that_was_given_is_no_look_at_the_clock() -> None:
    assert clock_readings("iso(circumstances.now)") == []
