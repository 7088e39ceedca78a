"""A publisher that is made at module level, in a process that forks its workers off."""

import os
import subprocess
import sys

import pytest

from contract.plain import depth
from redrive import Subscriber
from waiting import DEADLINE

QUEUE = "welcome@user"
_BLOCKING = """
from redrive import Publisher

publisher = Publisher(URL)

def publish():
    publisher.publish("hello", "user.create", mandatory=True)
"""
_ASYNCIO = """
import asyncio

from redrive import AsyncPublisher

publisher = AsyncPublisher(URL)

async def publish_and_leave():
    async with publisher:
        await publisher.publish("hello", "user.create", mandatory=True)

def publish():
    asyncio.run(publish_and_leave())
"""
_FORK = """
worker = os.fork()
if not worker:
    try:
        publish()
    except RedriveError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(worker, 0)
"""


def run(program: str, url: str) -> str:
    """What a program prints."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            (
                "import os\nfrom redrive import RedriveError\nURL = "
                f"os.environ['REDRIVE_URL']\n{program}"
            ),
        ],
        env={**os.environ, "REDRIVE_URL": url},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", [_BLOCKING, _ASYNCIO], ids=["blocking", "async"])
def test_one_that_was_not_used_yet_begins_in_each_worker(rabbitmq_url: str, shell: str) -> None:
    Subscriber(rabbitmq_url, QUEUE, ["user.*"]).declare()

    assert run(shell + _FORK + _FORK, rabbitmq_url) == ""
    assert depth(rabbitmq_url, QUEUE) == 2


def test_one_that_was_used_says_that_its_connection_stayed_with_the_parent(
    rabbitmq_url: str,
) -> None:
    Subscriber(rabbitmq_url, QUEUE, ["user.*"]).declare()
    told = run(f"{_BLOCKING}\npublish()\n{_FORK}", rabbitmq_url)

    assert told == (
        "the publisher was used before this process was forked, and its connection stayed with the "
        "parent\n"
        "Make one in each process, or use it for the first time after the fork.\n"
    )
    assert depth(rabbitmq_url, QUEUE) == 1
