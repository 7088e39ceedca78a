"""Deletes a subscription while messages that were scheduled for it are on the delay ladder.

python -m torture.orphan_program '{"name": …}' FIRST COUNT
"""

import json
import sys
from datetime import timedelta

import pika

from redrive import Publisher, Subscriber
from torture.lanes import NOBODY_WANTS_IT, ORPHANS
from torture.program import Settings

WAIT_MS = 20_000
"""Long enough that the queue is gone before they are due, on a slow machine too."""


def main() -> None:
    """Declares, publishes for later, and deletes."""
    settings = Settings.begin()
    first, count = map(int, sys.argv[2:])
    queue = f"{ORPHANS}@{first}"
    Subscriber(settings.url, queue, [f"{ORPHANS}.{first}"]).declare()
    journal = settings.journal
    with Publisher(settings.url) as publisher:
        for number in range(first, first + count):
            id_ = f"{ORPHANS}/{number}"
            journal.note("sending", id_, NOBODY_WANTS_IT, WAIT_MS)
            body = json.dumps({"id": id_, "fails": NOBODY_WANTS_IT, "wait_ms": WAIT_MS})
            publisher.publish(
                body, f"{ORPHANS}.{first}", delay=timedelta(milliseconds=WAIT_MS), timeout=60
            )
            journal.note("confirmed", id_)
    connection = pika.BlockingConnection(pika.URLParameters(settings.url))
    channel = connection.channel()
    for name in (queue, f"{queue}@retry", f"{queue}@failed"):
        channel.queue_delete(name)
    connection.close()


if __name__ == "__main__":
    main()
