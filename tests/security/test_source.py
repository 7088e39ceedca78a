"""The source calls nothing that runs what somebody else wrote."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "redrive"
MODULES = sorted(SOURCE.rglob("*.py"))
RUNS_CODE = {"eval", "exec", "compile", "__import__", "execfile"}
DANGEROUS = {
    ("pickle", "load"),
    ("pickle", "loads"),
    ("pickle", "Unpickler"),
    ("marshal", "load"),
    ("marshal", "loads"),
    ("shelve", "open"),
    ("dill", "loads"),
    ("cloudpickle", "loads"),
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "full_load"),
    ("yaml", "unsafe_load"),
    ("os", "system"),
    ("os", "popen"),
    ("subprocess", "getoutput"),
    ("subprocess", "getstatusoutput"),
    ("tempfile", "mktemp"),
    ("tarfile", "open"),
    ("shutil", "unpack_archive"),
}
SAFE_LOADERS = {"SafeLoader", "CSafeLoader"}


def dangers(source: str) -> Iterator[str]:
    """What in a module runs what is in data, each with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in RUNS_CODE:
                yield f"{node.lineno}: {name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if (
                module,
                name,
            ) in DANGEROUS:
                if not (module == "yaml" and _has_a_safe_loader(node)):
                    yield f"{node.lineno}: {module}.{name}()"
            case ast.ImportFrom(module=str(module), names=names):
                yield from (
                    f"{node.lineno}: from {module} import {one.name}"
                    for one in names
                    if (module, one.name) in DANGEROUS
                )
        if isinstance(node, ast.Call):
            yield from (
                f"{node.lineno}: shell={ast.unparse(one.value)}"
                for one in node.keywords
                if one.arg == "shell"
                and not (isinstance(one.value, ast.Constant) and one.value.value is False)
            )


def _has_a_safe_loader(call: ast.Call) -> bool:
    loaders = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "Loader")]
    return any(_last_name(loader) in SAFE_LOADERS for loader in loaders)


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def test_no_module_runs_what_it_reads() -> None:
    found = {
        str(module.relative_to(SOURCE)): list(dangers(module.read_text(encoding="utf-8")))
        for module in MODULES
    }
    assert {module: those for module, those in found.items() if those} == {}


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "exec(text)",
        "import pickle\npickle.loads(data)",
        "from pickle import loads",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "import subprocess\nsubprocess.run(words, shell=True)",
        "import subprocess\nsubprocess.run(words, shell=flag)",
        "import os\nos.system(words)",
        "import tempfile\ntempfile.mktemp()",
    ],
)
def test_what_runs_what_it_reads_is_found(source: str) -> None:
    assert len(list(dangers(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import yaml\nyaml.safe_load(text)",
        "import re\nre.compile(text)",
        "import subprocess\nsubprocess.run(words)",
    ],
)
def test_what_only_reads_is_not(source: str) -> None:
    assert list(dangers(source)) == []
