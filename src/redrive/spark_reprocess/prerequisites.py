"""Check what a Spark job needs on the machine that starts it: libraries, and a Java."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from redrive.errors import ConfigurationError

OLDEST = 17
"""Source: the release notes of Spark 4.0, which supports Java 17 and 21."""

_REMEDY = (
    f"Install Java {OLDEST} or newer (on Debian and Ubuntu: apt-get install "
    f"openjdk-{OLDEST}-jre-headless), or set JAVA_HOME to one."
)
_VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')
_START_TIMEOUT = 60.0
_LIBRARIES = ("pyspark", "pyarrow", "duckdb")


def check_libraries() -> None:
    """Check that the libraries of the extra `spark` are installed, without importing them."""
    for name in _LIBRARIES:
        if find_spec(name) is None:
            raise ConfigurationError(
                f"this needs {name}, which is not installed", "pip install 'redrive[spark]'"
            )


def check_prerequisites() -> None:
    """Check that the libraries and Java are installed. Call it before starting a broker, opening an
    archive, or touching a message."""
    check_libraries()
    check_java()


def check_java() -> None:
    """Check that the Java that Spark would start exists, runs, and is new enough."""
    program = _program()
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=_START_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(
            f"Spark needs Java, and {program} does not run: {error}", _REMEDY
        ) from error
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or found is None:
        raise ConfigurationError(
            f"Spark needs Java, and {program} does not say its version", _REMEDY
        )
    if int(found["major"]) < OLDEST:
        raise ConfigurationError(
            f"Spark needs Java {OLDEST}, and {program} is Java {found['major']}", _REMEDY
        )


def _program() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not program.exists():
            raise ConfigurationError(
                f"Spark needs Java, and JAVA_HOME ({home}) has no bin/java", _REMEDY
            )
        return str(program)
    found = shutil.which("java")
    if found is None:
        raise ConfigurationError("Spark needs Java, and there is no java on PATH", _REMEDY)
    return found
