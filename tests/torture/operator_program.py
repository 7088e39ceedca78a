"""An operator of one shell, who requeues what is to be requeued, again and again.

python -m torture.operator_program '{"name": …}'
"""

import asyncio
import json
import logging
import time

from redrive import AsyncFailedQueue, FailedMessage, FailedQueue, RedriveError, RequeueReport
from torture.event_journal import EventJournal
from torture.lanes import UNTIL_REQUEUED
from torture.program import Settings

_PAUSE = 2.0


class Choice:
    """The filter of a requeue, which writes down what it chooses."""

    def __init__(self, journal: EventJournal) -> None:
        self._journal = journal

    def __call__(self, message: FailedMessage) -> bool:
        body = json.loads(message.body)
        if body["fails"] != UNTIL_REQUEUED:
            return False
        self._journal.note("requeueing", body["id"])
        return True


def requeue_once(settings: Settings, queue: str) -> None:
    """Requeues what is there and chosen."""
    choice = Choice(settings.journal)
    try:
        if settings.shell == "async":
            report: RequeueReport = asyncio.run(
                AsyncFailedQueue(settings.url, queue).requeue(choice)
            )
        else:
            report = FailedQueue(settings.url, queue).requeue(choice)
    except RedriveError as error:
        logging.warning("%s: %s", queue, error)
    else:
        if report.possible_duplicates or report.failed:
            logging.warning("%s: %s", queue, report)


def main() -> None:
    """Runs the operator."""
    settings = Settings.begin()
    (lane,) = (lane for lane in settings.lanes if lane.way == "requeue")
    while True:
        requeue_once(settings, lane.name)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
