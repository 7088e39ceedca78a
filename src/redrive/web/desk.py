"""What the pages of a console work with."""

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from starlette.responses import Response

from redrive.failures.look import Look
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.web.asked import Asked, QueuePlace
from redrive.web.board import Board, BoardLine
from redrive.web.console_settings import ConsoleSettings
from redrive.web.html import page
from redrive.web.job_worker import JobWorker
from redrive.web.live_answers import LiveAnswers
from redrive.web.live_board import LiveBoard, LiveState
from redrive.web.recollection import LookUnderWay, Recollection


@dataclass(frozen=True, slots=True)
class Desk:
    """What the pages of a console work with.

    Args:
        settings: what the console was told.
        board: what the queues hold.
        recollection: what earlier looks tell of them.
        worker: runs jobs.
        live: what the broker tells of them just now.
        answers: what tabs that follow them are told.
    """

    settings: ConsoleSettings
    board: Board
    recollection: Recollection
    worker: JobWorker
    live: LiveBoard
    answers: LiveAnswers

    @classmethod
    def of(cls, settings: ConsoleSettings) -> "Desk":
        """A desk for a broker."""
        return cls(
            settings,
            Board(settings),
            Recollection(settings),
            JobWorker(settings),
            LiveBoard(settings),
            LiveAnswers(),
        )

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
        live: what is known of the queue just now.
    """

    place: QueuePlace
    look: Look | None
    line: BoardLine | None
    under_way: LookUnderWay | None
    live: LiveState

    @classmethod
    def of(cls, desk: Desk, place: QueuePlace, look: Look | None) -> "Freshness":
        """How much an answer is worth now."""
        line = desk.board.line(place)
        return cls.on(desk, place, look, line)

    @classmethod
    def on(
        cls, desk: Desk, place: QueuePlace, look: Look | None, line: BoardLine | None
    ) -> "Freshness":
        """The same, where it is known what the management API tells of the queue."""
        counted = None if line is None else line.failed
        live = desk.live.state(place, None if look is None else look.total, counted)
        return cls(place, look, line, desk.recollection.look_under_way(place), live)

    @property
    def now(self) -> str:
        """How the queue stands now, beside what a page shows of it."""
        return self.live.in_words


def local_path(address: str) -> str:
    """A path of this console, out of an address that a form has sent; the overview for any
    other."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not address.startswith("/") or address.startswith("//"):
        return "/"
    return address if "\\" not in address and address.isprintable() else "/"
