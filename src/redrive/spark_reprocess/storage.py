"""The storage of an archive: a folder, or any other place that Arrow can write to by URI.

Drivers and executors write to it directly and not through Spark. A message may be acked only once
its file is complete and visible, and Spark's own writers don't report that before the whole job is
done.
"""

import contextlib
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow
from pyarrow import fs

from redrive.errors import ConfigurationError
from redrive.redaction import redact

_REMEDY = "Give a folder, or a URI such as s3a://bucket/folder or hdfs://host:8020/folder."
_NATIVE = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's URI schemes that Arrow has another name for."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder that all tasks can reach. Paths are relative to it, with slashes.

    Args:
        uri: an absolute path, or a URI as Hadoop writes it.
    """

    uri: str

    @classmethod
    def at(cls, place: str) -> "Storage":
        """Return the storage at a path or a URI. A relative path is made absolute, since tasks run
        elsewhere."""
        parts = urlsplit(place)
        if not place:
            raise ConfigurationError("the archive's location is empty", _REMEDY)
        if parts.password is not None or (
            parts.username is not None and parts.scheme in ("s3", *_NATIVE)
        ):
            raise ConfigurationError(
                f"the archive's URI {redact(place)} has credentials in it, which Spark would show "
                "and log",
                "Pass them through the environment or Hadoop's settings.",
            )
        path = {"": place, "file": parts.path}.get(parts.scheme)
        storage = cls(place.rstrip("/") if path is None else os.path.abspath(path))
        storage._open()
        return storage

    @property
    def is_local(self) -> bool:
        """Whether it is a folder on this machine, or mounted on it."""
        return "://" not in self.uri

    def uri_of(self, path: str) -> str:
        """Return the URI of a file or folder for Spark."""
        return f"file://{self.uri}/{path}" if self.is_local else f"{self.uri}/{path}"

    def write(self, path: str, data: bytes) -> None:
        """Write a file, whole or not at all. Once this returns, the file survives a crash of this
        machine."""
        try:
            if self.is_local:
                _write_locally(Path(self.uri, path), data)
            else:
                self._write_remotely(path, data)
        except (OSError, pyarrow.ArrowException) as error:
            raise ConfigurationError(
                f"the archive can't be written: {self.uri}/{path}: {_why(error)}",
                "Free some space or fix the permissions, and run it again: messages that are not "
                "in the archive are still in their queue.",
            ) from error

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""
        filesystem, root = self._open()
        try:
            with filesystem.open_input_stream(f"{root}/{path}") as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return None
        except (OSError, pyarrow.ArrowException) as error:
            raise ConfigurationError(
                f"the archive can't be read: {self.uri}/{path}: {_why(error)}", _REMEDY
            ) from error

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder exists."""
        filesystem, root = self._open()
        return bool(filesystem.get_file_info(f"{root}/{path}").type != fs.FileType.NotFound)

    def names(self, folder: str, *, folders: bool = False) -> list[str]:
        """Return the sorted names of the complete files in a folder, or of its subfolders; empty if
        the folder does not exist."""
        filesystem, root = self._open()
        wanted = fs.FileType.Directory if folders else fs.FileType.File
        try:
            found = filesystem.get_file_info(
                fs.FileSelector(f"{root}/{folder}", allow_not_found=True)
            )
        except (OSError, pyarrow.ArrowException) as error:
            raise ConfigurationError(
                f"the archive can't be read: {self.uri}/{folder}: {_why(error)}", _REMEDY
            ) from error
        return sorted(
            info.base_name
            for info in found
            if info.type == wanted and not info.base_name.startswith(("_", "."))
        )

    def make_folder(self, folder: str) -> None:
        """Make a folder that only this user can access, before Spark makes it open to everyone."""
        if not self.is_local:
            return
        try:
            _make_folders(Path(self.uri, folder))
        except OSError as error:
            raise ConfigurationError(
                f"the archive can't be written: {self.uri}/{folder}: {_why(error)}", _REMEDY
            ) from error

    def check_links(self) -> None:
        """Check that no link leads out of this folder: if someone else made the folder, its links
        could point anywhere."""
        if not self.is_local:
            return
        root = os.path.realpath(self.uri)
        for folder, folders, files in os.walk(self.uri):
            for path in (os.path.join(folder, name) for name in (*folders, *files)):
                if os.path.islink(path) and not os.path.realpath(path).startswith(
                    os.path.join(root, "")
                ):
                    raise ConfigurationError(
                        f"{path} in the archive is a link to {os.path.realpath(path)}, outside it",
                        "If you know who made it, replace it with what it points to.",
                    )

    def delete_folder(self, folder: str) -> None:
        """Delete a folder and everything in it; do nothing if it does not exist."""
        filesystem, root = self._open()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(f"{root}/{folder}")

    def _write_remotely(self, path: str, data: bytes) -> None:
        filesystem, root = self._open()
        whole = f"{root}/{path}"
        parent = whole.rpartition("/")[0]
        if isinstance(filesystem, fs.S3FileSystem):
            # An object appears only once it is complete.
            with filesystem.open_output_stream(whole) as stream:
                stream.write(data)
            return
        filesystem.create_dir(parent, recursive=True)
        unfinished = f"{parent}/.{uuid.uuid4().hex}"
        with filesystem.open_output_stream(unfinished) as stream:
            stream.write(data)
        filesystem.move(unfinished, whole)

    def _open(self) -> tuple[fs.FileSystem, str]:
        if self.is_local:
            return fs.LocalFileSystem(), self.uri
        scheme, _, rest = self.uri.partition("://")
        try:
            filesystem, root = fs.FileSystem.from_uri(f"{_NATIVE.get(scheme, scheme)}://{rest}")
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise ConfigurationError(
                f"the archive {redact(self.uri)} can't be reached: {_why(error)}", _REMEDY
            ) from error
        return filesystem, str(root)


def _make_folders(path: Path) -> None:
    """Make a folder and its missing parents, each accessible by this user only."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another task was faster
            folder.mkdir(mode=0o700)


def _ours_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_locally(path: Path, data: bytes) -> None:
    _make_folders(path.parent)
    unfinished = path.parent / f".{uuid.uuid4().hex}"
    try:
        with open(unfinished, "xb", opener=_ours_alone) as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # makes the rename durable
    finally:
        os.close(folder)


def _why(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join((text or type(error).__name__).split())[:300]
