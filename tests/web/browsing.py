"""The machine's own Chromium, and what it says against a page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from effort import effort
from prerequisites import not_set_up, unavailable

expect.set_options(timeout=60_000)

_AXE = Path(__file__).parent / "browser" / "node_modules" / "axe-core" / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Way(NamedTuple):
    """A way to look at a page."""

    scheme: Literal["light", "dark"]
    width: int


WAYS = (Way("light", 1280), Way("dark", 320))
"""How each screen is looked at with scripts."""
OTHER_WAYS = (Way("dark", 1280), Way("light", 320))
"""How each screen is looked at without scripts."""


def ways_for(*, scripts: bool) -> tuple[Way, ...]:
    """The ways to look at a screen with or without scripts: each colour scheme with each width, and
    each of both with and without scripts; all of them in a nightly run."""
    pair, others = (WAYS, OTHER_WAYS) if scripts else (OTHER_WAYS, WAYS)
    return effort(pair, nightly=(*pair, *others))


class Visit:
    """A browser's visit to a console: its pages, and all that went wrong on them.

    Args:
        page: the browser's page.
        host: the host and port that alone may be asked.
        twin: a page on which axe is asked, where this one runs no scripts, axe's included.
    """

    def __init__(self, page: Page, host: str, twin: Page | None = None) -> None:
        self.page = page
        self._host = host
        self._judged = twin or page
        self.faults: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        # A page that says that something can't be done has such a status; that is no fault of it.
        if message.type in ("error", "warning") and "status of 4" not in message.text:
            self.faults.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).netloc != self._host:
            self.faults.append(f"asked {request.url}")

    def faults_of_the_page(self, *ways: Way) -> list[str]:
        """What axe has against the page that is shown, and whether it has to be moved sideways, in
        each of these ways to look at it."""
        found = []
        for way in ways:
            for page in {self.page, self._judged}:
                page.emulate_media(color_scheme=way.scheme)
                page.set_viewport_size({"width": way.width, "height": 900})
            faults = self.violations()
            if self.is_wider_than_the_screen():
                faults.append("wider than the screen")
            found += [f"{way.scheme}, {way.width} pixels: {fault}" for fault in faults]
        return found

    def violations(self) -> list[str]:
        """What axe has against the page that is shown: rules, and where they are broken."""
        if self._judged is not self.page and self._judged.url != self.page.url:
            self._judged.goto(self.page.url)
        if self._judged.evaluate("typeof axe") == "undefined":
            self._judged.evaluate(_AXE.read_text(encoding="utf-8"))
        found = self._judged.evaluate(
            "rules => axe.run(document, {runOnly: rules}).then(result => result.violations.map("
            "one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.target).join(' | ')}`))",
            _RULES,
        )
        return [str(one) for one in found]

    def is_wider_than_the_screen(self) -> bool:
        """Whether the page has to be moved sideways to be read."""
        return bool(
            self.page.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
        )

    def wait_until_asked(self) -> None:
        """Waits until all that the page asks for is there."""
        self.page.wait_for_load_state("networkidle")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's Chromium. Nothing is downloaded."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        unavailable("chromium")
    if not _AXE.exists():
        not_set_up("axe-core")
    with sync_playwright() as playwright:
        # As root it has no sandbox of its own; what it shows is this test's alone.
        sandboxed = os.geteuid() != 0
        browser = playwright.chromium.launch(
            executable_path=program,
            chromium_sandbox=sandboxed,
            args=["--disable-gpu"],
            timeout=120_000,
        )
        try:
            yield browser
        finally:
            browser.close()
