"""A publisher of all lanes of one shell. What it could not have confirmed it publishes again; a new
life of it goes on after what its journal says.

python -m torture.publisher_program '{"name": …}'
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

from redrive import AsyncPublisher, Publisher, PublishReport, RedriveError
from torture.event_journal import Event, EventJournal
from torture.lanes import Lane, lane_of, number_of
from torture.program import Settings

_TIMEOUT = 20.0
_AFTER_AN_ERROR = 0.5


class Backlog:
    """What is to be published in one lane.

    Args:
        lane: the lane.
        settings: what the process was told.
        past: what earlier lives of it wrote down.
    """

    def __init__(self, lane: Lane, settings: Settings, past: Sequence[Event]) -> None:
        self.lane = lane
        self._settings = settings
        self._journal: EventJournal = settings.journal
        own = [event for event in past if lane_of(event.id) == lane.name]
        sent = {number_of(event.id) for event in own if event.what == "sending"}
        self._pending = sent - {number_of(event.id) for event in own if event.what == "confirmed"}
        self._next = max(sent, default=-1) + 1

    def next_batch(self) -> list[int]:
        """The numbers of what is published next: what was not confirmed, or new ones; nothing where
        all is done. They are written down."""
        if not self._pending and not self._settings.publishing_is_over:
            self._pending.update(range(self._next, self._next + self.lane.batch))
            self._next += self.lane.batch
        batch = sorted(self._pending)
        wishes = [(number, self.lane.wish_of(number)) for number in batch]
        self._journal.note_all(
            "sending",
            [(self.lane.id_of(number), wish.fails, wish.wait_ms) for number, wish in wishes],
        )
        return batch

    def settle(self, confirmed: Sequence[int]) -> float:
        """Writes down what is confirmed; returns for how many seconds to pause."""
        self._journal.note_all("confirmed", [(self.lane.id_of(n), 0, 0) for n in confirmed])
        self._pending.difference_update(confirmed)
        return _AFTER_AN_ERROR if self._pending else self.lane.pause

    def message(self, number: int) -> tuple[str, str]:
        """The body and the routing key of a message."""
        wish = self.lane.wish_of(number)
        body = {"id": self.lane.id_of(number), "fails": wish.fails, "wait_ms": wish.wait_ms}
        return json.dumps(body), self.lane.routing_key

    def delay(self, number: int) -> timedelta | None:
        """How long a message waits before anybody gets it."""
        if self.lane.way != "scheduled":
            return None
        return timedelta(milliseconds=self.lane.wish_of(number).wait_ms)

    @property
    def one_by_one(self) -> bool:
        """Whether a message is published once the one before it is confirmed."""
        return self.lane.way in {"scheduled", "ordered"}


def confirmed_of(batch: Sequence[int], report: PublishReport) -> list[int]:
    """The numbers that are confirmed."""
    for failed in report.failed[:1]:
        logging.warning("%d not confirmed: %s", len(report.failed), failed.error)
    not_confirmed = {failed.position for failed in report.failed}
    return [number for place, number in enumerate(batch) if place not in not_confirmed]


def publish_lane(publisher: Publisher, backlog: Backlog) -> None:
    """Publishes a lane until all is done."""
    while batch := backlog.next_batch():
        time.sleep(backlog.settle(_publish(publisher, backlog, batch)))


def _publish(publisher: Publisher, backlog: Backlog, batch: Sequence[int]) -> list[int]:
    confirmed: list[int] = []
    try:
        if not backlog.one_by_one:
            messages = map(backlog.message, batch)
            report = publisher.publish_many(messages, mandatory=True, timeout=_TIMEOUT)
            return confirmed_of(batch, report)
        for number in batch:
            body, key = backlog.message(number)
            publisher.publish(
                body, key, mandatory=True, delay=backlog.delay(number), timeout=_TIMEOUT
            )
            confirmed.append(number)
    except RedriveError as error:
        logging.warning("%s: %s", backlog.lane.name, error)
    return confirmed


async def publish_lane_async(publisher: AsyncPublisher, backlog: Backlog) -> None:
    """The same with asyncio."""
    while batch := backlog.next_batch():
        await asyncio.sleep(backlog.settle(await _publish_async(publisher, backlog, batch)))


async def _publish_async(
    publisher: AsyncPublisher, backlog: Backlog, batch: Sequence[int]
) -> list[int]:
    confirmed: list[int] = []
    try:
        if not backlog.one_by_one:
            messages = map(backlog.message, batch)
            report = await publisher.publish_many(messages, mandatory=True, timeout=_TIMEOUT)
            return confirmed_of(batch, report)
        for number in batch:
            body, key = backlog.message(number)
            await publisher.publish(
                body, key, mandatory=True, delay=backlog.delay(number), timeout=_TIMEOUT
            )
            confirmed.append(number)
    except RedriveError as error:
        logging.warning("%s: %s", backlog.lane.name, error)
    return confirmed


def run_blocking(settings: Settings, backlogs: Sequence[Backlog]) -> None:
    """One publisher for all lanes, each on a thread of its own."""
    with Publisher(settings.url) as publisher:
        threads = [
            threading.Thread(target=publish_lane, args=(publisher, backlog)) for backlog in backlogs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def run_asynchronously(settings: Settings, backlogs: Sequence[Backlog]) -> None:
    """One publisher for all lanes, each a task."""
    async with AsyncPublisher(settings.url) as publisher, asyncio.TaskGroup() as tasks:
        for backlog in backlogs:
            tasks.create_task(publish_lane_async(publisher, backlog))


def main() -> None:
    """Runs the publisher."""
    settings = Settings.begin()
    past: list[Event] = []
    if settings.journal_path.exists():
        past = [Event.of_line(line) for line in settings.journal_path.read_text().splitlines()]
    backlogs = [Backlog(lane, settings, past) for lane in settings.lanes]
    if settings.shell == "async":
        asyncio.run(run_asynchronously(settings, backlogs))
    else:
        run_blocking(settings, backlogs)


if __name__ == "__main__":
    main()
