"""Each recipe of docs/rehearsal.md undoes the effects of handlers, and commands answer as it
says."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from page_code import programs_of
from redrive.amqp.properties import Properties
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.rehearsal.rehearsal import Handler, rehearse
from redrive.topology.headers import Delivery

PAGE = programs_of("docs/rehearsal.md")
QUEUE = "shop@orders"
SHOPS = {
    "SQLAlchemy": """
from collections.abc import Iterator
from typing import Annotated

from fast_depends import Depends
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

engine = create_engine("sqlite:///shop.db")

@event.listens_for(engine, "connect")
def begin_nothing(connection, _):
    connection.isolation_level = None

@event.listens_for(engine, "begin")
def begin(connection):
    connection.exec_driver_sql("BEGIN")

def session() -> Iterator[Session]:
    with Session(engine) as session:
        yield session

def handle(order: dict, session: Annotated[Session, Depends(session)]) -> None:
    session.execute(text("INSERT INTO orders VALUES (1)"))
    session.commit()
    assert session.execute(text("SELECT count(*) FROM orders")).scalar() == 1
""",
    "SQLAlchemy in asyncio": """
from collections.abc import AsyncIterator
from typing import Annotated

from fast_depends import Depends
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

engine = create_async_engine("sqlite+aiosqlite:///shop.db")

@event.listens_for(engine.sync_engine, "connect")
def begin_nothing(connection, _):
    connection.isolation_level = None

@event.listens_for(engine.sync_engine, "begin")
def begin(connection):
    connection.exec_driver_sql("BEGIN")

async def session() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine) as session:
        yield session

async def handle(order: dict, session: Annotated[AsyncSession, Depends(session)]) -> None:
    await session.execute(text("INSERT INTO orders VALUES (1)"))
    await session.commit()
    assert (await session.execute(text("SELECT count(*) FROM orders"))).scalar() == 1
""",
    "Django": """
from django.db import transaction

def handle(order: dict) -> None:
    assert transaction.depth == 1
""",
    "httpx": """
import respx

def handle(order: dict) -> None:
    assert respx.answers["https://billing.internal/charges"] == (201, {"id": "rehearsed"})
""",
    "boto3": """
import moto

def handle(order: dict) -> None:
    assert moto.buckets == ["invoices"]
""",
}
STAND_INS = {
    "django/__init__.py": "",
    "django/db.py": """
import contextlib

class transaction:
    depth = 0

    @classmethod
    @contextlib.contextmanager
    def atomic(cls):
        cls.depth += 1
        yield
        assert cls.is_undone

    @classmethod
    def set_rollback(cls, wanted):
        cls.is_undone = wanted
""",
    "respx.py": """
import contextlib

answers = {}

class Calls:
    def post(self, url):
        self.url = url
        return self

    def respond(self, status, json):
        answers[self.url] = (status, json)

@contextlib.contextmanager
def mock(assert_all_called):
    yield Calls()
""",
    "moto.py": """
import contextlib

buckets = []

@contextlib.contextmanager
def mock_aws():
    yield
""",
    "boto3.py": """
import moto

class client:
    def __init__(self, service, region_name): ...

    def create_bucket(self, Bucket):
        moto.buckets.append(Bucket)
""",
}
"""What stands for libraries that redrive itself is not developed with."""


def failed(body: object) -> FailedMessage:
    """A failed message."""
    return FailedMessage(Delivery(QUEUE, "", QUEUE, Properties(), json.dumps(body).encode()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a service, with a database that has an empty table."""
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(sqlite3.connect("shop.db")) as database:
        database.execute("CREATE TABLE orders (id integer)")
    for name, text in STAND_INS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("recipe", PAGE)
def test_a_recipe_runs_around_a_handler_and_undoes_what_it_did(folder: Path, recipe: str) -> None:
    (folder / "shop.py").write_text(SHOPS[recipe])
    (folder / "rehearsal.py").write_text(PAGE[recipe])
    handler = Handler("shop:handle", within="rehearsal:undone")
    found = rehearse([failed({}), failed({"id": 2})], handler, queue=QUEUE, jobs=1)
    assert [(one.error, one.traceback) for one in found.tried] == [("", "")] * 2
    with contextlib.closing(sqlite3.connect("shop.db")) as database:
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (0,)
