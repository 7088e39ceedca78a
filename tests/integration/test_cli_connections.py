"""How many connections a command opens: each costs several round trips, and over TLS to another
continent seconds."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cli_canary import QUEUE, Incident

from cli_support import redrive
from redrive.testing import Proxy


class CountingProxy(Proxy):
    """A proxy that counts the connections that were ever made through it."""

    made = 0

    async def _connect(self, client: socket.socket) -> None:
        self.made += 1
        await super()._connect(client)


@pytest.fixture
def proxy(
    rabbitmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CountingProxy]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("REDRIVE_INDEX", raising=False)
    Incident(rabbitmq_url).fill(range(4))
    with CountingProxy(rabbitmq_url) as proxy:
        yield proxy


def connections(proxy: CountingProxy, *command: str) -> int:
    before = proxy.made
    done = redrive(*command, url=proxy.url)
    assert done.code == 0, done.err
    return proxy.made - before


def test_a_command_opens_few_connections(proxy: CountingProxy) -> None:
    requeue = ("failed", "requeue", QUEUE, "--limit", "2", "--yes", "--reason", "mended")
    assert connections(proxy, *requeue) <= 4
    assert connections(proxy, *requeue) <= 4  # the journal's stream is there by now
    assert connections(proxy, "failed", "groups", QUEUE, "--fresh") <= 4
    assert connections(proxy, "failed", "groups", QUEUE) <= 2
    assert connections(proxy, "jobs", "list") <= 1
