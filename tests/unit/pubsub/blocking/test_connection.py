"""A link of the blocking shell, without a broker."""

import threading
import time

import pytest

from redrive.pubsub.blocking import connection
from unit.pubsub.fake_wire import EndListener


def test_a_link_that_is_closed_while_it_declares_ends_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CLOSING_TIME", 60.0)
    declaring, declared = threading.Event(), threading.Event()

    def declare() -> None:
        declaring.set()
        time.sleep(0.2)
        declared.set()

    listener = EndListener()
    link = connection.Link(
        connection.Connector("amqp://guest:guest@127.0.0.1:1/", "test"), listener, prepare=declare
    )
    link.start()
    assert declaring.wait(60)
    link.close()

    assert listener.has_ended.is_set()
    assert declared.is_set()


def test_a_link_does_not_wait_for_ever_for_a_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSING_TIME", 0.1)
    declaring, hangs = threading.Event(), threading.Event()

    def declare() -> None:
        declaring.set()
        hangs.wait()

    listener = EndListener()
    link = connection.Link(
        connection.Connector("amqp://guest:guest@127.0.0.1:1/", "test"), listener, prepare=declare
    )
    link.start()
    assert declaring.wait(60)
    link.close()

    assert listener.has_ended.wait(60)
    hangs.set()
