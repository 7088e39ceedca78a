"""The package as users get it: built, and installed into environments that have nothing else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_PINS = ROOT / "constraints.txt"
_SECONDS = 200


def run_uv(*arguments: str, **environment: str) -> None:
    """Runs uv: with what its cache has, and with the index if that is not all.

    Raises:
        AssertionError: it failed; the text is uv's own.
    """
    beside_python = str(Path(sys.executable).parent)
    uv = shutil.which("uv", path=os.pathsep.join((beside_python, os.environ["PATH"])))
    assert uv is not None, "These tests need uv: make test installs it."
    words = [uv, *arguments]
    if _run([*words, "--offline"], environment).returncode == 0:
        return
    done = _run(words, environment)
    assert done.returncode == 0, done.stderr


def _run(words: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


class Built(NamedTuple):
    """What is uploaded to an index."""

    wheel: Path
    sdist: Path


def build(folder: Path) -> Built:
    """Builds the package into a folder: the sdist, and from it the wheel, as pip does for a user
    who has no wheel."""
    run_uv("build", "--quiet", "--out-dir", str(folder))
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


class CleanEnvironment:
    """A virtual environment with the built package, and one of its extras or none.

    Args:
        folder: where it is made.
        wheel: the built package.
        extra: the extra, or "" for none.
        borrowed: packages that are not installed again but linked to from the environment of the
            tests, which has them as pinned. PySpark comes as a source distribution: building its
            wheel takes minutes on a busy machine, and another gigabyte of uv's cache each time.
    """

    def __init__(
        self, folder: Path, wheel: Path, extra: str, *, borrowed: Sequence[str] = ()
    ) -> None:
        self._programs = folder / ("Scripts" if os.name == "nt" else "bin")
        # Links to the cache, if the file system can: nothing is copied.
        settings = {"VIRTUAL_ENV": str(folder), "UV_LINK_MODE": "hardlink"}
        run_uv("venv", "--quiet", "--python", sys.executable, str(folder))
        wanted = f"redrive[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        left_out = folder / "left-out.txt"
        left_out.write_text("".join(f"{name} ; python_version < '3'\n" for name in borrowed))
        pins = ("--constraints", str(_PINS), "--override", str(left_out))
        run_uv("pip", "install", "--quiet", *pins, wanted, **settings)
        (packages,) = folder.rglob("site-packages")
        for name in borrowed:
            found = find_spec(name)
            assert found is not None, f"These tests need {name}: make test-spark installs it."
            assert found.origin is not None
            (packages / name).symlink_to(Path(found.origin).parent)

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of Python, away from the repository."""
        return self.run("python", "-c", program)

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs one of the environment's programs, away from the repository."""
        return subprocess.run(
            [str(self._programs / name), *arguments],
            cwd=self._programs,
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("PYTHON", "REDRIVE_", "COVERAGE_"))
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
