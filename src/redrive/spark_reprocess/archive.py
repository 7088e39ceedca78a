"""The archive: what is where in it.

    redrive-archive.json                    what this folder is
    messages/queue=<queue>/run=<run>/<session>-<n>-<rows>.parquet   what a task has drained
    runs/<run>/run.json                     from which broker and queues, and how deep they were
    runs/<run>/settled/<session>            every ack of this session is in
    runs/<run>/drained.json                 nothing is left to drain, and how many rows there are
    runs/<run>/choice.json                  what was chosen to be sent
    runs/<run>/stopped/<job>                why a job stopped
    runs/<run>/ended.json                   each message has found its place
    transformed/run=<run>/choice=<choice>/… messages as a transform made them
    ledger/run=<run>/job=<job>/…            what became of which message, see ledger.py
    reports/<run>.json, reports/<run>.html

A run is one draining of queues, and a job one sending of what a run has drained. The numbers of
rows stand in the files' names, so that how far a task is can be told by listing a folder.
"""

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from redrive.errors import ConfigurationError
from redrive.failures.archive_folder import FORMAT, MARK
from redrive.failures.failed_source import FailedSource
from redrive.spark_reprocess.storage import Storage
from redrive.topology.names import ExchangeFamily

_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
"""Source: `ExternalCatalogUtils.escapePathName` of Spark 4.3."""
_LONGEST_NAME = 255
"""Bytes of a name in a file system. Source: NAME_MAX of Linux."""
_NO_TEXTS = {"depths", "exchanges", "dead_letter_queues"}
"""What of a run's values are no texts."""


@dataclass(frozen=True, slots=True)
class Run:
    """A draining of queues.

    Args:
        id: its name, which sorts by the time it began.
        address: the broker's address, without the password.
        depths: how many messages were in the failed queue of each queue when it began.
        began_at: when, ISO 8601 UTC.
        source: the snapshot that the messages were copied from; empty for failed queues.
        exchanges: the exchange family, as JSON values; empty for redrive's default.
        dead_letter_queues: those of the queues that are no subscriptions, but dead-letter queues
            which redrive did not make.
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
            ConfigurationError: what was stored is no family.
        """
        return ExchangeFamily.from_json(self.exchanges) if self.exchanges else ExchangeFamily()

    @property
    def queues(self) -> list[str]:
        """The main queues whose failed queues are drained, and the dead-letter queues."""
        return list(self.depths)

    @property
    def sources(self) -> list[FailedSource]:
        """The queues that are drained."""
        return [
            FailedSource(queue)
            if queue in self.dead_letter_queues
            else FailedSource.of_subscription(queue)
            for queue in self.depths
        ]

    @property
    def main_queues(self) -> list[str]:
        """The main queues of the subscriptions among them."""
        return [queue for queue in self.depths if queue not in self.dead_letter_queues]


class Archive:
    """An archive at a path or a URI.

    Args:
        place: where.

    Raises:
        ConfigurationError: there is something else, an archive of a newer redrive, or a link out of
            it.
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
                f"{self.storage.uri} is no archive of redrive, and not empty",
                "Give the archive's folder, or a new one.",
            )

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever put into it."""
        return not self._is_marked

    def runs(self) -> list[Run]:
        """The runs, the oldest first.

        Raises:
            ConfigurationError: one of them is damaged.
        """
        found = [
            (name, self._json(f"runs/{name}/run.json"))
            for name in self.storage.names("runs", folders=True)
            if _RUN.fullmatch(name)
        ]
        return [self._run(name, values) for name, values in found if values is not None]

    def _run(self, name: str, values: dict[str, Any]) -> Run:
        """A run as its folder has it. Its id is the name of that folder and nothing else: paths are
        made of it."""
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
        raise self._damaged(f"runs/{name}/run.json", "it is no run of this folder")

    def run(self, id_: str | None = None) -> Run:
        """The run of this name, or the latest.

        Raises:
            ConfigurationError: there is none.
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
            f"there is nothing drained in the archive {self.storage.uri}",
            "Check its place, or drain a failed queue first: redrive spark drain.",
        )

    def begin(
        self,
        address: str,
        depths: dict[str, int],
        exchanges: ExchangeFamily | None = None,
        dead_letter_queues: Iterable[str] = (),
    ) -> Run:
        """Begin a run of the queues of an exchange family; None for redrive's default. Those that
        are dead-letter queues are named."""
        run = new_run(address, depths, "", exchanges, dead_letter_queues)
        self.add(run)
        return run

    def add(self, run: Run) -> None:
        """Adds a run."""
        if not self._is_marked:
            self._write_json(MARK, {"format": FORMAT})
            self._is_marked = True
        # Written only where it is so: an older redrive reads the others.
        values = {
            name: value
            for name, value in asdict(run).items()
            if name not in ("source", "exchanges", "dead_letter_queues") or value
        }
        self._write_json(f"runs/{run.id}/run.json", values)

    def is_drained(self, run: Run) -> bool:
        """Whether a run's draining came to its end."""
        return self.storage.exists(f"runs/{run.id}/drained.json")

    def end_draining(self, run: Run, rows: int) -> None:
        """Notes that nothing is left to drain, and how many rows were written."""
        self._write_json(
            f"runs/{run.id}/drained.json",
            {"ended_at": datetime.now(UTC).isoformat(timespec="seconds"), "rows": rows},
        )

    def rows_noted(self, run: Run) -> int | None:
        """How many rows a run had when its draining ended; None where it has not."""
        path = f"runs/{run.id}/drained.json"
        rows = (self._json(path) or {}).get("rows")
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool)):
            raise self._damaged(path, f"rows is {rows!r:.40}")
        return rows

    def is_ended(self, run: Run) -> bool:
        """Whether each of a run's messages has found its place."""
        return self.storage.exists(f"runs/{run.id}/ended.json")

    def end(self, run: Run) -> None:
        """Notes that each of a run's messages has found its place."""
        if not self.is_ended(run):
            self._write_json(
                f"runs/{run.id}/ended.json",
                {"ended_at": datetime.now(UTC).isoformat(timespec="seconds")},
            )

    def choice(self, run: Run) -> dict[str, str | None] | None:
        """What was chosen to be sent of a run; None where nothing was chosen yet."""
        path = f"runs/{run.id}/choice.json"
        choice = self._json(path)
        if choice is not None and not (
            {"where", "transform", "now"} <= choice.keys()
            and all(isinstance(value, str | None) for value in choice.values())
        ):
            raise self._damaged(path, "it says nothing of what was chosen")
        return choice

    def choose(self, run: Run, choice: dict[str, str | None]) -> None:
        """Notes what is to be sent of a run, so that taking it up again means the same."""
        self._write_json(f"runs/{run.id}/choice.json", choice)

    def write_report(self, run: Run, report: dict[str, object]) -> None:
        """Keeps a run's report."""
        self._write_json(f"reports/{run.id}.json", report)

    def write_page(self, run: Run, page: str) -> None:
        """Keeps a run's page for people."""
        self.storage.write(f"reports/{run.id}.html", page.encode())

    def report_of(self, run: Run | str) -> str:
        """Where the report of a run is, or will be."""
        return f"{self.storage.uri}/reports/{run if isinstance(run, str) else run.id}.json"

    def page_of(self, run: Run | str) -> str:
        """Where the page of a run is, or will be."""
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
            raise self._damaged(path, "it is no JSON object")
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
    """Return a run that is in no archive yet."""
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
    """Where the messages of a queue's run are: a main queue, or a dead-letter queue."""
    return f"messages/queue={escaped(queue)}/run={run}"


def check_folder_name(queue: str) -> None:
    """Check that messages of a queue can have a folder: a character may take three there.

    Raises:
        ConfigurationError: its name is too long for it.
    """
    if len(f"queue={escaped(queue)}".encode("utf-8", "surrogateescape")) > _LONGEST_NAME:
        raise ConfigurationError(
            f"the queue name {queue!r} is too long for the name of a folder in an archive",
            "Use redrive failed requeue for this queue.",
        )


def settled_mark(run: str, session: str) -> str:
    """The file that says that every ack of a session is in."""
    return f"runs/{run}/settled/{session}"


def file_name(session: str, number: int, rows: int) -> str:
    """The name of a session's file."""
    return f"{session}-{number:06d}-{rows}.parquet"


def session_of(name: str) -> str:
    """The session that a file is of."""
    return name.rsplit("-", 2)[0]


def rows_of(name: str) -> int:
    """How many rows a file has, by its name."""
    return int(name.rsplit("-", 1)[1].partition(".")[0])


def escaped(text: str) -> str:
    """A value as Spark writes it into a folder's name."""
    return "".join(
        f"%{ord(character):02X}" if character in _ESCAPED else character for character in text
    )
