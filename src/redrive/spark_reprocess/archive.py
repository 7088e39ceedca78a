"""The layout of an archive, and the files in it that describe runs.

    redrive-archive.json                    marks the folder as an archive, with its format
    messages/queue=<queue>/run=<run>/<session>-<n>-<rows>.parquet   messages drained by a task
    runs/<run>/run.json                     the broker, the queues, and their depths
    runs/<run>/settled/<session>            written once the broker has all acks of this session
    runs/<run>/drained.json                 written once draining has ended, with the row count
    runs/<run>/choice.json                  which messages were chosen to be sent
    runs/<run>/stopped/<job>                why a job stopped
    runs/<run>/ended.json                   written once no message is left to deal with
    tables/<format>/<run>                   a copy as a table, if one was asked for
    decisions/<digest>/…                    what a DataFrame says is done with which messages
    transformed/run=<run>/choice=<choice>/… messages after their transform
    ledger/run=<run>/job=<job>/…            the outcome of each message, see ledger.py
    reports/<run>.json, reports/<run>.html

A run is one drain of some queues; a job is one attempt to send messages of a run. Row counts are
part of the file names, so listing a folder is enough to tell how far a task is.
"""

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from redrive.errors import ConfigurationError
from redrive.failures.queue.failed_source import FailedSource
from redrive.failures.store.archive_folder import FORMAT, MARK
from redrive.spark_reprocess.storage import Storage
from redrive.topology.names import ExchangeFamily

_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
"""Source: `ExternalCatalogUtils.escapePathName` of Spark 4.3."""
_LONGEST_NAME = 255
"""Bytes of a file name. Source: NAME_MAX of Linux."""
_NO_TEXTS = {"depths", "exchanges", "dead_letter_queues"}
"""Fields of a run that are not strings."""


@dataclass(frozen=True, slots=True)
class Run:
    """One drain of one or more queues into the archive.

    Args:
        id: the run's name; names sort by start time.
        address: the broker's address, without the password.
        depths: the number of failed messages of each queue when the run began.
        began_at: the start time, ISO 8601 UTC.
        source: the snapshot that the messages were copied from; empty for failed queues.
        exchanges: the exchange family, as JSON values; empty for redrive's default.
        dead_letter_queues: the queues that are not subscriptions, but dead-letter queues that
            redrive did not make.
    """

    id: str
    address: str
    depths: dict[str, int] = field(default_factory=dict)
    began_at: str = ""
    source: str = ""
    exchanges: dict[str, object] = field(default_factory=dict)
    dead_letter_queues: list[str] = field(default_factory=list)

    @property
    def family(self) -> ExchangeFamily:
        """The exchange family of the queues.

        Raises:
            ConfigurationError: the stored value is not an exchange family.
        """
        return ExchangeFamily.from_json(self.exchanges) if self.exchanges else ExchangeFamily()

    @property
    def queues(self) -> list[str]:
        """The main queues whose failed queues are drained, plus the dead-letter queues."""
        return list(self.depths)

    @property
    def sources(self) -> list[FailedSource]:
        """The queues that the messages are drained from."""
        return [
            FailedSource(queue)
            if queue in self.dead_letter_queues
            else FailedSource.of_subscription(queue)
            for queue in self.depths
        ]

    @property
    def main_queues(self) -> list[str]:
        """The queues of this run that are main queues of subscriptions."""
        return [queue for queue in self.depths if queue not in self.dead_letter_queues]


class Archive:
    """An archive at a path or a URI.

    Args:
        place: the path or URI.

    Raises:
        ConfigurationError: the folder holds something else, has the format of a newer redrive, or
            contains a link that leads out of it.
    """

    def __init__(self, place: str) -> None:
        self.storage = Storage.at(place)
        self.storage.check_links()
        found = self._json(MARK)
        if found is not None and found.get("format") != FORMAT:
            raise ConfigurationError(
                f"the archive {self.storage.uri} has the format {found.get('format')}; this "
                f"redrive reads {FORMAT}",
                "Use a newer redrive.",
            )
        self._is_marked = found is not None
        if found is None and (self.storage.names("") or self.storage.names("", folders=True)):
            raise ConfigurationError(
                f"{self.storage.uri} is not empty, and is not a redrive archive",
                "Give the archive's folder, or a new one.",
            )

    @property
    def is_new(self) -> bool:
        """Whether the archive is still empty."""
        return not self._is_marked

    def runs(self) -> list[Run]:
        """Return the runs, oldest first.

        Raises:
            ConfigurationError: the file of a run is damaged.
        """
        found = [
            (name, self._json(f"runs/{name}/run.json"))
            for name in self.storage.names("runs", folders=True)
            if _RUN.fullmatch(name)
        ]
        return [self._run(name, values) for name, values in found if values is not None]

    def _run(self, name: str, values: dict[str, Any]) -> Run:
        """Return the run that a folder describes. Its id must be the folder's name, since paths are
        built from it."""
        known = {one.name for one in fields(Run)}
        depths = values.get("depths", {})
        if (
            values.get("id") == name
            and values.keys() <= known
            and all(isinstance(values.get(key, ""), str) for key in known - _NO_TEXTS)
            and isinstance(values.get("exchanges", {}), dict)
            and isinstance(depths, dict)
            and isinstance(values.get("dead_letter_queues", []), list)
            and all(
                isinstance(queue, str) and queue in depths
                for queue in values.get("dead_letter_queues", [])
            )
            and all(
                isinstance(depth, int) and not isinstance(depth, bool) and depth >= 0
                for depth in depths.values()
            )
            and "address" in values
        ):
            return Run(**values)
        raise self._damaged(f"runs/{name}/run.json", "it does not describe a run in this folder")

    def run(self, id_: str | None = None) -> Run:
        """Return the run with this id, or the latest run.

        Raises:
            ConfigurationError: there is no such run.
        """
        runs = self.runs()
        for run in reversed(runs):
            if id_ in (None, run.id):
                return run
        if id_ is not None and runs:
            raise ConfigurationError(
                f"the archive {self.storage.uri} has no run {id_}",
                f"It has {', '.join(run.id for run in runs)}.",
            )
        raise ConfigurationError(
            f"nothing has been drained into the archive {self.storage.uri}",
            "Check its location, or drain a failed queue first: redrive spark drain.",
        )

    def begin(
        self,
        address: str,
        depths: dict[str, int],
        exchanges: ExchangeFamily | None = None,
        dead_letter_queues: Iterable[str] = (),
    ) -> Run:
        """Begin a run that drains these queues, and return it. `exchanges` is None for redrive's
        default family; `dead_letter_queues` names the queues that are dead-letter queues."""
        run = new_run(address, depths, "", exchanges, dead_letter_queues)
        self.add(run)
        return run

    def mark(self) -> None:
        """Mark the folder as an archive, if it is new."""
        if not self._is_marked:
            self._write_json(MARK, {"format": FORMAT})
            self._is_marked = True

    def add(self, run: Run) -> None:
        """Add a run to the archive."""
        self.mark()
        # Optional fields are written only if set, so that an older redrive can read the rest.
        values = {
            name: value
            for name, value in asdict(run).items()
            if name not in ("source", "exchanges", "dead_letter_queues") or value
        }
        self._write_json(f"runs/{run.id}/run.json", values)

    def is_drained(self, run: Run) -> bool:
        """Tell whether the draining of a run has ended."""
        return self.storage.exists(f"runs/{run.id}/drained.json")

    def end_draining(self, run: Run, rows: int) -> None:
        """Record that nothing is left to drain, and how many rows were written."""
        self._write_json(
            f"runs/{run.id}/drained.json",
            {"ended_at": datetime.now(UTC).isoformat(timespec="seconds"), "rows": rows},
        )

    def rows_noted(self, run: Run) -> int | None:
        """Return the number of rows when draining ended; None if it has not ended."""
        path = f"runs/{run.id}/drained.json"
        rows = (self._json(path) or {}).get("rows")
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool)):
            raise self._damaged(path, f"rows is {rows!r:.40}")
        return rows

    def is_ended(self, run: Run) -> bool:
        """Tell whether no message of a run is left to deal with."""
        return self.storage.exists(f"runs/{run.id}/ended.json")

    def end(self, run: Run) -> None:
        """Record that no message of a run is left to deal with."""
        if not self.is_ended(run):
            self._write_json(
                f"runs/{run.id}/ended.json",
                {"ended_at": datetime.now(UTC).isoformat(timespec="seconds")},
            )

    def choice(self, run: Run) -> dict[str, str | None] | None:
        """Return what was chosen to be sent from a run; None if nothing was chosen yet."""
        path = f"runs/{run.id}/choice.json"
        choice = self._json(path)
        if choice is not None and not (
            {"where", "transform", "now"} <= choice.keys()
            and all(isinstance(value, str | None) for value in choice.values())
        ):
            raise self._damaged(path, "it does not describe a selection")
        return choice

    def choose(self, run: Run, choice: dict[str, str | None]) -> None:
        """Record what to send from a run, so that resuming it sends the same messages."""
        self._write_json(f"runs/{run.id}/choice.json", choice)

    def write_report(self, run: Run, report: dict[str, object]) -> None:
        """Store a run's report, as JSON."""
        self._write_json(f"reports/{run.id}.json", report)

    def write_page(self, run: Run, page: str) -> None:
        """Store a run's HTML report."""
        self.storage.write(f"reports/{run.id}.html", page.encode())

    def report_of(self, run: Run | str) -> str:
        """Return where the JSON report of a run is, or will be."""
        return f"{self.storage.uri}/reports/{run if isinstance(run, str) else run.id}.json"

    def page_of(self, run: Run | str) -> str:
        """Return where the HTML report of a run is, or will be."""
        return f"{self.storage.uri}/reports/{run if isinstance(run, str) else run.id}.html"

    def _json(self, path: str) -> dict[str, Any] | None:
        data = self.storage.read(path)
        if data is None:
            return None
        try:
            value = json.loads(data)
        except ValueError as error:
            raise self._damaged(path, str(error)) from error
        except RecursionError as error:
            raise self._damaged(path, "it is nested too deeply") from error
        if not isinstance(value, dict):
            raise self._damaged(path, "it is not a JSON object")
        return value

    def _damaged(self, path: str, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.storage.uri}/{path} is damaged: {why}", "Restore it, or use another archive."
        )

    def _write_json(self, path: str, value: object) -> None:
        self.storage.write(path, json.dumps(value, indent=2, ensure_ascii=False).encode())


def new_run(
    address: str,
    depths: dict[str, int],
    source: str = "",
    exchanges: ExchangeFamily | None = None,
    dead_letter_queues: Iterable[str] = (),
) -> Run:
    """Return a new run that is not in an archive yet."""
    now = datetime.now(UTC)
    return Run(
        f"{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}",
        address,
        depths,
        now.isoformat(timespec="seconds"),
        source,
        {} if exchanges is None or exchanges == ExchangeFamily() else exchanges.as_json(),
        [queue for queue in depths if queue in set(dead_letter_queues)],
    )


def messages_folder(queue: str, run: str) -> str:
    """Return the folder of a queue's messages in a run; for main and dead-letter queues alike."""
    return f"messages/queue={escaped(queue)}/run={run}"


def check_folder_name(queue: str) -> None:
    """Check that a queue's name fits into a folder name, where a character may take three bytes.

    Raises:
        ConfigurationError: the name is too long.
    """
    if len(f"queue={escaped(queue)}".encode("utf-8", "surrogateescape")) > _LONGEST_NAME:
        raise ConfigurationError(
            f"the queue name {queue!r} is too long for the name of a folder in an archive",
            "Use redrive failed requeue for this queue.",
        )


def settled_mark(run: str, session: str) -> str:
    """Return the path of the file that marks a session whose acks the broker all has."""
    return f"runs/{run}/settled/{session}"


def file_name(session: str, number: int, rows: int) -> str:
    """Return the name of a session's file; `number` counts the session's files."""
    return f"{session}-{number:06d}-{rows}.parquet"


def session_of(name: str) -> str:
    """Return the session that a file belongs to."""
    return name.rsplit("-", 2)[0]


def rows_of(name: str) -> int:
    """Return the number of rows of a file, from its name."""
    return int(name.rsplit("-", 1)[1].partition(".")[0])


def escaped(text: str) -> str:
    """Escape a value as Spark does in folder names."""
    return "".join(
        f"%{ord(character):02X}" if character in _ESCAPED else character for character in text
    )
