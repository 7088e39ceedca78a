"""A disk that is really full: a file system in memory of a few megabytes, which a test fills."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_A_PIECE = 64 * 1024


class SmallDisk:
    """A file system of its own.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    @property
    def free(self) -> int:
        """How many bytes are free."""
        about = os.statvfs(self.folder)
        return about.f_bavail * about.f_frsize

    def fill(self, left: int = 0) -> None:
        """Fills it, but for so many bytes at most."""
        with self._ballast.open("ab", buffering=0) as file:
            for piece in (_A_PIECE, 4096, 1):
                with contextlib.suppress(_Full):
                    while self.free > left:
                        _write(file.fileno(), min(piece, self.free - left) or 1)

    def empty(self) -> None:
        """Takes away what it was filled with."""
        self._ballast.unlink()


class _Full(Exception):
    """Nothing more goes in."""


def _write(handle: int, size: int) -> None:
    try:
        os.write(handle, bytes(size))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _Full from error


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "8m") -> Iterator[SmallDisk]:
    """A disk of so many bytes at a folder. Where nobody may mount one, the test is skipped, or
    fails where CI is set."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        reason = f"This needs the right to mount a file system: {mounted.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: what still has a file of it open goes on.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
