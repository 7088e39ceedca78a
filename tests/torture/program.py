"""What every process of a torture run is told, and how each of them begins."""

import json
import logging
import os
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from torture.event_journal import EventJournal
from torture.lanes import Lane, lanes_of
from torture.plants import plant


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process is told.

    Args:
        name: its own name, and its journal's.
        folder: where journals are, and the files by which the run tells what is over.
        url: the broker's address.
        shell: `blocking` or `async`.
        plant: the bug that is in place; empty for none.
        version: the broker's, which says what lanes there are.
    """

    name: str
    folder: str
    url: str
    shell: str
    plant: str = ""
    version: str = "3.10"

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that are its own."""
        return lanes_of(self.shell, self.version)

    @property
    def journal(self) -> EventJournal:
        """Its journal, to write to."""
        return EventJournal(self.journal_path)

    @property
    def journal_path(self) -> Path:
        """Where its journal is."""
        return Path(self.folder) / f"{self.name}.journal"

    @property
    def publishing_is_over(self) -> bool:
        """Whether nothing new is to be published."""
        return publishing_is_over(Path(self.folder)).exists()

    def command(self, module: str, *arguments: str) -> list[str]:
        """The command that runs a module of this package so."""
        told = json.dumps(asdict(self))
        return [sys.executable, "-P", "-m", f"torture.{module}", told, *arguments]

    @classmethod
    def begin(cls) -> Self:
        """Returns what this process was told, and makes it one that ends with the run and has the
        planted bug."""
        settings = cls(**json.loads(sys.argv[1]))
        threading.Thread(target=_end_with_the_run, daemon=True).start()
        logging.basicConfig(
            level=logging.WARNING, format="%(asctime)s %(threadName)s %(levelname)s %(message)s"
        )
        plant(settings.plant, settings.url)
        return settings


def publishing_is_over(folder: Path) -> Path:
    """The file that is there once nothing new is to be published."""
    return folder / "publishing-is-over"


def _end_with_the_run() -> None:
    """Ends this process at once where the other end of its standard input, which is the run's, is
    gone."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)
