"""What a caller's type checker sees of redrive: no `Any`, and no signature without types."""

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import redrive

SOURCE = Path(redrive.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    """The functions and methods that a caller may use, special methods among them."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, Function) and (
            not node.name.startswith("_") or node.name.startswith("__")
        ):
            yield node


def public_annotations(source: str) -> Iterator[ast.expr]:
    """The types in the signatures of public functions, and of the fields of public classes."""
    tree = ast.parse(source)
    for function in public_functions(tree.body):
        arguments = function.args
        every = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        yield from (
            argument.annotation
            for argument in every
            if argument is not None and argument.annotation is not None
        )
        if function.returns is not None:
            yield function.returns
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from (field.annotation for field in node.body if isinstance(field, ast.AnnAssign))


def names_any(annotation: ast.expr) -> bool:
    """Whether a type has `Any` in it, in quotes as well."""
    for node in ast.walk(annotation):
        match node:
            case ast.Name(id="Any") | ast.Attribute(attr="Any"):
                return True
            case ast.Constant(value=str(quoted)):
                with contextlib.suppress(SyntaxError):  # words for people, and no type
                    if names_any(ast.parse(quoted, mode="eval").body):
                        return True
    return False


def anys_in(source: str) -> list[str]:
    """The public types of a source that have `Any` in them."""
    return [
        ast.unparse(annotation)
        for annotation in public_annotations(source)
        if names_any(annotation)
    ]


def test_no_public_signature_has_any_in_it() -> None:
    found = {
        module.relative_to(SOURCE).as_posix(): anys_in(module.read_text()) for module in MODULES
    }
    assert {module: anys for module, anys in found.items() if anys} == {}


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: Any) -> None: ...",
        "def f() -> dict[str, typing.Any]: ...",
        "async def f(*, x: 'list[Any]') -> None: ...",
        "class A:\n    def __init__(self, *args: Any) -> None: ...",
        "class A:\n    x: Any | None",
    ],
)
def test_an_any_in_a_public_signature_is_found(source: str) -> None:
    assert len(anys_in(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def _f(x: Any) -> None: ...",
        "class _A:\n    x: Any",
        "def f(x: object) -> None: ...",
        "def f(x: 'A') -> None: ...",
    ],
)
def test_what_is_private_may_be_anything(source: str) -> None:
    assert anys_in(source) == []
