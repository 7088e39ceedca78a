"""What the pages of a console work with."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

from starlette.responses import Response

from redrive.failures.filter import Filter
from redrive.failures.look import Look
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.web.asked import Asked, QueuePlace
from redrive.web.board import Board, BoardLine
from redrive.web.console_settings import ConsoleSettings
from redrive.web.filter_bar import where_of
from redrive.web.health import Health
from redrive.web.html import page
from redrive.web.job_worker import JobWorker
from redrive.web.recollection import LookUnderWay, Recollection
from redrive.web.store import Store
from redrive.web.team_memory import TeamMemory


@dataclass(frozen=True, slots=True)
class Desk:
    """What the pages of a console work with.

    Args:
        settings: what the console was told.
        board: what the queues hold.
        recollection: what earlier looks tell of them.
        worker: runs jobs.
        memory: what the journal tells of causes and jobs.
        health: what the doctor finds.
        store: copies of failed messages.
    """

    settings: ConsoleSettings
    board: Board
    recollection: Recollection
    worker: JobWorker
    memory: TeamMemory
    health: Health
    store: Store

    @classmethod
    def of(cls, settings: ConsoleSettings) -> "Desk":
        """A desk for a broker."""
        worker = JobWorker(settings)
        return cls(
            settings,
            Board(settings),
            Recollection(settings),
            worker,
            TeamMemory(worker.journal),
            Health(settings),
            Store(settings.store_folder),
        )

    def filter_of(self, asked: Asked) -> Filter:
        """Which messages a page is asked for, as the team has said what causes are.

        Raises:
            ConfigurationError: a term can't be added to its filter.
        """
        where = where_of(asked)
        return self.memory.book.resolved(replace(asked.filter, where=where or None))

    def page(
        self, name: str, asked: Asked, title: str, values: dict[str, object], status: int = 200
    ) -> Response:
        """A page of the console.

        Args:
            name: its template.
            asked: what it was asked for.
            title: its title.
            values: what stands in it.
            status: the status of HTTP.
        """
        shared = {
            "title": in_one_line(title),
            "asked": asked,
            "link": asked.link,
            "settings": self.settings,
            "broker": BrokerURL.parse(self.settings.url).address,
            "running": self.worker.running(),
            "now": datetime.now(UTC),
        }
        return page(name, {**shared, **values}, status)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How much what a page shows of a queue is worth now.

    Args:
        place: the queue.
        look: the look that answered; None where none did.
        line: what the broker tells of it now; None where it does not.
        under_way: the look that was asked for last.
    """

    place: QueuePlace
    look: Look | None
    line: BoardLine | None
    under_way: LookUnderWay | None

    @classmethod
    def of(cls, desk: Desk, place: QueuePlace, look: Look | None) -> "Freshness":
        """How much an answer is worth now."""
        return cls(place, look, desk.board.line(place), desk.recollection.look_under_way(place))

    @property
    def difference(self) -> int | None:
        """How many more messages the queue has now; None where nobody knows."""
        if self.look is None or self.line is None or self.line.failed is None:
            return None
        return self.line.failed - self.look.total


def local_path(address: str) -> str:
    """A path of this console, out of an address that a form has sent; the overview for any
    other."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not address.startswith("/") or address.startswith("//"):
        return "/"
    return address if "\\" not in address and address.isprintable() else "/"
