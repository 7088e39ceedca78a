"""Logging in, and the pages that a login brings, in a real browser."""

from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from contract.administration import Administration
from contract.support import Service
from redrive.web.auth.access_config import AccessConfig, Login
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.browsing import WAYS, Visit
from web.conftest import QUEUE, OpenConsole, Opens

PASSWORD = "s3cret & more"


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console that everybody has to log in to."""
    return opens(Permit.DISCARD, access=AccessConfig(login=Login.BROKER))


@pytest.mark.nightly("the walk has the other screens")
def test_the_login_and_the_pages_of_a_user_break_no_rule(
    browser: Browser,
    console: OpenConsole,
    rabbitmq_url: str,
    rabbitmq_management_url: str,
) -> None:
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    user = administration.unique("operator")
    with administration.user(
        user, configure="^redrive", write="^$", password=PASSWORD, tags="management"
    ):
        context = browser.new_context(base_url=console.address)
        page = context.new_page()
        page.set_default_timeout(60_000)
        seen = Visit(page, urlsplit(console.address).netloc)
        page.goto("/me")
        found = {"login": seen.faults_of_the_page(*WAYS)}
        page.get_by_label("User").fill(user)
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("did not accept this user")
        found["refused"] = seen.faults_of_the_page(*WAYS)
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Me")
        page.goto(f"/causes?{urlencode({'queue': QUEUE})}")
        page.get_by_role("button", name="Scan the queue").click()
        expect(page.locator("main")).to_contain_text("in 2 causes")
        wait_until(lambda: page.goto("/") is not None, "the overview is shown")
        for path in ("/me", "/discard", "/plan", "/causes"):
            page.goto(f"{path}?{urlencode({'queue': QUEUE})}")
            seen.wait_until_asked()
            found[path] = seen.faults_of_the_page(*WAYS)
        page.get_by_role("button", name="Log out").click()
        expect(page.locator("h1")).to_have_text("redrive")
        page.goto("/journal")
        expect(page.get_by_label("Password")).to_be_visible()
    assert {name: faults for name, faults in found.items() if faults} == {}
    assert seen.faults == []
