"""Connections and links of the blocking shell, without a broker."""

import gc
import threading
import time
import warnings

import pytest
from pika import spec

from canned_server import START, TUNE, CannedServer, framed
from redrive import BrokerUnavailable
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


def test_a_connection_that_ends_as_soon_as_it_is_open_leaves_no_socket() -> None:
    closes = framed(spec.Connection.Close, 320, "CONNECTION_FORCED - user 'shop' is deleted", 0, 0)
    answers = (START, TUNE, framed(spec.Connection.OpenOk) + closes)
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        with (
            CannedServer(*answers, listens=True) as port,
            pytest.raises(BrokerUnavailable, match="closed it as soon as it was open"),
            connection.Connector(f"amqp://127.0.0.1:{port}", "test").blocking(),
        ):
            pass
        gc.collect()
    assert [str(one.message) for one in left_open] == []
