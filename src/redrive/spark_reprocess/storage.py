"""The storage of an archive: a folder, or any other place that Arrow can write to by URI.

Drivers and executors write to it directly and not through Spark. A message may be acked only once
its file is complete and visible, and Spark's own writers don't report that before the whole job is
done.
"""

import contextlib
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import pyarrow
import pyarrow.parquet
from pyarrow import fs

from redrive.errors import ConfigurationError
from redrive.failures.store.state_folder import to_disk
from redrive.redaction import redact
from redrive.spark_reprocess.spark_errors import explained, first_line, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_REMEDY = "Give a folder, or a URI such as s3a://bucket/folder or hdfs://host:8020/folder."
_NATIVE = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's URI schemes that Arrow has another name for."""
FILE, ROW = "archive_file", "archive_row"
"""The file of a row and its index in it: together they identify the row."""
_SUCCESS = "_SUCCESS"
_FILE_URI = re.compile(r"^file:(//(localhost)?(?=/))?")
_NO_JARS = re.compile(r"ClassNotFoundException|No FileSystem for scheme")
_LISTING_SECONDS = 60.0
_MOST_FILES_IN_A_TASK, _FEW_TASKS = 100, 8
BATCH_ROWS = 1000


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
        if not place:
            raise ConfigurationError("the archive's location is empty", _REMEDY)
        local = _FILE_URI.sub("", place)
        if local != place and local.startswith("//"):
            raise ConfigurationError(
                f"the archive's URI {redact(place)} names another machine",
                "Give a folder that all tasks can reach by the same path, such as file:///srv/archive.",
            )
        storage = cls(place.rstrip("/") if "://" in local else os.path.abspath(local))
        if not storage.is_local:
            _check_uri(place)
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
        with self._reading(path) as (filesystem, whole):
            try:
                with filesystem.open_input_stream(whole) as stream:
                    data: bytes = stream.read()
                    return data
            except FileNotFoundError:
                return None

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder exists."""
        with self._reading(path) as (filesystem, whole):
            return bool(filesystem.get_file_info(whole).type != fs.FileType.NotFound)

    def names(self, folder: str, *, folders: bool = False) -> list[str]:
        """Return the sorted names of the complete files in a folder, or of its subfolders; empty if
        the folder does not exist."""
        wanted = fs.FileType.Directory if folders else fs.FileType.File
        with self._reading(folder) as (filesystem, whole):
            found = filesystem.get_file_info(fs.FileSelector(whole, allow_not_found=True))
        return sorted(
            info.base_name
            for info in found
            if info.type == wanted and not info.base_name.startswith(("_", "."))
        )

    def files_below(self, folder: str) -> list[str]:
        """Return the sorted paths of the complete files in a folder and its subfolders, relative to
        the folder. Of a folder that tasks wrote by Arrow, these are the files of the attempts that
        succeeded."""
        written = self.read(f"{folder}/{_SUCCESS}")
        if written:
            return written.decode().split("\n")
        with self._reading(folder) as (filesystem, whole):
            found = filesystem.get_file_info(
                fs.FileSelector(whole, allow_not_found=True, recursive=True)
            )
        paths = [info.path[len(whole) + 1 :] for info in found if info.type == fs.FileType.File]
        return sorted(path for path in paths if not any(map(_is_hidden, path.split("/"))))

    def wait_until_listed(self, folder: str, is_listed: Callable[[Sequence[str]], bool]) -> None:
        """Wait until a folder's names are as they must be: the listing of some stores lags behind
        what was written."""
        deadline, pause = time.monotonic() + _LISTING_SECONDS, 0.05
        while not is_listed(self.names(folder)):
            if time.monotonic() >= deadline:
                raise ConfigurationError(
                    f"{self.uri}/{folder} does not list all files that were written to it",
                    "The store's listing lags, or files were deleted. Run it again later.",
                )
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

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
        with self._reading(folder) as (filesystem, whole), contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(whole)

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[tuple[fs.FileSystem, str]]:
        """Yield the file system and a path in it; raise what goes wrong in the block in two
        lines."""
        filesystem, root = self._open()
        try:
            yield filesystem, f"{root}/{path}".rstrip("/")
        except (OSError, pyarrow.ArrowException) as error:
            raise ConfigurationError(
                f"the archive can't be read: {self.uri}/{path}: {_why(error)}", _REMEDY
            ) from error

    def _write_remotely(self, path: str, data: bytes) -> None:
        filesystem, root = self._open()
        whole = f"{root}/{path}"
        parent = whole.rpartition("/")[0]
        if isinstance(filesystem, fs.S3FileSystem):
            # An object appears only once it is complete, and takes the place of an earlier one.
            with filesystem.open_output_stream(whole) as stream:
                stream.write(data)
            arrived = filesystem.get_file_info(whole).size
            if arrived != len(data):
                filesystem.delete_file(whole)
                raise OSError(f"only {arrived} of {len(data)} bytes arrived")
            return
        filesystem.create_dir(parent, recursive=True)
        unfinished = f"{parent}/.{uuid.uuid4().hex}"
        with filesystem.open_output_stream(unfinished) as stream:
            stream.write(data)
        filesystem.move(unfinished, whole)

    def _open(self) -> tuple[fs.FileSystem, str]:
        if self.is_local:
            return fs.LocalFileSystem(), self.uri
        try:
            return _filesystem_at(self.uri)
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise ConfigurationError(
                f"the archive {redact(self.uri)} can't be reached: {_why(error)}", _REMEDY
            ) from error


@lru_cache(maxsize=16)
def _filesystem_at(uri: str) -> tuple[fs.FileSystem, str]:
    """Return Arrow's file system for a URI, and the path in it. Making one asks the store."""
    scheme, _, rest = uri.partition("://")
    scheme = _NATIVE.get(scheme, scheme)
    # A small file is one request then, instead of an upload in parts.
    options = "?allow_delayed_open=true" if scheme == "s3" else ""
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{rest}{options}")
    return filesystem, str(root)


# --- DataFrames -----------------------------------------------------------------------------------


def reads_by_spark(spark: "SparkSession", storage: Storage) -> bool:
    """Return whether Spark reads and writes this storage itself. PySpark from PyPI has no jars for
    object stores: then its tasks use Arrow."""
    return storage.is_local or _spark_has_jars(spark, storage.uri)


@lru_cache(maxsize=4)
def _spark_has_jars(spark: "SparkSession", uri: str) -> bool:
    try:
        # Only looks whether the folder is there: reads nothing.
        _ = spark.read.schema("id string").parquet(uri).schema
    except spark_errors() as error:
        if _NO_JARS.search(str(error)):
            return False
        if "PATH_NOT_FOUND" not in str(error):
            raise ConfigurationError(
                f"Spark can't read {redact(uri)}: {first_line(error)}",
                "Check the address, the credentials, and Hadoop's settings for this store.",
            ) from error
    return True


def read_frame(
    spark: "SparkSession",
    storage: Storage,
    folder: str,
    schema: "StructType",
    *,
    run: str | None = None,
    numbered: bool = False,
) -> "DataFrame":
    """Return the Parquet files of a folder, with the columns that its subfolders' names have.

    Args:
        spark: the session.
        storage: where the folder is.
        folder: the folder.
        schema: the columns to read; a file that has none of that name has nulls.
        run: leave out what is in other runs' folders.
        numbered: add the file and the index of each row.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StringType

    if storage.exists(folder) and reads_by_spark(spark, storage):
        # The folder's name is no pattern, whatever characters it has.
        reader = spark.read.schema(schema).option("__globPaths__", "false")
        frame = reader.parquet(storage.uri_of(folder))
        if numbered:
            frame = frame.withColumns(
                {FILE: F.col("_metadata.file_name"), ROW: F.col("_metadata.row_index")}
            )
        return frame if run is None else frame.where(F.col("run") == run)
    if numbered:
        schema = type(schema)(list(schema.fields)).add(FILE, StringType()).add(ROW, LongType())
    files = StoredFiles.below(storage, folder, schema, run)
    if not files.paths:
        return spark.createDataFrame([], schema)
    return files.numbers(spark).mapInArrow(files.rows, schema)


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Parquet files that tasks read with Arrow.

    Args:
        storage: where they are.
        paths: the files.
        schema: the columns to read, as for `read_frame`.
    """

    storage: Storage
    paths: Sequence[str]
    schema: "StructType"

    @classmethod
    def below(
        cls, storage: Storage, folder: str, schema: "StructType", run: str | None = None
    ) -> Self:
        """Return the files of a folder and its subfolders, or those of one run."""
        paths = (f"{folder}/{path}" for path in storage.files_below(folder))
        return cls(
            storage,
            [path for path in paths if run is None or f"run={run}" in path.split("/")],
            schema,
        )

    def numbers(self, spark: "SparkSession", at_once: int = 1) -> "DataFrame":
        """Return a DataFrame with a row for each file, which the tasks that read them share.

        Args:
            spark: the session.
            at_once: how many tasks run at the same time. The number of tasks is a multiple of it,
                so that no core idles while the last of them run.
        """
        count = len(self.paths)
        tasks = max(_FEW_TASKS, count // _MOST_FILES_IN_A_TASK)
        return spark.range(0, count, 1, min(count, at_once * math.ceil(tasks / at_once)))

    def all_tables(self) -> Iterator[pyarrow.Table]:
        """Yield the rows of all files, file by file."""
        for path in self.paths:
            yield _rows_of(self.storage, path, self.schema)

    def tables(self, numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
        """Yield the rows of the files with these numbers, file by file."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield _rows_of(self.storage, self.paths[number], self.schema)

    def rows(self, numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of the files with these numbers."""
        for table in self.tables(numbers):
            yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _rows_of(storage: Storage, path: str, schema: "StructType") -> pyarrow.Table:
    """Return the rows of a file with the columns of a schema, those of its folders' names, and its
    name and their indexes."""
    from pyspark.sql.pandas.types import to_arrow_schema

    *folders, name = path.split("/")
    known = {key: unquote(value) for key, _, value in (one.partition("=") for one in folders)}
    known[FILE] = name
    arrow = to_arrow_schema(schema, timezone="UTC")
    data = storage.read(path)
    try:
        if data is None:
            raise OSError("it is gone")
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data))
        stored = set(file.schema_arrow.names) - known.keys()
        rows = file.read([name for name in schema.names if name in stored])
        return pyarrow.Table.from_arrays(
            [
                rows[field.name].cast(field.type)
                if field.name in stored
                else pyarrow.array(range(len(rows)), field.type)
                if field.name == ROW
                else pyarrow.repeat(pyarrow.scalar(known.get(field.name), field.type), len(rows))
                for field in arrow
            ],
            schema=arrow,
        )
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigurationError(
            f"{storage.uri}/{path} is damaged: {_why(error)}",
            "Restore it, or use another archive.",
        ) from error


def write_frame(frame: "DataFrame", storage: Storage, folder: str) -> None:
    """Write a DataFrame as Parquet files into a folder, instead of what is in it."""
    if reads_by_spark(frame.sparkSession, storage):
        storage.make_folder(folder.partition("/")[0])
        with explained():
            frame.write.mode("overwrite").parquet(storage.uri_of(folder))
        return
    storage.delete_folder(folder)

    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = "" if context is None else f"{context.partitionId():05d}-{context.taskAttemptId()}"
        for number, batch in enumerate(batches):
            if not batch.num_rows:
                continue
            name = f"part-{part}-{number:06d}.parquet"
            sink = pyarrow.BufferOutputStream()
            pyarrow.parquet.write_table(
                pyarrow.Table.from_batches([batch]), sink, compression="zstd"
            )
            storage.write(f"{folder}/{name}", sink.getvalue().to_pybytes())
            yield pyarrow.RecordBatch.from_pydict({"name": [name]})

    with explained():
        names = [row["name"] for row in frame.mapInArrow(write, "name string").collect()]
    storage.write(f"{folder}/{_SUCCESS}", "\n".join(sorted(names)).encode())


def is_written(storage: Storage, folder: str) -> bool:
    """Return whether `write_frame` has written all of a folder."""
    return storage.exists(f"{folder}/{_SUCCESS}")


def _check_uri(place: str) -> None:
    """Refuse a URI that would show a secret, or that Spark and Arrow read differently."""
    try:
        parts = urlsplit(place)
        has_password = parts.password is not None
    except ValueError as error:
        raise ConfigurationError(
            f"the archive's URI {redact(place)} is not valid: {error}", _REMEDY
        ) from error
    if has_password or (parts.username is not None and parts.scheme in ("s3", *_NATIVE)):
        raise ConfigurationError(
            f"the archive's URI {redact(place)} has credentials in it, which Spark would show and "
            "log",
            "Pass them through the environment or Hadoop's settings.",
        )
    odd = next((mark for mark in "?#%" if mark in place), None)
    if odd is not None:
        raise ConfigurationError(
            f"the archive's URI {redact(re.split('[?#]', place)[0])} has a {odd} in it, which "
            "Spark and Arrow read differently",
            "Name the folder without it; options and credentials belong in the environment or "
            "Hadoop's settings.",
        )


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


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
    to_disk(path.parent)  # makes the rename durable


def _why(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = redact(re.sub(r" \(Request ID: [^)]*\)", "", text))
    return " ".join((text or type(error).__name__).split())[:300]
