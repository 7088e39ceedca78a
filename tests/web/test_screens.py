"""The screens that read, in a real browser: on wide and narrow screens, by day and by night, with
and without scripts, by keys, magnified, without motion, and in forced colours."""

import re
from datetime import datetime
from urllib.parse import urlencode, urlsplit
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

from contract.support import Service
from effort import effort, some_of
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.browsing import WAYS, Visit, ways_for
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, fail, failure
from web.test_acting import begun, wait_for_end
from web.test_browser import group_of, read_pages, visit

KILOBYTE = 1000


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console that may do everything, with something to see on each page."""
    console = opens(*Permit)
    console.look()
    said = {"group": group_of(service, "TimeoutError"), "state": "fixed", "note": "soon"}
    said |= {"kind": "state", "fixed_in": "2.3.1", "back": "/"}
    assert console.post("/remark", **said).status_code == 303
    asked = {"planned": str(LOOKUP + SLOW), "reason": "fixed"}
    assert console.post("/ask", queue=QUEUE, **asked).status_code == 303
    assert console.post("/store/copy", queue=QUEUE).status_code == 303
    store = console.server.console.context.store
    wait_until(lambda: store.work is not None and store.work.has_ended, "it is copied")
    return console


def pages_of(console: OpenConsole, service: Service) -> dict[str, str]:
    """An address of each screen that is new, or shows more than it did."""
    group = group_of(service, "KeyError")
    file = console.server.console.context.store.files()[0].name
    with console.server.console.context.worker.journal() as journal:
        waiting = journal.jobs()[0].id
    where = "retries = 0 AND host = 'worker-1'"
    asked = {
        "overview": ("/", {}),
        "causes": ("/causes", {"queue": QUEUE, "where": where}),
        "no cause in this state": ("/causes", {"queue": QUEUE, "state": "muted"}),
        "cause": ("/cause", {"queue": QUEUE, "group": group, "where": where, "by": "$.id"}),
        "cause by nothing": ("/cause", {"queue": QUEUE, "group": group, "by": "no such thing"}),
        "message": ("/message", {"queue": QUEUE, "id": "sku-3", "view": "text"}),
        "edit": ("/edit", {"queue": QUEUE, "id": "sku-3"}),
        "query": ("/query", {"queue": QUEUE, "sql": "select error_type from failed"}),
        "journal": ("/journal", {}),
        "nothing in the journal": ("/journal", {"word": "no such word"}),
        "store": ("/store", {}),
        "file": ("/store", {"name": file}),
        "expire": ("/expire", {"queue": QUEUE, "older_than": "0s"}),
        "nothing to expire": ("/expire", {"queue": QUEUE}),
        "discard": ("/discard", {"queue": QUEUE, "group": group}),
        "me": ("/me", {}),
        "waits for approval": ("/job", {"id": waiting}),
        "proof": ("/proof", {"id": waiting}),
    }
    return {name: f"{path}?{urlencode(more)}" for name, (path, more) in asked.items()}


READ = ", as it is read"


def all_pages(console: OpenConsole, service: Service) -> dict[str, str]:
    """An address of each screen, old and new."""
    pages = pages_of(console, service)
    read = read_pages(console, service)
    known = set(pages.values())
    return {
        **pages,
        **{f"{name}{READ}": address for name, address in read.items() if address not in known},
    }


SEARCHES = {
    "overview": "Find a cause or a queue",
    "causes": "Filter",
    "cause": "Filter",
    "message": "Find a message by id",
    "query": "SQL on the table failed",
    "journal": "Find",
    "store": "Find",
    "me": "Queue",
}
"""What a slash leads to, on the pages that have something to search."""
WITHOUT_A_SEARCH = ("edit", "discard", "expire", "proof")
KEYS = {
    "overview": "/ j k Enter g",
    "causes": "/ j k Enter x r g",
    "cause": "/ j k Enter x r g",
    "message": "/ n p g",
    "journal": "/ j k Enter g",
    "store": "/ j k Enter g",
    **dict.fromkeys(("query", "me", "edit", "proof"), "/ g"),
}
"""The keys that the list of keys shows on a page."""


def test_a_walk_over_all_screens_finds_nothing_wrong(
    browser: Browser, console: OpenConsole, service: Service
) -> None:
    """Each screen is loaded once, and looked at in every way that needs no other browser."""
    wait_until(lambda: "KeyError" in console.get("/").text, "the overview has the causes")
    seen = visit(browser, console)
    found = {}
    ways = ways_for(scripts=True)
    for number, (name, address) in enumerate(all_pages(console, service).items()):
        seen.page.goto(address)
        seen.wait_until_asked()
        found[name] = [
            # What a screen is besides, as it is read, is looked at in each way in turn.
            *seen.faults_of_the_page(
                *(effort(ways[number % 2 :][:1], nightly=ways) if name.endswith(READ) else ways)
            ),
            *faults_of_motion(seen.page),
            *(["moved sideways where it is magnified"] if is_wide_magnified(seen) else []),
            *([] if name.endswith(READ) else faults_of_command_line(seen.page)),
            *faults_of_keys(seen.page, name),
            *faults_of_buttons(seen.page),
        ]
    assert {name: faults for name, faults in found.items() if faults} == {}
    assert seen.faults == []


def test_without_scripts_no_screen_breaks_a_rule(
    browser: Browser, console: OpenConsole, service: Service
) -> None:
    seen = visit(browser, console, scripts=False)
    found = {}
    for name, address in some_of([*all_pages(console, service).items()]):
        seen.page.goto(address)
        found[name] = seen.faults_of_the_page(*ways_for(scripts=False))
    assert {name: faults for name, faults in found.items() if faults} == {}
    assert seen.faults == []


def is_wide_magnified(seen: Visit) -> bool:
    """Whether a page has to be moved sideways where a browser magnifies it to 200 %, and so has
    half as many pixels for it."""
    seen.page.set_viewport_size({"width": 640, "height": 900})
    return seen.is_wider_than_the_screen()


def faults_of_motion(page: Page) -> list[str]:
    """What moves for who wants no motion."""
    page.emulate_media(reduced_motion="reduce")
    moving = page.evaluate(
        "document.getAnimations().length"
        " + [...document.querySelectorAll('*')].map(one => getComputedStyle(one))"
        ".filter(style => style.transitionDuration !== '0s' || style.animationName !== 'none')"
        ".length"
    )
    page.emulate_media(reduced_motion="no-preference")
    return [f"{moving} things move"] if moving else []


def faults_of_command_line(page: Page) -> list[str]:
    """Whether a page lacks the command that shows the same."""
    command = str(page.locator(".command code").last.text_content())
    return [] if command.startswith("redrive ") else [f"its command line is {command!r}"]


def faults_of_buttons(page: Page) -> list[str]:
    """Buttons with the same words that do different things."""
    found = page.evaluate(
        """() => {
          const does = new Map();
          for (const one of document.querySelectorAll("button, a.act")) {
            const words = one.getAttribute("aria-label") ?? one.textContent.trim();
            const target = one.href ?? (one.getAttribute("formaction") ?? one.form?.action ?? "");
            does.set(words, (does.get(words) ?? new Set()).add(String(target)));
          }
          return [...does].filter(([, targets]) => targets.size > 1).map(([words]) => words);
        }"""
    )
    return [f"buttons {words!r} do different things" for words in found]


def faults_of_keys(page: Page, name: str) -> list[str]:
    """Where a slash leads to another place than it says, or the list of keys has others than those
    that do something."""
    faults = []
    if name in KEYS:
        page.keyboard.press("?")
        shown = page.locator("#keys dl > div:visible dt").all_text_contents()
        keys = " ".join(" ".join(shown).split())
        if keys != KEYS[name]:
            faults.append(f"its list of keys is {keys!r}")
        page.keyboard.press("Escape")
    if name in SEARCHES or name in WITHOUT_A_SEARCH:
        page.keyboard.press("/")
        focused = page.locator("[data-search]:focus")
        expect(focused).to_have_count(1)
        label = focused.evaluate("one => one.labels[0].textContent")
        place = (urlsplit(page.url).fragment, label)
        wanted = ("", SEARCHES[name]) if name in SEARCHES else ("search", SEARCHES["overview"])
        if place != wanted:
            faults.append(f"a slash leads to {place}")
    return faults


@pytest.mark.nightly("the walk loads the same screen")
def test_a_plan_that_warns_and_a_job_that_has_ended_break_no_rule(
    browser: Browser, opens: Opens, service: Service
) -> None:
    fail(service, failure("often", "KeyError", "'often'", more={"redrive-count": 5}))
    console = opens(Permit.REQUEUE)
    console.look()
    seen = visit(browser, console)
    seen.page.goto(f"/plan?{urlencode({'queue': QUEUE})}")
    expect(seen.page.locator("main")).to_contain_text(
        "1 message not included: requeued 5 times before"
    )
    seen.wait_until_asked()
    found = {"plan": seen.faults_of_the_page(*WAYS)}
    id_ = begun(console, planned=str(LOOKUP + SLOW), reason="fixed", canary="0", stop_at="100")
    wait_for_end(console, id_)
    seen.page.goto(f"/job?{urlencode({'id': id_})}")
    expect(seen.page.locator("h1")).to_contain_text("done")
    seen.wait_until_asked()
    found["job"] = seen.faults_of_the_page(*WAYS)
    assert {name: faults for name, faults in found.items() if faults} == {}
    assert seen.faults == []


@pytest.mark.nightly("the walk loads the same screen")
def test_a_cause_is_narrowed_down_by_clicks_alone_and_widened_again(
    browser: Browser, console: OpenConsole
) -> None:
    seen = visit(browser, console)
    page = seen.page
    page.goto(f"/causes?{urlencode({'queue': QUEUE})}")
    page.get_by_role("link", name="TimeoutError: after <n> s").click()
    expect(page.locator(".lead strong")).to_have_text(f"{SLOW} messages")
    page.locator(".chart a").first.click()
    expect(page.locator(".chips code")).to_contain_text("failed_at >=")
    page.get_by_role("link", name="worker-1").click()
    expect(page.locator(".chips li")).to_have_count(2)
    page.get_by_role("link", name=re.compile("Remove host")).click()
    page.get_by_role("link", name=re.compile("Remove .*failed_at")).click()
    expect(page.locator(".chips li")).to_have_count(0)
    expect(page.locator(".lead strong")).to_have_text(f"{SLOW} messages")
    assert seen.faults == []


@pytest.mark.nightly("the walk loads the same screen")
def test_causes_are_chosen_and_planned_by_keys_alone(
    browser: Browser, console: OpenConsole
) -> None:
    seen = visit(browser, console)
    page = seen.page
    page.goto(f"/causes?{urlencode({'queue': QUEUE})}")
    for key in ("j", "x", "j", "x", "r"):
        page.keyboard.press(key)
    expect(page.locator("h1")).to_have_text("Plan a requeue")
    expect(page.locator(".lead strong").first).to_have_text(f"{LOOKUP + SLOW} messages")
    page.go_back()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_have_attribute("open", "")


def test_a_message_is_left_for_the_next_one_by_a_key(
    browser: Browser, console: OpenConsole
) -> None:
    page = visit(browser, console).page
    page.goto(f"/message?{urlencode({'queue': QUEUE, 'id': 'sku-3'})}")
    page.keyboard.press("n")
    expect(page.locator("h1")).to_have_text("Message sku-4")
    page.wait_for_load_state()  # before it, the page's script does not hear of keys
    page.keyboard.press("p")
    expect(page.locator("h1")).to_have_text("Message sku-3")


@pytest.mark.nightly("the walk loads the same screen")
def test_an_id_is_copied_where_there_are_scripts(browser: Browser, console: OpenConsole) -> None:
    page = visit(browser, console).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/message?{urlencode({'queue': QUEUE, 'id': 'sku-3'})}")
    button = page.get_by_role("button", name="Copy the failure id")
    # It says so for two seconds, which a busy machine may not see.
    button.evaluate(
        "one => { window.said = []; new MutationObserver(() => said.push(one.textContent))"
        ".observe(one, {childList: true, characterData: true, subtree: true}) }"
    )
    button.click()
    # wait_for_function would evaluate in the page, which its policy forbids.
    wait_until(lambda: "Copied" in page.evaluate("said"), "it says so")
    assert page.evaluate("navigator.clipboard.readText()") == "sku-3"
    bare = visit(browser, console, scripts=False).page
    bare.goto(f"/message?{urlencode({'queue': QUEUE, 'id': 'sku-3'})}")
    expect(bare.get_by_role("button", name="Copy the failure id")).to_have_count(0)


@pytest.mark.nightly("the walk loads the same screen")
def test_a_body_is_edited_compared_and_not_sent(browser: Browser, console: OpenConsole) -> None:
    seen = visit(browser, console)
    page = seen.page
    page.goto(f"/edit?{urlencode({'queue': QUEUE, 'id': 'sku-3'})}")
    body = page.get_by_label("Body")
    body.fill(body.input_value().replace("socks", "shoes"))
    page.get_by_role("button", name="Preview changes").click()
    expect(page.locator("del", has_text="socks")).to_have_count(1)
    expect(page.locator("ins", has_text="shoes")).to_have_count(1)
    expect(page.get_by_label("Body")).to_have_value(re.compile("shoes"))
    assert seen.violations() == []
    assert seen.faults == []


@pytest.mark.nightly("the walk loads the same screen")
def test_in_forced_colours_bars_and_what_is_current_are_seen(
    browser: Browser, console: OpenConsole, service: Service
) -> None:
    seen = visit(browser, console)
    page = seen.page
    page.emulate_media(forced_colors="active")
    group = group_of(service, "KeyError")
    page.goto(f"/cause?{urlencode({'queue': QUEUE, 'group': group, 'where': 'retries = 0'})}")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bar = page.locator(".chart rect:not(.hit)").first
    assert bar.evaluate("one => getComputedStyle(one).fill") != paper
    mark = page.locator("mark").first
    assert mark.evaluate("one => getComputedStyle(one).textDecorationLine") == "underline"
    page.goto(f"/causes?{urlencode({'queue': QUEUE})}")
    page.keyboard.press("j")
    outline = page.locator(".current").evaluate("one => getComputedStyle(one).outlineStyle")
    assert outline == "solid"
    assert seen.violations() == []


def test_pages_are_light(browser: Browser, console: OpenConsole) -> None:
    page = visit(browser, console).page
    # What a browser fetches, as a proxy that compresses would send it.
    sizes = page.evaluate(
        """async () => {
          const size = async (path) => {
            const stream = (await fetch(path)).body.pipeThrough(new CompressionStream("gzip"));
            return (await new Response(stream).arrayBuffer()).byteLength;
          };
          return [await size("/"), await size("/static/console.js"),
            await size("/static/console.css")];
        }"""
    )
    first, script, style = (int(size) for size in sizes)
    assert script <= 25 * KILOBYTE
    assert style <= 10 * KILOBYTE
    assert first + script + style <= 60 * KILOBYTE


def test_times_are_in_the_readers_zone_and_a_visit_says_what_has_changed(
    browser: Browser, console: OpenConsole, service: Service
) -> None:
    wait_until(lambda: "KeyError" in console.get("/").text, "the overview has the causes")
    context = browser.new_context(timezone_id="Asia/Tokyo", base_url=console.address)
    page = context.new_page()
    page.goto(console.server.new_link())
    expect(page.locator("footer [data-zone]")).to_have_text("Asia/Tokyo")
    page.evaluate("localStorage.setItem('redrive-visit /', JSON.stringify({seen: 1000}))")
    page.reload()
    visit = page.locator("[data-visit]")
    expect(visit).to_contain_text("Since your last visit, 1970-01-01 09:00:01: 2 new causes")
    bar = page.locator(".chart g").last
    ticks = page.locator(".axis time")
    begin = datetime.fromisoformat(str(ticks.first.get_attribute("datetime")))
    expect(ticks.first).to_have_text(f"{begin.astimezone(ZoneInfo('Asia/Tokyo')):%H:%M}")
    expect(bar.locator("title")).to_contain_text("messages, ")
    page.locator(".chart summary").click()
    rows = page.locator(".chart tbody tr")
    expect(rows).to_have_count(24)
    numbers = [row.locator("td").all_text_contents() for row in rows.all()]
    assert [sum(map(int, some)) for some in zip(*numbers, strict=True)] == [LOOKUP, SLOW]
    page.goto(f"/cause?{urlencode({'queue': QUEUE, 'group': group_of(service, 'KeyError')})}")
    for number in (0, 2):
        page.get_by_role("checkbox").nth(number).check()
    page.get_by_role("button", name="Plan a requeue of the selected messages").click()
    expect(page.locator(".lead strong").first).to_have_text("2 messages")
