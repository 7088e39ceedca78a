"""What users may build on is written down in public_api.txt: nothing of it changes unseen.

After a change that is meant, write the list again, and a line into the CHANGELOG:

    .venv/bin/python tests/unit/repository/test_public_api.py
"""

import ast
import importlib
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import redrive

SOURCE = Path(redrive.__file__).parent
LIST = Path(__file__).with_name("public_api.txt")

DEEP_PATHS = (
    "redrive.pubsub.logs.JsonFormatter",
    "redrive.pubsub.probes.asgi",
    "redrive.redaction.Kind",
    "redrive.redaction.add_pattern",
    "redrive.redaction.redact_kinds",
    "redrive.spark.drain",
    "redrive.spark.plan",
    "redrive.spark.read",
    "redrive.spark.register",
    "redrive.spark.requeue",
    "redrive.spark_reprocess.archive.Archive",
    "redrive.spark_reprocess.archive_reader.messages",
    "redrive.spark_reprocess.reprocess.requeue",
    "redrive.spark_reprocess.writer.register",
    "redrive.testing.FailedCase",
    "redrive.testing.MemoryBroker",
    "redrive.testing.Proxy",
    "redrive.testing.failed_cases",
    "redrive.testing.private_broker",
    "redrive.testing.private_cluster",
    "redrive.topology.model.Subscription",
    "redrive.topology.names.ExchangeFamily",
)
"""What the documentation names besides what `redrive` itself gives."""

PROTOCOLS = frozenset(
    """__init__ __call__ __enter__ __exit__ __aenter__ __aexit__ __iter__ __next__ __aiter__
    __anext__ __len__ __contains__ __getitem__""".split()  # noqa: SIM905 - a list takes a page
)
"""The special methods that a user may rely on."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """Where a public name is defined: its module's source, and the definition in it."""

    module: ast.Module
    node: ast.stmt


def source_of(module: str) -> ast.Module | None:
    """The source of a module of redrive; None of any other."""
    if module.split(".")[0] != "redrive":
        return None
    path = SOURCE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def defined(module: ast.Module | None, name: str) -> Place | None:
    """Where a name that a module has is defined, through any imports."""
    if module is None:
        return None
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(module=str(origin), names=names):
                for alias in names:
                    if (alias.asname or alias.name) == name:
                        return defined(source_of(origin), alias.name)
    for node in module.body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return Place(module, node)
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return Place(module, node)
            case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                return Place(module, node)
    return None


def described(path: str) -> Iterator[str]:
    """The lines that say all of a public name that a user may build on."""
    module, _, name = path.rpartition(".")
    place = defined(source_of(module), name)
    assert place is not None, f"{path} is nowhere defined"
    match place.node:
        case ast.ClassDef() as node:
            bases = ", ".join(map(ast.unparse, node.bases))
            made = "".join(f"@{ast.unparse(decorator)} " for decorator in node.decorator_list)
            yield f"{made}class {path}({bases})"
            if "dataclass" in made or "NamedTuple" in bases:
                yield f"    fields in order: {', '.join(fields(node))}"
            for member in sorted(members(place.module, node).items()):
                yield f"    {member[1]}"
        case ast.FunctionDef() | ast.AsyncFunctionDef() as node:
            yield signature(node, path)
        case node:
            yield f"{path} = {ast.unparse(node).partition('=')[2].strip()}"


def members(module: ast.Module, node: ast.ClassDef) -> dict[str, str]:
    """Each public member of a class, inherited ones included, and what is said of it."""
    found: dict[str, str] = {}
    for base in reversed(node.bases):
        place = defined(module, ast.unparse(base).partition("[")[0])
        if place is not None and isinstance(place.node, ast.ClassDef):
            found |= members(place.module, place.node)
    for statement in node.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if is_public(statement.name):
                    found[statement.name] = signatures(node, statement)
                if statement.name == "__init__":
                    found |= attributes(statement)
            case ast.AnnAssign(target=ast.Name(id=name)) if is_public(name):
                found[name] = ast.unparse(statement)
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(ast.Name("offloaded"), [method, *made])
            ) if is_public(name):
                found[name] = offloaded(module, method, made)
            case ast.Assign(targets=[ast.Name(id=name)]) if is_public(name):
                found[name] = ast.unparse(statement)
    return found


def offloaded(module: ast.Module, method: ast.expr, made: list[ast.expr]) -> str:
    """The signature of a coroutine function that is made of a blocking method."""
    blocking, _, name = ast.unparse(method).partition(".")
    place = defined(module, blocking)
    assert place is not None
    assert isinstance(place.node, ast.ClassDef)
    line = f"async {members(place.module, place.node)[name]}"
    return f"{line.rpartition(' -> ')[0]} -> AsyncJob" if made else line


def fields(node: ast.ClassDef) -> Iterator[str]:
    """The fields of a dataclass or a named tuple, in the order in which they may be given."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if is_public(name):
                yield name


def attributes(init: Function) -> dict[str, str]:
    """The public attributes that a class's `__init__` makes, and their types."""
    arguments = [*init.args.args, *init.args.kwonlyargs]
    types = {one.arg: ast.unparse(one.annotation) for one in arguments if one.annotation}
    found: dict[str, str] = {}
    for node in ast.walk(init):
        match node:
            case ast.AnnAssign(target=ast.Attribute(ast.Name("self"), name)) if is_public(name):
                found[name] = f"{name}: {ast.unparse(node.annotation)}"
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], value) if is_public(name):
                of = types.get(value.id) if isinstance(value, ast.Name) else None
                found[name] = f"{name}: {of}" if of else name
    return found


def is_public(name: str) -> bool:
    """Whether users may rely on a member of this name."""
    return not name.startswith("_") or name in PROTOCOLS


def signature(function: Function, path: str | None = None) -> str:
    """A function in one line; of a property, its type."""
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    returns = ast.unparse(function.returns) if function.returns else "None"
    if "property" in decorators:
        return f"{function.name}: {returns}"
    kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    made = "".join(
        f"@{decorator} "
        for decorator in decorators
        if decorator not in ("abstractmethod", "override")
    )
    return f"{made}{kind} {path or function.name}({ast.unparse(function.args)}) -> {returns}"


def signatures(node: ast.ClassDef, method: Function) -> str:
    """A method in one line; in several where it is overloaded, as callers see it."""
    overloads = [
        signature(other)
        for other in node.body
        if isinstance(other, Function)
        and other.name == method.name
        and "overload" in map(ast.unparse, other.decorator_list)
    ]
    return "\n    ".join(overloads or [signature(method)])


def public_api() -> str:
    """The whole list."""
    paths = [*(f"redrive.{name}" for name in redrive.__all__), *DEEP_PATHS]
    return "".join(f"{line}\n" for path in paths for line in described(path))


def test_the_public_api_is_what_is_written_down() -> None:
    assert public_api() == LIST.read_text(encoding="utf-8")


def public_modules() -> set[str]:
    """The modules of the public names, and of the classes that they inherit from."""
    names = [(redrive, name) for name in redrive.__all__ if not name.startswith("_")]
    names += [
        (importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2])
        for path in DEEP_PATHS
        if find_spec("pyspark") is not None or not path.startswith("redrive.spark")
    ]
    found = [getattr(module, name) for module, name in names]
    return {
        str(one.__module__)
        for thing in found
        for one in (thing.__mro__ if isinstance(thing, type) else (thing,))
        if str(getattr(one, "__module__", "")).startswith("redrive")
    }


def test_the_docstrings_of_the_public_api_are_checked() -> None:
    settings = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    ignored = settings["tool"]["ruff"]["lint"]["per-file-ignores"]
    (pattern,) = [one for one in ignored if one.startswith("!")]
    checked = pattern.removeprefix("!src/redrive/{").removesuffix("}.py").split(",")
    modules = {f"redrive.{one.replace('/', '.')}".removesuffix(".__init__") for one in checked}
    assert modules >= public_modules()


def test_a_deep_path_that_the_docs_name_is_on_the_list() -> None:
    root = SOURCE.parents[1]
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        for line in page.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] == ["from"] and len(words) > 3 and words[1].startswith("redrive."):
                for name in " ".join(words[3:]).split(","):
                    assert f"{words[1]}.{name.strip()}" in DEEP_PATHS, page.name


# --- the walk itself ------------------------------------------------------------------------------

EXAMPLE = """
class Base:
    def kept(self, x: int = 1) -> str: ...
    def changed(self) -> str: ...

class Example(Base):
    size: int = 3
    def __init__(self, url: str) -> None:
        self.url = url
        self.count: int = 0
        self._secret = 1
    @property
    def name(self) -> str: ...
    async def changed(self, *, all: bool = True) -> None: ...
    @overload
    def either(self, x: int) -> int: ...
    @overload
    def either(self, x: str) -> str: ...
    def either(self, x: int | str) -> int | str: ...
    def _hidden(self) -> None: ...
    def __repr__(self) -> str: ...
"""


def test_a_class_is_described_by_its_public_members_with_those_it_inherits() -> None:
    module = ast.parse(EXAMPLE)
    node = module.body[1]
    assert isinstance(node, ast.ClassDef)
    assert members(module, node) == {
        "__init__": "def __init__(self, url: str) -> None",
        "changed": "async def changed(self, *, all: bool=True) -> None",
        "count": "count: int",
        "either": "@overload def either(self, x: int) -> int\n"
        "    @overload def either(self, x: str) -> str",
        "kept": "def kept(self, x: int=1) -> str",
        "name": "name: str",
        "size": "size: int = 3",
        "url": "url: str",
    }


if __name__ == "__main__":
    LIST.write_text(public_api(), encoding="utf-8")
    print(f"{LIST} is written")
