"""A console over a failed queue of a real broker, as a browser and as a stranger reach it."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import httpx
import pytest

from contract.plain import RawProperties, plain_channel
from contract.support import Service, retrying
from redrive import FailedQueue
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.failures.message.mask import Mask
from redrive.topology.headers import Delivery
from redrive.web.auth.access_config import AccessConfig, ListenAddress, Login
from redrive.web.console_server import ConsoleServer, opened_server
from redrive.web.console_settings import ConsoleSettings, Permit
from redrive.web.page_request import QueuePlace
from waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUEUE = "shop@orders"
LOOKUP, SLOW = 12, 5
"""How many messages have failed for each of two causes."""
TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/framework/run.py", line 10, in run
    handler(message)
  File "/srv/shop/orders.py", line 42, in price_of
    return PRICES[sku]
{error_type}: no such thing"""


@dataclass(frozen=True, slots=True)
class OpenConsole:
    """A console that answers.

    Args:
        server: it.
        client: a browser that was let in.
    """

    server: ConsoleServer
    client: httpx.Client

    @property
    def address(self) -> str:
        """Where it is."""
        return self.server.address

    def get(self, path: str, **asked: str) -> httpx.Response:
        """A page."""
        return self.client.get(f"{path}?{urlencode(asked)}" if asked else path)

    def post(self, path: str, **form: str) -> httpx.Response:
        """What a form of the console's own sends."""
        return self.client.post(path, data=form, headers={"sec-fetch-site": "same-origin"})

    def look(self, queue: str = QUEUE, **asked: str) -> None:
        """Looks at a queue, and waits for its end."""
        assert self.post("/look", queue=queue, **asked).status_code == 303
        looks = self.server.console.context.looks
        under_way = looks.look_under_way(QueuePlace(queue, "literal" in asked))
        assert under_way is not None
        wait_until(lambda: under_way.has_ended, "the look has ended")
        assert not under_way.problem


Opens = Callable[..., OpenConsole]


@pytest.fixture(scope="package")
def _chromium() -> Iterator["Browser"]:
    # Imported only now: each process of a run collects this folder, and some run no such test.
    from web.browsing import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(_chromium: "Browser") -> Iterator["Browser"]:
    """The machine's Chromium, which starts once for the tests of this folder in a process.
    While it runs, so does a loop of Playwright's, within which no other may run."""
    yield _chromium
    # A page that is left open goes on asking a console that is gone.
    for context in _chromium.contexts:
        context.close()


@pytest.fixture
def opens(
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Opens]:
    """Opens consoles of the test's virtual host, each with a browser that was let in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as held:

        def opened(
            *permits: Permit,
            hide_bodies: bool = False,
            access: AccessConfig | None = None,
            mask: Mask | None = None,
        ) -> OpenConsole:
            settings = ConsoleSettings(
                url=rabbitmq_url,
                management_url=rabbitmq_management_url,
                permits=frozenset(permits),
                hide_bodies=hide_bodies,
                access=access or AccessConfig(),
                mask=mask,
            )
            server = held.enter_context(opened_server(settings, ListenAddress("127.0.0.1", 0)))
            thread = threading.Thread(target=server.run)
            thread.start()
            held.callback(thread.join)
            held.callback(server.stop)
            held.callback(server.console.close)
            wait_until(lambda: server.is_up, "the console answers")
            client = held.enter_context(
                httpx.Client(
                    base_url=server.address,
                    trust_env=False,
                    timeout=60,
                    verify=False,  # whose certificate it is, tests of certificates look at
                    # The server hangs up after five seconds: no request is to meet that.
                    limits=httpx.Limits(keepalive_expiry=2),
                )
            )
            if settings.access.login is Login.LINK:
                assert client.get(server.new_link()).status_code == 303
            return OpenConsole(server, client)

        yield opened


@pytest.fixture
def service(rabbitmq_url: str) -> Service:
    """A service whose messages have failed for two causes."""
    service = Service(rabbitmq_url, queue=QUEUE, retry=retrying(0))
    service.declare()
    fail(
        service,
        *(failure(f"sku-{number}", "KeyError", f"'sku-{number}'") for number in range(LOOKUP)),
        *(failure(f"slow-{number}", "TimeoutError", f"after {number} s") for number in range(SLOW)),
    )
    return service


def failure(
    id_: str,
    error_type: str,
    error_message: str,
    *,
    body: bytes = b"",
    key: str = "order.paid",
    more: Mapping[str, FieldValue] | None = None,
) -> Delivery:
    """A message that has failed; its body is JSON unless one is given."""
    now = datetime.now(UTC).isoformat()
    headers: dict[str, FieldValue] = {
        "redrive-failure-id": id_,
        "x-orig-routing-key": key,
        "redrive-error-type": error_type,
        "redrive-error-message": error_message,
        "redrive-error-traceback": TRACEBACK.format(error_type=error_type),
        "redrive-reason": "retries-exhausted",
        "redrive-failed-at": now,
        "redrive-host": "worker-1",
        **(more or {}),
    }
    properties = Properties(headers=Table.of(headers), delivery_mode=2, message_id=id_)
    own = body or json.dumps({"id": id_, "lines": [{"sku": "socks", "count": 2}]}).encode()
    return Delivery(QUEUE, "master.failed", QUEUE, properties, own)


def fail(service: Service, *failures: Delivery) -> None:
    """Sets messages aside as failed."""
    report = FailedQueue(service.url, service.queue).restore(iter(failures))
    assert report.confirmed == len(failures)


def publish(service: Service, *failures: Delivery) -> None:
    """Sets messages aside as a subscriber does, by the failed exchange."""
    with plain_channel(service.url) as channel:
        for one in failures:
            properties = RawProperties(one.properties.encode())
            channel.basic_publish("master.failed", service.queue, one.body, properties)
