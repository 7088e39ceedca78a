"""Five tasks of somebody on call, done in Chromium on a console: what is clicked, what is typed,
and how long the console lets them wait.

The seconds are those from the first click to the last answer, without the time in which a person
reads and types.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, expect, sync_playwright

from benchmarks.triage import QUEUE, failures_of
from redrive import FailedQueue, Subscriber

COUNT = 2000
"""How many messages have failed."""
_CUSTOMER = 1234
COLUMNS = "| task | clicks | fields typed | seconds |\n| --- | ---: | ---: | ---: |"
expect.set_options(timeout=60_000)


@dataclass
class Hand:
    """Somebody's hand on a page, which counts what it does."""

    page: Page
    clicks: int = 0
    fields: int = 0

    def click(self, what: Locator) -> None:
        """Clicks it."""
        what.click()
        self.clicks += 1

    def write(self, field: str, text: str, *, enter: bool = False) -> None:
        """Types into a field, and presses Enter."""
        found = self.page.get_by_label(field, exact=True)
        found.fill(text)
        self.fields += 1
        if enter:
            found.press("Enter")


def rows(url: str, link: str) -> Iterator[str]:
    """A row for each task, done on the console that a link lets in to."""
    assert FailedQueue(url, QUEUE).restore(failures_of(COUNT)).confirmed == COUNT
    subscriber = Subscriber(url, QUEUE, ["order.*"])
    subscriber.handler(lambda message: None)
    subscriber.start()
    try:
        with _page(link) as page:
            page.goto(f"/causes?{urlencode({'queue': QUEUE})}")
            page.get_by_role("button", name="Scan the queue").click()
            expect(page.locator("a.title").first).to_be_visible()
            page.goto("/")
            while not page.locator("a.title").count():  # until the broker has counted them
                page.reload()
            for name, start, task in TASKS:
                page.goto(start)
                hand = Hand(page)
                began = time.perf_counter()
                task(hand)
                taken = time.perf_counter() - began
                yield f"| {name} | {hand.clicks} | {hand.fields} | {taken:.1f} |"
    finally:
        subscriber.stop()
        subscriber.wait()


def _newest_cause(hand: Hand) -> None:
    hand.click(hand.page.locator("a.title").first)
    expect(hand.page.get_by_role("link", name="Plan a requeue")).to_be_visible()


def _requeue(hand: Hand) -> None:
    _newest_cause(hand)
    hand.click(hand.page.get_by_role("link", name="Plan a requeue"))
    hand.write("Reason", "fixed in 2.3.1")
    hand.click(hand.page.get_by_role("button", name="Start the canary"))
    expect(hand.page.locator("main:not(:has([data-progress])) h1")).to_contain_text("done")


def _results(hand: Hand) -> None:
    hand.click(hand.page.get_by_role("link", name="Journal"))
    hand.click(hand.page.locator("a.title").first)
    expect(hand.page.locator(".sum")).to_contain_text("Succeeded")


def _discard(hand: Hand) -> None:
    page = hand.page
    _newest_cause(hand)
    count = page.locator(".lead strong").inner_text().split()[0]
    hand.click(page.get_by_role("link", name="Discard"))
    hand.write("Reason", "sent by mistake")
    hand.write(f"Type {count.replace(',', '')} to confirm", count.replace(",", ""))
    hand.click(page.get_by_role("button", name="Discard"))
    hand.click(page.get_by_role("link", name="Restore these messages"))
    hand.write("Reason", "they were right")
    hand.click(page.get_by_role("button", name="Restore"))
    expect(page.locator("main")).to_contain_text(f"{count} of {count} messages")


def _one_customer(hand: Hand) -> None:
    hand.click(hand.page.get_by_role("link", name=QUEUE).last)
    hand.write("Filter", f"body->>'$.id' = '{_CUSTOMER}'", enter=True)
    hand.click(hand.page.get_by_role("link", name="example"))
    expect(hand.page.locator("main")).to_contain_text(str(_CUSTOMER))


TASKS: tuple[tuple[str, str, Callable[[Hand], None]], ...] = (
    ("find the newest cause", "/", _newest_cause),
    ("find one customer's message", "/", _one_customer),
    ("requeue one cause behind a canary", "/", _requeue),
    ("see what became of it", "/", _results),
    ("discard a cause with a file, and restore it", "/", _discard),
)


@contextmanager
def _page(link: str) -> Iterator[Page]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None, "the tasks are done in Chromium"
    address = link.partition("/open")[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, chromium_sandbox=os.geteuid() != 0, args=["--disable-gpu"]
        )
        try:
            page = browser.new_context(base_url=address).new_page()
            page.set_default_timeout(60_000)
            page.goto(link)
            yield page
        finally:
            browser.close()
