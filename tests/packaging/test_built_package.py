"""The wheel and the sdist: what is in them, and what they do in an environment that has nothing
else."""

import json
import re
import tarfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest

from clean_environment import ROOT, Built, CleanEnvironment, build
from effort import some_of

_SOURCES = {
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src" / "redrive").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
_EXTRAS = {
    "async",
    "cli",
    "depends",
    "metrics",
    "msgpack",
    "reload",
    "settings",
    "spark",
    "testing",
    "web",
    "zstd",
}
_OF_ASYNC = ("AsyncApp", "AsyncPublisher", "AsyncRouter", "AsyncSubscriber", "run_async")
_SPARK_COMMANDS = {
    "requeue": ["ucenter@user", "--archive", "archive"],
    "drain": ["ucenter@user", "--archive", "archive"],
    "plan": ["--archive", "archive"],
    "send": ["--archive", "archive"],
    "restore": ["--archive", "archive"],
    "discard": ["--archive", "archive"],
    "verify": ["--archive", "archive"],
    "demo": [],
}
_SERVES_METRICS = """
from redrive.cli.metrics_server import MetricsAddress, serving

with serving(MetricsAddress("127.0.0.1", 0), []):
    pass
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def plain(built: Built, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    """The package without an extra."""
    return CleanEnvironment(tmp_path_factory.mktemp("plain") / "environment", built.wheel, "")


@pytest.fixture(scope="module")
def with_cli(built: Built, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    return CleanEnvironment(tmp_path_factory.mktemp("cli") / "environment", built.wheel, "cli")


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(archive.read(name))


def test_the_wheel_has_the_package_once_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    information = {name for name in names if name.startswith("redrive-")}
    assert sorted(set(names) - information) == sorted(_SOURCES)
    assert len(names) == len(set(names))
    assert {name.partition("/")[2] for name in information} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }
    assert "redrive/py.typed" in names


def test_the_sdist_has_the_package_once_and_what_builds_it(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    assert all(member.isfile() or member.isdir() for member in members), "a link is in it"
    names = [member.name.partition("/")[2] for member in members if member.isfile()]
    beside = set(names) - {f"src/{source}" for source in _SOURCES}
    assert {f"src/{source}" for source in _SOURCES} <= set(names)
    assert len(names) == len(set(names))
    # uv_build writes a pyproject.toml that any builder reads, and keeps ours beside it.
    assert beside - {"pyproject.toml.orig"} == {
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
    }


def test_the_command_and_the_extras_are_in_the_metadata(built: Built) -> None:
    metadata = metadata_of(built.wheel)
    assert set(metadata.get_all("Provides-Extra", [])) == _EXTRAS
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        entry_points = archive.read(name).decode()
    assert "[console_scripts]\nredrive = redrive.cli.__main__:main\n" in entry_points


def test_spark_brings_spark_and_the_command_line(built: Built) -> None:
    wanted = {
        re.split(r"[<>=;\s]", line, maxsplit=1)[0]
        for line in metadata_of(built.wheel).get_all("Requires-Dist", [])
        if re.search(r"extra == ['\"]spark['\"]", line)
    }
    assert {"pyspark", "redrive[cli]"} <= wanted


def test_a_bare_service_gets_pika_and_pydantic_and_nothing_that_these_do_not_need(
    plain: CleanEnvironment,
) -> None:
    listed = plain.python(
        "import importlib.metadata as m, json;"
        "print(json.dumps(sorted(d.name.lower().replace('_', '-') for d in m.distributions())))"
    )
    assert json.loads(listed.stdout) == [
        "annotated-types",
        "pika",
        "pydantic",
        "pydantic-core",
        "redrive",
        "typing-extensions",
        "typing-inspection",
    ]


def test_a_bare_service_imports_every_public_name_but_those_of_an_extra(
    plain: CleanEnvironment,
) -> None:
    done = plain.python(
        "import redrive\n"
        f"names = set(redrive.__all__) - set({(*_OF_ASYNC, 'Settings')!r})\n"
        "assert len(names) > 20\n"
        "for name in names: getattr(redrive, name)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", _OF_ASYNC)
def test_an_asyncio_class_names_its_extra_where_that_is_missing(
    plain: CleanEnvironment, name: str
) -> None:
    done = plain.python(f"from redrive import {name}")
    assert done.returncode == 1
    assert f"redrive.{name} needs " in done.stderr.splitlines()[-1]
    assert done.stderr.endswith(": pip install 'redrive[async]'\n")


def test_settings_name_their_extra_where_that_is_missing(plain: CleanEnvironment) -> None:
    done = plain.python("from redrive import App\nApp().start()")
    assert done.returncode == 1
    assert "an app's settings need pydantic_settings, which is not installed" in done.stderr
    assert done.stderr.endswith("Give the app a URL, or: pip install 'redrive[settings]'\n")


def test_the_command_names_its_extra_where_that_is_missing(plain: CleanEnvironment) -> None:
    done = plain.run("redrive", "status", "ucenter@user")
    assert (done.returncode, done.stdout) == (2, "")
    problem, remedy = done.stderr.splitlines()
    assert re.fullmatch(r"Error: this command needs \w+, which is not installed", problem)
    assert remedy == "pip install 'redrive[cli]'"


def test_measuring_names_its_extra_where_that_is_missing(plain: CleanEnvironment) -> None:
    done = plain.python("import redrive; redrive.instrument()")
    assert done.stderr.endswith("which is not installed\npip install 'redrive[metrics]'\n")


def test_the_command_line_starts_with_its_extra_alone(with_cli: CleanEnvironment) -> None:
    shown = with_cli.run("redrive", "--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "redrive 0.1.0\n", "")
    helped = with_cli.run("redrive", "spark", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert set(_SPARK_COMMANDS) <= set(helped.stdout.split())


@pytest.mark.parametrize("command", some_of([*_SPARK_COMMANDS]))
def test_each_command_of_spark_names_its_extra_where_that_is_missing(
    with_cli: CleanEnvironment, command: str
) -> None:
    done = with_cli.run("redrive", "spark", command, *_SPARK_COMMANDS[command])
    assert (done.returncode, done.stdout) == (2, "")
    problem, remedy = done.stderr.splitlines()
    assert re.fullmatch(r"Error: this (command )?needs \w+, which is not installed", problem)
    assert remedy == "pip install 'redrive[spark]'"


def test_a_missing_extra_is_json_where_that_is_asked_for(with_cli: CleanEnvironment) -> None:
    done = with_cli.run("redrive", "spark", "plan", "--archive", "archive", "--output", "json")
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]["remedy"] == "pip install 'redrive[spark]'"


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("async", f"from redrive import {', '.join(_OF_ASYNC)}"),
        ("metrics", "import redrive; redrive.instrument(); redrive.uninstrument()"),
        ("metrics", _SERVES_METRICS),
        ("testing", "from redrive.testing import plugin; import testcontainers, filelock"),
    ],
)
def test_an_extra_is_all_that_its_part_needs(
    built: Built, tmp_path: Path, extra: str, program: str
) -> None:
    done = CleanEnvironment(tmp_path / "environment", built.wheel, extra).python(program)
    assert (done.returncode, done.stderr) == (0, "")
