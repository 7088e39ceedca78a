"""`redrive spark package`: what is in the archive, and what can't be packed."""

import zipfile
from pathlib import Path

import pytest

from cli_support import redrive
from redrive.cli import spark_package


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the libraries that take long to pack, and without Spark."""
    monkeypatch.setattr(spark_package, "_LIBRARIES", ())
    monkeypatch.setattr(spark_package, "check_libraries", lambda: None)


def test_redrive_and_all_that_it_requires_are_packed(tmp_path: Path) -> None:
    file = tmp_path / "executors.zip"
    done = redrive("spark", "package", "-o", str(file), "--with", "httpx", "--output", "json")
    assert done.code == 0, done.err
    answer = done.json()
    assert {"pika", "pydantic", "pydantic_core", "httpx", "idna"} <= answer["packages"].keys()
    assert answer["settings"] == {
        "spark.archives": f"{file}#redrive",
        "spark.executorEnv.PYTHONPATH": "redrive",
    }
    names = set(zipfile.ZipFile(file).namelist())
    assert {"redrive/spark_reprocess/send_task.py", "pika/__init__.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("/", ".."))]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--with", "no-such-package"), "the package 'no-such-package' is not installed here"),
        (("-o", "/nowhere/executors.zip"), "/nowhere/executors.zip can't be written"),
    ],
)
def test_what_can_not_be_packed_is_told_in_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = redrive("spark", "package", *arguments)
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert told in done.err
