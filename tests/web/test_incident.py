"""The whole incident in a real browser: a service fails five thousand messages for four causes, and
one of them is mended and requeued. What the console says is what the service has counted, by id.

With REDRIVE_PICTURES set, it takes the pictures of the documentation, into the folder of that name.
"""

import linecache
import logging
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from contract.support import Recorder, Service, retrying
from redrive import FailedQueue, Message
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.web.console_settings import Permit
from redrive.web.query_page import EXAMPLE
from waiting import wait_until
from web.conftest import QUEUE, OpenConsole, Opens
from web.test_acting import sum_of

COUNT = 5000
CAUSES = {"rate": 800, "stock": 1200, "address": 1400, "gateway": 1600}
CANARY = 20
SCREENS = {
    "queue": f"/causes?{urlencode({'queue': QUEUE})}",
    "query": f"/query?{urlencode({'queue': QUEUE, 'sql': EXAMPLE})}",
    "journal": "/journal",
    "me": "/me",
}
"""The other screens of which the documentation has pictures."""
pytestmark = pytest.mark.timeout(480)


PATH, SOURCE = (
    "/srv/shop/orders.py",
    """class Unconfigured(Exception): ...
class OutOfStock(Exception): ...
class BadAddress(Exception): ...
class GatewayTimeout(Exception): ...

def ship(message):
    match message.body.decode().strip('"').partition("-")[0]:
        case "rate":
            raise Unconfigured("no rate for currency 'EUR'")
        case "stock":
            raise OutOfStock("no more socks")
        case "address":
            raise BadAddress("no such street")
    raise GatewayTimeout("no answer within 3 s")
""",
)
"""The service as it is broken, where it is installed: pictures show the path."""
linecache.cache[PATH] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), PATH)
_service: dict[str, object] = {"__name__": "shop.orders"}
exec(compile(SOURCE, PATH, "exec"), _service)
fails = cast("Callable[[Message], None]", _service["ship"])


@pytest.fixture
def incident(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> tuple[Service, dict[str, set[str]]]:
    """The service, after five thousand failures, and which ids failed for what."""
    caplog.set_level(logging.CRITICAL, logger="redrive")  # five thousand tracebacks take long
    service = Service(rabbitmq_url, queue=QUEUE, retry=retrying(0))
    service.declare()
    bodies = [f"{cause}-{n}" for cause, count in CAUSES.items() for n in range(count)]
    with service.publisher() as publisher:
        report = publisher.publish_many(((one, "order.paid") for one in bodies), mandatory=True)
    assert report.confirmed == COUNT
    failed = Recorder(fails)
    queue = FailedQueue(rabbitmq_url, QUEUE)
    with service.subscriber(failed, prefetch=200):
        wait_until(lambda: len(failed.attempts) >= COUNT, "all were tried", 240)
        # Whatever a stop finds unsettled would be tried again, by the next subscriber.
        wait_until(lambda: queue.depth() == COUNT, "all have failed")
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        left = declarer.depth(QUEUE)
    assert left is not None
    assert (left.messages, left.consumers) == (0, 0)
    ids: dict[str, set[str]] = {cause: set() for cause in CAUSES}
    for attempt in failed.attempts:
        ids[attempt.body.decode().strip('"').partition("-")[0]].add(attempt.message_id)
    return service, ids


def page_of(browser: Browser, console: OpenConsole) -> Page:
    context = browser.new_context(
        color_scheme="light",
        viewport={"width": 1280, "height": 900},
        base_url=console.address,
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(console.server.new_link())
    return page


def picture(page: Page, name: str) -> None:
    folder = os.environ.get("REDRIVE_PICTURES")
    if folder:
        page.wait_for_load_state("networkidle")
        page.screenshot(path=str(Path(folder) / f"console-{name}.png"))


def pictures_of_a_phone(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    first = page.locator(".cause").first.bounding_box()
    assert first is not None
    assert first["y"] < 844, "the first cause is on the first screen"
    picture(page, "phone")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.nightly("test_browser walks an incident each time")
def test_an_incident_from_the_open_page_to_the_proof(
    browser: Browser, opens: Opens, incident: tuple[Service, dict[str, set[str]]]
) -> None:
    service, ids = incident
    console = opens(Permit.REQUEUE)
    console.look()
    wait_until(lambda: "Unconfigured" in console.get("/").text, "the broker counts them")
    page = page_of(browser, console)
    picture(page, "overview")
    pictures_of_a_phone(page)
    broken = Recorder(fails)
    with service.subscriber(broken):
        page.locator("a.title", has_text="Unconfigured").click()
        picture(page, "cause")
        page.get_by_role("link", name="Plan a requeue").click()
        page.get_by_label("Reason").fill("rates are configured in 2.3.1")
        picture(page, "plan")
        page.get_by_role("button", name="Start the canary").click()
        expect(page.locator("h1")).to_contain_text("stopped", timeout=120_000)
        # What a subscriber has not begun when it stops would be handled by the next one.
        wait_until(lambda: FailedQueue(service.url, QUEUE).depth() == COUNT, "the canary is back")
    # No more than the canary left, and all that failed is there again.
    assert len(broken.tried) <= CANARY
    assert {attempt.body.decode().strip('"').partition("-")[0] for attempt in broken.attempts} == {
        "rate"
    }
    assert set(broken.tried) <= ids["rate"]
    sent = len(broken.tried)
    id_ = page.url.rpartition("=")[2]
    assert sum_of(console.get("/job", id=id_).text)["Not tried"] == CAUSES["rate"] - sent
    wait_until(
        lambda: sum_of(console.get("/job", id=id_).text)["Failed again"] == sent,
        "the canary is known to have failed again",
    )
    page.reload()
    picture(page, "stopped")
    mended = Recorder()
    with service.subscriber(mended):
        page.get_by_role("button", name="Resume the job").click()
        done = page.locator("main:not(:has([data-progress])) h1")
        expect(done).to_contain_text("done", timeout=120_000)
        mended.wait_for_handled(ids["rate"] - set(broken.tried))
        wait_until(
            lambda: sum_of(console.get("/job", id=id_).text)["Succeeded"] == len(mended.handled),
            "all are known to have succeeded",
        )
    page.reload()
    picture(page, "done")
    for name, path in SCREENS.items():
        page.goto(path)
        picture(page, name)
    proof = console.get("/proof", id=id_, format="json").json()
    assert set(mended.handled) <= ids["rate"]
    assert set(mended.handled.values()) == {1}
    assert proof["sum"]["succeeded"] == len(mended.handled)
    assert proof["sum"]["failed_again"] == len(broken.tried)
    assert proof["adds_up"]
    left = Counter(message.message_id for message in FailedQueue(service.url, QUEUE).browse())
    assert set(left.values()) == {1}
    assert left.keys() == set().union(*ids.values()) - mended.handled.keys()
