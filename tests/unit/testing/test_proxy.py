"""The wire that is broken on purpose."""

import gc
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from redrive.testing.proxy import Proxy


@pytest.fixture
def listener() -> Iterator[str]:
    """The URL of somebody who takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"amqp://guest:guest@127.0.0.1:{listening.getsockname()[1]}/"


def connect(proxy: Proxy) -> socket.socket:
    """A connection to the proxy that it may not have noticed yet."""
    return socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0))


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_one_that_is_closed_while_somebody_connects_leaves_no_socket_open(
    listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: left.append(str(found.exc_value)))
    for _ in range(30):
        with ExitStack() as clients, Proxy(listener) as proxy:
            for _ in range(5):
                clients.enter_context(connect(proxy))
    del proxy
    gc.collect()
    assert left == []


def test_who_is_cut_off_hears_of_it(listener: str) -> None:
    with Proxy(listener) as proxy, connect(proxy) as client:
        while not proxy.connections:
            pass
        proxy.cut()
        client.settimeout(60)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert proxy.connections == 0


def test_who_is_refused_gets_no_connection_until_it_accepts_again(listener: str) -> None:
    with Proxy(listener) as proxy:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        proxy.accept()
        with connect(proxy):
            pass
