"""The machine and the libraries, for the record. Never the machine's name."""

import importlib.metadata
import os
import platform
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

_PEERS = frozenset({"aio-pika", "celery", "dramatiq", "faststream"})
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def requirements() -> dict[str, str]:
    """The peers' packages and the versions that they are pinned to."""
    return dict(
        re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", _REQUIREMENTS.read_text(), re.MULTILINE)
    )


def missing(contenders: Collection[str]) -> list[str]:
    """The packages that are not installed: those of these contenders, and what all need."""
    return [
        name
        for name in requirements()
        if _version(name) is None and (name not in _PEERS or name.replace("-", "_") in contenders)
    ]


def description() -> list[tuple[str, str]]:
    """What the numbers were measured on, as pairs of a name and a value."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    libraries = ", ".join(
        f"{name} {_version(name)}"
        for name in ("redrive", "pika", "pydantic", *requirements())
        if _version(name)
    )
    return [
        ("date", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        (
            "CPU",
            (
                f"{os.cpu_count()} cores, "
                f"{_first('/proc/cpuinfo', 'model name') or platform.machine()}"
            ),
        ),
        ("memory", _memory()),
        ("load average at the start", load),
        ("OS", f"{_system()}, kernel {platform.release().partition('-')[0]}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("libraries", libraries),
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> str:
    total = _first("/proc/meminfo", "MemTotal")
    return f"{int(total.split()[0]) / 1024**2:.1f} GiB" if total else "unknown"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _first(file: str, name: str) -> str | None:
    return next(_values(file, name), None)


def _values(file: str, name: str) -> Iterator[str]:
    try:
        with open(file) as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    yield value.strip()
    except OSError:
        return
