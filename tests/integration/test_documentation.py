"""Every block of Python on a page, the README included, runs as it stands there.

A page's blocks are one program, in their order, and each of their lines has to run. What a page
leaves out, since its reader has it (the rows to publish, a model), is in `SETUP`, and what makes
its handlers run in `AFTERWARDS`; only the addresses of brokers are other ones. The README's first
block and the one of the page on asyncio are whole programs, and are run as such.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from effort import nightly
from page_code import PAGES, ROOT, addressed, blocks_of
from waiting import DEADLINE, wait_until

PROGRAM = Path(__file__).with_name("documentation_program.py")

WHOLE_PROGRAMS = {"README.md", "docs/asyncio.md"}
"""Pages whose first block runs until it is stopped, and is run as a program of its own below."""

OF_A_PROJECT = {"docs/testing.md": 3}
"""How many blocks of a page, from its top, are the files of a service's tests. Pytest runs them."""

ELSEWHERE = {
    "docs/recipes.md": "tests/integration/test_recipes.py runs each on a broker in memory",
    "docs/rehearsal.md": "tests/integration/test_rehearsal_page.py runs each around a handler",
    "docs/spark.md": "tests/spark/test_spark_page.py runs it, on a session of Spark",
}

SETUP = {
    "docs/apps.md": 'stop_when_ready("app")',
    "docs/asyncio.md": """
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from redrive import AsyncPublisher, AsyncSubscriber

URL = "amqp://"
subscriber = AsyncSubscriber(URL, queue="ucenter@user", routing_keys=["user.*"])

@subscriber.handler
async def on_user(user: dict) -> None: ...

stop_when_ready("app")
""",
    "docs/dead-letter-queues.md": """
import pika

_connection = pika.BlockingConnection(pika.URLParameters("amqp://"))
_channel = _connection.channel()
_channel.exchange_declare("shop", "topic")
_channel.queue_declare("orders.dlq")
_channel.queue_declare(
    "orders",
    arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"},
)
_channel.queue_bind("orders", "shop", "order.*")

def _depth(queue: str) -> int:
    return _channel.queue_declare(queue, passive=True).method.message_count

for _ in range(5):
    _channel.basic_publish("shop", "order.new", b"{}")
wait_until(lambda: _depth("orders") == 5)
for _ in range(5):
    _channel.basic_reject(_channel.basic_get("orders")[0].delivery_tag, requeue=False)
wait_until(lambda: _depth("orders.dlq") == 5)
""",
    "docs/logins.md": """
def fetch_token() -> dict:
    return {"access_token": "guest", "expires_in": 60}
""",
    "docs/failed-messages.md": """
from redrive import FailedQueue, Publisher, RetryPolicy, Subscriber

_failing = Subscriber(
    "amqp://", queue="ucenter@user", routing_keys=["user.*"], retry=RetryPolicy(max_retries=0)
)

@_failing.handler
def _fails(body: dict) -> None:
    raise KeyError("country")

_failing.declare()
_failing.start()
with Publisher("amqp://") as _publisher:
    for number in range(3):
        _publisher.publish({"id": number}, "user.create")
wait_until(lambda: FailedQueue("amqp://", "ucenter@user").depth() == 3)
_failing.stop()
_failing.wait()
""",
    "docs/triage.md": """
from redrive import FailedQueue, Publisher, RetryPolicy, Subscriber

_mended = False
_service = Subscriber(
    "amqp://", queue="ucenter@user", routing_keys=["user.*"], retry=RetryPolicy(max_retries=0)
)

@_service.handler
def _handles(body: dict) -> None:
    if not _mended:
        raise KeyError("country")

_service.declare()
_service.start()
with Publisher("amqp://") as _publisher:
    for number in range(30):
        _publisher.publish({"id": number}, "user.create")
wait_until(lambda: FailedQueue("amqp://", "ucenter@user").depth() == 30)
_mended = True
""",
    "docs/publishing.md": """
from redrive import Publisher, Subscriber

Subscriber("amqp://", queue="ucenter@user", routing_keys=["user.*"]).declare()
body, rows = {"id": 121}, [{"id": number} for number in range(3)]
""",
    "docs/subscribing.md": """
import contextlib
from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel

from redrive import Attempt, Exponential, GiveUp, Message, Publisher, RetryPolicy, Subscriber

added, captured = [], []

class Session(contextlib.nullcontext):
    def __init__(self, engine: str = "") -> None:
        super().__init__(self)

    begin = contextlib.nullcontext

    def add(self, user) -> None:
        if user.id == 0:
            raise GiveUp("nobody has this id")
        added.append(user.id)

class sentry_sdk:
    capture_exception = captured.append

engine = "a database"

class UserCreated(BaseModel):
    id: int

url = "amqp://"
order, publisher = {"id": 121}, Publisher(url)
stop_when_ready("subscriber")
""",
    "docs/ordered.md": """
from redrive import Exponential, RetryPolicy, Subscriber

url = "amqp://"
""",
    "docs/waiting.md": """
from datetime import UTC, datetime, timedelta

from redrive import (
    DISCARD, NO_RETRY, ErrorRule, ExchangeFamily, Exponential, InvalidMessage, Linear, Publisher,
    RetryPolicy, Subscriber,
)

class ValidationFailed(Exception): ...
class Stale(Exception): ...
class HTTPError(Exception): ...

url = "amqp://"
reminder, publisher = {"id": 121}, Publisher(url)
""",
    "docs/testing.md": """
from redrive import Publisher

rabbitmq_url = "amqp://"

def start_my_service(url: str) -> Publisher:
    return Publisher(url)
""",
}
"""What the reader of a page has already; each broker's address is the test's."""

AFTERWARDS = {
    "docs/apps.md": """
import asyncio

with MemoryBroker() as broker, app.override(broker.url), app:
    app.publisher.publish({"id": 121}, "order.new")
    broker.until_idle()

async def serves() -> None:
    async with lifespan(web):
        assert service.ready

asyncio.run(serves())
""",
    "docs/dead-letter-queues.md": """
wait_until(lambda: (_depth("orders"), _depth("orders.dlq")) == (5, 0))
_connection.close()
""",
    "docs/asyncio.md": """
async def serves() -> None:
    app = FastAPI()
    async with lifespan(app):
        await app.state.publisher.publish({"id": 121}, "user.create", mandatory=True)

asyncio.run(serves())

from redrive.testing import MemoryBroker

async def handles() -> None:
    with MemoryBroker() as broker:
        with app.override(broker.url):
            async with app:
                await app.publisher.publish({"id": 121}, "user.created")
                await broker.turn_async("1s")

asyncio.run(handles())
""",
    "docs/failed-messages.md": """
assert (report.requeued, report.failed) == (3, []), report
""",
    "docs/triage.md": """
_service.stop()
_service.wait()
assert (plan.count, job.state, job.record.sent) == (30, "done", 30), job
assert sum(cause.count for cause in Snapshot("incident.parquet").causes()) == 30
""",
    "docs/interop.md": """
subscriber.declare()
with publisher:
    publisher.publish({"id": 121}, "user.create", mandatory=True)
assert (java.retry, java.failed) == ("master@retry", "master@failed")
""",
    "docs/logins.md": 'assert login()[:2] == ("shop", "guest")',
    "docs/publishing.md": """
assert (report.confirmed, report.failed, report.unroutable) == (3, [], 0), report
""",
    "docs/subscribing.md": """
assert decode_csv(b"id\\n7\\n", None) == {"rows": [{"id": "7"}]}
subscriber.start()
for id in (121, 0):
    publisher.publish({"id": id}, "user.renamed")
wait_until(lambda: added and captured)
subscriber.stop()
subscriber.wait()
publisher.close()
assert (added, [str(error) for error in captured]) == ([121], ["nobody has this id"])
""",
    "docs/waiting.md": "publisher.close()",
}
"""What has a page's handlers run, and shows that its blocks did what the page says."""


class Block(NamedTuple):
    """A piece of a program."""

    label: str
    code: str
    is_to_run_whole: bool = True
    """Whether it is an error if one of its lines does not run."""


def run_blocks(
    blocks: list[Block],
    url: str,
    environment: dict[str, str],
    folder: Path | None = None,
) -> str:
    """What a program of these blocks prints, in that folder."""
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM)],
        input=json.dumps([block._replace(code=addressed(block.code, url)) for block in blocks]),
        env=environment | {"PYTHONPATH": str(ROOT / "tests")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fragments_of(page: str) -> list[Block]:
    """The blocks of a page that are neither a whole program nor a file of a project."""
    first = OF_A_PROJECT.get(page, 1 if page in WHOLE_PROGRAMS else 0)
    return [
        Block(f"{page}, block {number}", block)
        for number, block in enumerate(blocks_of(page), start=1)
        if number > first
    ]


def program_of(page: str) -> list[Block]:
    """A page's fragments, with what comes before and after them."""
    return [
        Block(f"what the reader of {page} has", SETUP.get(page, ""), False),
        *fragments_of(page),
        Block(f"after {page}", AFTERWARDS.get(page, ""), False),
    ]


def pages() -> Iterator[object]:
    """The pages whose code runs here."""
    for page in PAGES:
        if page == "docs/testing.md":
            yield nightly(page, why="it starts brokers, and a cluster of three", id=page)
        elif fragments_of(page) and page not in ELSEWHERE:
            yield page


@pytest.mark.parametrize("page", list(pages()))
def test_the_code_of_a_page_runs(
    page: str, rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path
) -> None:
    # A page that makes a broker of its own makes a private one.
    unset = ("REDRIVE_URL", "REDRIVE_MANAGEMENT_URL")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["XDG_STATE_HOME"] = str(tmp_path)
    environment["REDRIVE_TEST_MANAGEMENT_URL"] = rabbitmq_management_url
    run_blocks(program_of(page), rabbitmq_url, environment, tmp_path)


def test_the_tests_of_a_service_on_the_page_on_testing_pass(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path
) -> None:
    for block in blocks_of("docs/testing.md")[: OF_A_PROJECT["docs/testing.md"]]:
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={
            **os.environ,
            "REDRIVE_URL": rabbitmq_url,
            "REDRIVE_MANAGEMENT_URL": rabbitmq_management_url,
        },
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


class Pasted:
    """A program that runs; it has to leave in order at SIGTERM."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self._process = process
        self._said = said

    def said(self) -> list[str]:
        """The lines that it has printed so far; raises if it has ended."""
        lines = self._said.read_text(encoding="utf-8").splitlines()
        assert self._process.poll() is None, "\n".join(lines)
        return lines


@contextlib.contextmanager
def pasted(page: str, url: str, folder: Path) -> Iterator[Pasted]:
    """The first block of a page, pasted into a file and run."""
    block = addressed(blocks_of(page)[0], url)
    program, said = folder / "pasted.py", folder / "said.txt"
    program.write_text(block, encoding="utf-8")
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", str(program)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield Pasted(process, said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0, said.read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("times", [1, 2], ids=["fresh", "again"])
def test_the_readmes_first_block_handles_its_own_message(
    rabbitmq_url: str, tmp_path: Path, times: int
) -> None:
    for _ in range(times):
        with pasted("README.md", rabbitmq_url, tmp_path) as program:
            said = wait_until(program.said, "the message is handled")
        assert said == ["welcome, guanyiyao"]


def test_the_page_on_asyncio_handles_all_that_it_publishes(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    wanted = [
        'handled {"id":121,"name":"guanyiyao"}',
        *(f"handled {number}" for number in range(1000)),
    ]
    with pasted("docs/asyncio.md", rabbitmq_url, tmp_path) as program:
        wait_until(lambda: len(program.said()) >= len(wanted) + 2, "all are handled")
        confirmed, failed, *handled = program.said()

    assert (confirmed, failed) == ("confirmed 1000 not confirmed []", "failed so far 0")
    assert sorted(handled) == sorted(wanted)


# --- nothing is left out --------------------------------------------------------------------------


def test_what_is_run_elsewhere_is_on_a_page_and_run_there() -> None:
    for page, reason in ELSEWHERE.items():
        assert blocks_of(page)
        assert page in (ROOT / reason.split()[0]).read_text(encoding="utf-8")


def test_no_code_is_written_in_a_way_that_leaves_it_out() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        languages = re.findall(r"^\s*(?:`{3,}|~{3,}) *(\w+)", text, re.MULTILINE)
        assert languages.count("python") == len(blocks_of(page)), page
        assert set(languages) <= {"console", "mermaid", "python", "yaml"}, page


@pytest.mark.parametrize("page", sorted({*SETUP, *AFTERWARDS, *OF_A_PROJECT, *WHOLE_PROGRAMS}))
def test_every_page_that_is_set_up_has_code(page: str) -> None:
    assert blocks_of(page)


def test_a_line_that_never_runs_is_named(rabbitmq_url: str) -> None:
    with pytest.raises(AssertionError) as error:
        run_blocks([Block("a page, block 1", "if 0 > id(1):\n    x = 1\n")], rabbitmq_url, {})
    assert "a page, block 1, line 2: x = 1" in str(error.value)


def test_a_block_that_fails_is_named_with_its_line(rabbitmq_url: str) -> None:
    with pytest.raises(AssertionError) as error:
        run_blocks(
            [Block("a page, block 1", "x = 1\nmissing(x)\n")], rabbitmq_url, dict(os.environ)
        )
    assert 'File "a page, block 1", line 2' in str(error.value)
    assert "missing(x)" in str(error.value)
