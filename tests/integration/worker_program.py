"""A worker as a service would start it, in a process of its own. What it did stands in a file, line
by line, whatever becomes of it.

python worker_program.py '{"url": …, "queue": …, "behaviour": …, "notes": …}'
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

from redrive import AsyncSubscriber, Attempt, Message, RetryPolicy, Subscriber

LONG = 6.0

settings = json.loads(sys.argv[1])
notes = os.open(settings["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what: str, message: Message) -> None:
    """One line, written at once: a kill can't take it back."""
    os.write(notes, f"{what} {message.message_id}\n".encode())


def note_a_signal(record: logging.LogRecord) -> bool:
    """One line once it has heard that it is to leave: a signal that comes before that may be one
    with the next."""
    if "finishing running handlers" in record.msg:
        os.write(notes, b"asked to-leave\n")
    return True


def handle(message: Message) -> None:
    """What all of them do with a message that is meant for nothing else."""


def hang(message: Message) -> None:
    """Never returns from a message that says so."""
    if message.body == b"hang":
        time.sleep(600)


def die(message: Message) -> None:
    """A message that says so takes the process with it."""
    if message.body == b"poison":
        os._exit(1)


def die_beside_others(message: Message) -> None:
    """A message that says so takes the process with it while others are under way."""
    time.sleep(seconds_beside_others(message))
    die(message)


def seconds_beside_others(message: Message) -> float:
    return 0.1 if message.body == b"poison" else 0.2


def fail_then_die(message: Message) -> None:
    """A message that says so fails twice, and takes the process with it from then on."""
    if message.body == b"poison":
        if message.retries < 2:
            raise RuntimeError("not yet")
        os._exit(1)


class Child(Exception):
    """Leads a child process out of the handler."""


def fork_and_exit(message: Message) -> None:
    """Waits for a child that exits."""
    if not (child := os.fork()):
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def fork_and_return(message: Message) -> None:
    """Waits for a child that comes back from the handler."""
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    else:
        raise Child


def take_a_moment(message: Message) -> None:
    """Takes long enough for a queue of some to be there when it is asked to leave."""
    time.sleep(0.02)


def take_long(message: Message) -> None:
    """Takes long enough to be asked to leave meanwhile."""
    time.sleep(LONG)


def fail_by_number(message: Message) -> None:
    """Every third message fails twice, and one of fifty each time; it takes long enough for a kill
    in the middle of thousands."""
    time.sleep(0.002)
    number = int(message.body)
    if number % 50 == 1 or (number % 3 == 0 and message.retries < 2):
        raise RuntimeError("not yet")


def fail_by_key(message: Message) -> None:
    """Every third message of a key fails once, and one key of fifty each time."""
    time.sleep(0.001)
    key, number = map(int, str(message.message_id).split("/"))
    if key % 50 == 1 or (number % 3 == 0 and message.retries < 1):
        raise RuntimeError("not yet")


behaviour = {
    "handle": handle,
    "hang": hang,
    "die": die,
    "die beside others": die_beside_others,
    "fail then die": fail_then_die,
    "fail by number": fail_by_number,
    "fail by key": fail_by_key,
    "fork and exit": fork_and_exit,
    "fork and return": fork_and_return,
    "take a moment": take_a_moment,
    "take long": take_long,
}[settings["behaviour"]]

options = settings.get("options", {})
arguments = {
    "url": settings["url"],
    "queue": settings["queue"],
    "routing_keys": settings.get("routing_keys", ["order.*"]),
    "retry": RetryPolicy(
        max_retries=options.pop("max_retries", 3),
        delay=timedelta(milliseconds=options.pop("delay_ms", 50)),
        max_crashes=options.pop("max_crashes", 5),
    ),
    "queue_type": settings.get("queue_type", "quorum"),
    **options,
}


def on_message(message: Message) -> None:
    """Notes what it begins and what it has done."""
    note("begun", message)
    try:
        behaviour(message)
    except Child:
        return
    note("handled", message)


async def on_message_async(message: Message) -> None:
    """The same, on an event loop: what takes long is awaited there."""
    note("begun", message)
    if behaviour is hang and message.body == b"hang":
        await asyncio.sleep(600)
    elif behaviour is take_long:
        await asyncio.sleep(LONG)
    elif behaviour is die_beside_others:
        await asyncio.sleep(seconds_beside_others(message))
        die(message)
    else:
        try:
            behaviour(message)
        except Child:
            return
    note("handled", message)


def around(attempt: Attempt) -> Iterator[None]:
    """Notes that a handler has ended, however it did."""
    try:
        yield
    finally:
        note("after", attempt.message)


async def around_async(attempt: Attempt) -> AsyncIterator[None]:
    """The same, on an event loop."""
    with contextlib.contextmanager(around)(attempt):
        yield


logger = logging.getLogger("redrive")
logger.setLevel(logging.INFO)
logger.addFilter(note_a_signal)

if settings["shell"] == "async":
    on_a_loop = AsyncSubscriber(**arguments)
    on_a_loop.handler(on_message_async)
    on_a_loop.middleware(around_async)
    asyncio.run(on_a_loop.run())
else:
    subscriber = Subscriber(**arguments)
    subscriber.handler(on_message)
    subscriber.middleware(around)
    subscriber.run()
os.write(notes, b"left in-order\n")
