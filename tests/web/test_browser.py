"""The console in a real browser: what a person sees and does, with and without scripts, on a wide
screen and on a narrow one, by day and by night."""

from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from contract.support import Recorder, Service
from effort import nightly
from redrive import FailedQueue
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.browsing import Visit
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console over a queue that was looked at, with a job in its journal."""
    console = opens(Permit.REQUEUE, Permit.EDIT)
    console.look()
    return console


def visit(
    browser: Browser,
    console: OpenConsole,
    *,
    width: int = 1280,
    scripts: bool = True,
) -> Visit:
    """A browser that was let in by the link."""

    def page_of(*, runs_scripts: bool) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            java_script_enabled=runs_scripts,
            base_url=console.address,
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(console.server.new_link())
        return page

    twin = None
    if not scripts:
        # axe is a script: the page that it judges has all but the console's own.
        twin = page_of(runs_scripts=True)
        twin.route("**/console.js", lambda route: route.fulfill(body=""))
    return Visit(page_of(runs_scripts=scripts), urlsplit(console.address).netloc, twin)


def group_of(service: Service, error_type: str) -> str:
    for group in FailedQueue(service.url, QUEUE).causes(max_age="1h"):
        if getattr(group.key, "error_type", "") == error_type:
            return str(getattr(group.key, "group_id", ""))
    raise AssertionError(error_type)


def read_pages(console: OpenConsole, service: Service) -> dict[str, str]:
    """An address of each screen that reads, of one that is empty, and of those that say what is
    wrong."""
    group = group_of(service, "KeyError")
    asked = {
        "overview": ("/", {}),
        "causes": ("/causes", {"queue": QUEUE}),
        "filtered": ("/causes", {"queue": QUEUE, "where": "error_type = 'KeyError'"}),
        "nothing matches": ("/causes", {"queue": QUEUE, "where": "retries > 99"}),
        "cause": ("/cause", {"queue": QUEUE, "group": group}),
        "message": ("/message", {"queue": QUEUE, "id": "sku-1"}),
        "message in hex": ("/message", {"queue": QUEUE, "id": "sku-1", "view": "hex"}),
        "query": ("/query", {"queue": QUEUE, "sql": "select error_type, size from failed"}),
        "bad query": ("/query", {"queue": QUEUE, "sql": "select nothing from failed"}),
        "plan": ("/plan", {"queue": QUEUE, "group": group}),
        "journal": ("/journal", {}),
        "problem": ("/job", {"id": "no-such-job"}),
        "no such page": ("/nowhere", {}),
    }
    return {name: f"{path}?{urlencode(more)}" for name, (path, more) in asked.items()}


@pytest.mark.parametrize(
    "scripts",
    [pytest.param(True, id="scripts"), nightly(False, why="the same forms", id="no scripts")],
)
def test_an_incident_is_walked_from_the_open_page_to_a_canary_in_three_clicks_and_a_reason(
    browser: Browser, console: OpenConsole, service: Service, scripts: bool
) -> None:
    wait_until(lambda: "KeyError" in console.get("/").text, "the broker counts them")
    handled = Recorder(lambda message: None)
    with service.subscriber(handled):
        seen = visit(browser, console, scripts=scripts)
        page = seen.page
        page.locator("a.title", has_text="KeyError").click()
        page.get_by_role("link", name="Plan a requeue").click()
        page.get_by_label("Canary").fill("3")
        page.get_by_label("Reason").fill("fixed in 2.3.1")
        page.get_by_role("button", name="Start the canary").click()
        expect(page.locator("h1")).to_contain_text("Job")
        handled.wait_for_handled({f"sku-{number}" for number in range(LOOKUP)}, 60)
        id_ = page.url.rpartition("=")[2]
        wait_until(lambda: console.get("/progress/job", id=id_).json()["ended"], "it has ended")
        if scripts:  # the page loads itself anew once it has heard of the end
            expect(page.locator("[data-progress]")).to_have_count(0)
        else:
            page.reload()

        def all_are_told() -> bool:
            page.get_by_role("button", name="Check results").click()
            page.wait_for_load_state()
            return f"Succeeded{LOOKUP}" in str(page.locator(".sum").text_content()).replace(
                "\n", ""
            ).replace(" ", "")

        wait_until(all_are_told, "all are known to have succeeded")
    assert FailedQueue(service.url, QUEUE).depth() == SLOW
    assert seen.violations() == []
    assert seen.faults == []


def test_a_page_follows_a_job_by_itself_and_a_stop_ends_it(
    browser: Browser, console: OpenConsole, service: Service
) -> None:
    seen = visit(browser, console)
    page = seen.page
    page.goto(f"/plan?{urlencode({'queue': QUEUE})}")
    # Nobody consumes: so it waits after the first five, until it is stopped.
    form = {"Canary": "0", "Rate": "0", "Pace": "5", "Stop at": "100", "Reason": "x"}
    for label, value in form.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Start the canary").click()
    expect(page.locator('[data-value="sent"]')).not_to_have_text("0")
    assert seen.violations() == []
    page.get_by_role("button", name="Stop").click()
    # Once it has heard of the end, the page loads itself anew.
    expect(page.locator("main:not(:has([data-progress])) h1")).to_contain_text("interrupted")
    assert seen.violations() == []
    assert seen.faults == []


def test_a_page_follows_a_look_by_itself(browser: Browser, opens: Opens, service: Service) -> None:
    seen = visit(browser, opens())
    page = seen.page
    page.goto(f"/causes?{urlencode({'queue': QUEUE})}")
    page.get_by_role("button", name="Scan the queue").click()
    expect(page.locator("main")).to_contain_text("in 2 causes")
    assert seen.faults == []


def test_a_cause_is_reached_by_keys_alone(
    browser: Browser, console: OpenConsole, service: Service
) -> None:
    seen = visit(browser, console)
    page = seen.page
    page.goto(f"/causes?{urlencode({'queue': QUEUE})}")
    page.keyboard.press("/")
    expect(page.get_by_label("Filter")).to_be_focused()
    page.keyboard.type("error_type = 'KeyError'")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("in 1 cause match")
    page.wait_for_load_state()  # before it, the page's script does not hear of keys
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("KeyError")


def test_nothing_that_a_stranger_has_written_is_run(browser: Browser, console: OpenConsole) -> None:
    seen = visit(browser, console)
    for text in (
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '"><svg onload=alert(1)>',
    ):
        for path in ("/causes", "/message", "/query", "/plan"):
            seen.page.goto(
                f"{path}?{urlencode({'queue': text, 'where': text, 'id': text, 'sql': text})}"
            )
    assert seen.faults == []


def test_the_policy_forbids_a_script_that_makes_markup(
    browser: Browser, console: OpenConsole
) -> None:
    page = visit(browser, console).page
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<p>x'; return '' } catch (error) "
        "{ return error.name } }"
    )
    assert refused == "TypeError"
