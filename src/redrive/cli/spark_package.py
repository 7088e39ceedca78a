"""`redrive spark package`: packs what executors need that have a bare Python."""

import importlib.metadata
import re
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

import redrive
from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError
from redrive.spark_reprocess.prerequisites import check_libraries

_FOLDER = "redrive"
_LIBRARIES = ("pyarrow", "pandas", "duckdb", "jsonpatch", "httpx", "platformdirs")
"""What tasks use besides what redrive always needs. Spark itself is on the executors."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEFT_OUT = re.compile(
    r"(^|/)(\.\.|__pycache__|tests?|include|bin)(/|$)|\.(pyc|pyi|pxd|pyx|h|hpp|a)$"
)

Out = Annotated[
    Path, typer.Option("-o", "--output-file", metavar="FILE", help="The archive to write.")
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="PACKAGE",
        show_default=False,
        help="Pack this installed package as well, with what it requires: one that your "
        "--transform imports.",
    ),
]


@options.expanded
def package(
    out: Out = Path("redrive-executors.zip"),
    others: With = None,
    *,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Pack what Spark's executors need, for a cluster whose workers have a bare Python.

    It packs redrive and the libraries that its tasks use, as they are installed here. So the
    executors must have the same operating system, processor and minor version of Python as this
    machine.

    \b
    Example:
      redrive spark package -o redrive-executors.zip
    """
    printer = Printer(output)
    check_libraries()
    for name in others or ():
        _check_installed(name)
    packages = _closure([*_requirements("redrive"), *_LIBRARIES, *(others or ())])
    try:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for file, name in sorted(_files(packages), key=lambda one: one[1]):
                archive.write(file, name)
    except OSError as error:
        raise ConfigurationError(
            f"{out} can't be written: {error.strerror}", "Name another file."
        ) from error
    settings = {
        "spark.archives": f"{out.absolute()}#{_FOLDER}",
        "spark.executorEnv.PYTHONPATH": _FOLDER,
    }
    printer.result({"file": str(out), "packages": packages, "settings": settings})
    printer.say(
        f"{out}: {out.stat().st_size / 1e6:,.0f} MB for Python "
        f"{sys.version_info.major}.{sys.version_info.minor} on {sysconfig.get_platform()}, with "
        f"{', '.join(f'{name} {version}' for name, version in packages.items())}."
    )
    printer.say("Give Spark these settings, in spark-defaults.conf or by --conf:")
    for name, value in settings.items():
        printer.say(f"  {name} {value}")


def _check_installed(package: str) -> None:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigurationError(
            f"the package {package!r} is not installed here", "Install it, or leave it out."
        ) from error


def _requirements(package: str) -> Iterator[str]:
    """Yield the names of packages that an installed package requires, without extras."""
    for requirement in importlib.metadata.requires(package) or ():
        found = _NAME.match(requirement)
        if found is not None and "extra ==" not in requirement:
            yield found[0]


def _closure(names: Iterable[str]) -> dict[str, str]:
    """Return these packages and all that they require, by name, with their versions. What is not
    installed here was left out by a marker."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        try:
            package = importlib.metadata.distribution(waiting.pop())
        except importlib.metadata.PackageNotFoundError:
            continue
        if package.name not in found:
            found[package.name] = package.version
            waiting += _requirements(package.name)
    return dict(sorted(found.items()))


def _files(packages: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the files of redrive and of these packages, with their names in the archive."""
    source = Path(redrive.__file__).parent
    for file in source.rglob("*"):
        name = f"redrive/{file.relative_to(source).as_posix()}"
        if file.is_file() and not _LEFT_OUT.search(name):
            yield file, name
    for package in packages:
        for path in importlib.metadata.files(package) or ():
            file = Path(str(path.locate()))
            if not _LEFT_OUT.search(path.as_posix()) and file.is_file():
                yield file, path.as_posix()
