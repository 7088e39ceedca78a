"""What strangers write into messages stays text on every page."""

import html
from html.parser import HTMLParser
from itertools import product

import pytest

from contract.support import Service
from corpus import MARKUP, STEERING
from effort import effort
from redrive import FailedQueue
from redrive.failures.message.cause import Cause
from redrive.web.console_settings import Permit
from web.conftest import QUEUE, OpenConsole, Opens, fail, failure

TEXTS = (*MARKUP, *STEERING.values(), "javascript:alert(1)", "{{ 7 * 7 }}", "{% raw %}", "\\")
_TAGS = (
    "html head meta title link script body a header nav p span aside main footer kbd h1 "
    "h2 div form input button label section ol ul li svg rect table thead tbody tr th td "
    "time code pre details summary dl dt dd strong small mark ins del textarea select option "
    "datalist g path figure figcaption"
)
TAGS = frozenset(_TAGS.split())
_ATTRIBUTES = (
    "lang charset name content rel href type src defer class id aria-label aria- "
    "labelledby aria-current aria-describedby tabindex role method action value required "
    "autocomplete placeholder spellcheck data-search data-row data-progress data-value "
    "datetime title scope viewbox width height x y for list rows inputmode maxlength "
    "formmethod formaction formnovalidate selected data-copy data-plan data-choice "
    "preserveaspectratio rel checked open hidden data-live data-live-from data-causes data-news "
    "data-many data-copied data-select data-needs data-zone data-tick data-visit data-report "
    "property d"
)
ATTRIBUTES = frozenset(_ATTRIBUTES.split())
_ADDRESSES = ("href", "src", "action", "formaction", "data-progress", "data-live-from")


class Strict(HTMLParser):
    """Reads a page as a browser does, and notes what the console's own templates have not."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.foreign.append(tag)
        for name, value in attributes:
            is_address = name in _ADDRESSES
            if name not in ATTRIBUTES or (is_address and not str(value).startswith(("/", "#main"))):
                self.foreign.append(f"{tag} {name}={value}")

    def handle_comment(self, data: str) -> None:
        self.foreign.append(f"<!--{data}")


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console over a queue whose messages hold a hostile text wherever there is room for one."""
    fail(
        service,
        *(
            failure(
                f"hostile-{number}",
                text,
                text,
                body=text.encode("utf-8", "surrogatepass"),
                key=text[:60].replace("\0", ""),
                more={
                    "redrive-error-traceback": text,
                    "redrive-host": text,
                    "redrive-reason": text,
                    "redrive-job": text,
                    "other": text,
                },
            )
            for number, text in enumerate(TEXTS)
        ),
    )
    console = opens(*Permit)
    console.look()
    return console


def assert_only_text(page: str) -> None:
    strict = Strict()
    strict.feed(page)
    strict.close()
    assert strict.foreign == []
    # One that is not closed is none for this parser, and hides the rest of a page in a browser.
    assert "<!--" not in page
    # What would steer a screen reader or turn the text around is written as an escape.
    assert not set(page) & set("\x00\x1b\x07\u202e\u2066\u2067\u200b\u2028")


def test_the_causes_are_text(console: OpenConsole) -> None:
    assert_only_text(console.get("/causes", queue=QUEUE).text)


def test_the_overview_is_text(console: OpenConsole) -> None:
    assert_only_text(console.get("/").text)


def test_each_message_is_text_however_its_body_is_viewed(console: OpenConsole) -> None:
    for number in range(len(TEXTS)):
        for view in ("text", "hex"):
            answer = console.get("/message", queue=QUEUE, id=f"hostile-{number}", view=view)
            assert answer.status_code == 200
            assert_only_text(answer.text)


def test_the_answer_to_a_query_is_text(console: OpenConsole) -> None:
    sql = "select error_type, headers, body_text, routing_key from failed"
    assert_only_text(console.get("/query", queue=QUEUE, sql=sql).text)


@pytest.mark.nightly("the other pages are tried each time")
def test_a_cause_is_text_with_whatever_it_is_counted_by(console: OpenConsole) -> None:
    groups = FailedQueue(console.server.console.context.settings.url, QUEUE).causes(max_age="1h")
    assert len(groups) > len(MARKUP)
    for group in groups:
        assert isinstance(group.key, Cause)
        answer = console.get("/cause", queue=QUEUE, group=group.key.group_id, by="header:other")
        assert answer.status_code == 200
        assert_only_text(answer.text)


@pytest.mark.nightly("the other pages are tried each time")
def test_a_body_that_is_edited_is_text(console: OpenConsole) -> None:
    for number, text in enumerate(TEXTS):
        asked = {"queue": QUEUE, "id": f"hostile-{number}"}
        assert_only_text(console.get("/edit", **asked).text)
        for path in ("/edit/compare", "/edit/send"):
            answer = console.post(path, **asked, body=text[::-1], reason=text)
            assert answer.status_code < 500
            assert_only_text(answer.text)


def test_what_is_said_of_a_cause_is_text(console: OpenConsole) -> None:
    groups = FailedQueue(console.server.console.context.settings.url, QUEUE).causes(max_age="1h")
    for text, group in zip(TEXTS, groups, strict=False):
        assert isinstance(group.key, Cause)
        said = {"group": group.key.group_id, "words": text, "note": text, "fixed_in": text[:60]}
        answer = console.post("/remark", kind="state", state="fixed", back=text, **said)
        assert answer.status_code in (303, 400)
        if answer.status_code == 303:
            assert answer.headers["location"].startswith("/")
    for path in ("/causes", "/", "/journal"):
        assert_only_text(console.get(path, queue=QUEUE).text)


def test_a_plan_is_text(console: OpenConsole) -> None:
    assert_only_text(console.get("/plan", queue=QUEUE).text)


PAGES = (
    "/causes",
    "/cause",
    "/message",
    "/edit",
    "/query",
    "/plan",
    "/journal",
    "/job",
    "/store",
    "/me",
    "/",
    "/job/messages",
)


def test_what_an_address_says_is_text_on_the_page_that_it_leads_to(console: OpenConsole) -> None:
    # Each text on some page, and each page with some texts; every one on every page at night.
    pairs = [*product(PAGES, TEXTS)][:: effort(7, nightly=1)]
    assert {path for path, _ in pairs} == set(PAGES)
    assert {text for _, text in pairs} == set(TEXTS)
    for path, text in pairs:
        asked = {"queue": QUEUE, "where": text, "group": text, "id": text, "sql": text}
        more = {"by": text, "column": text, "value": text, "name": text, "state": text}
        answer = console.get(path, **asked, **more, word=text, view=text, reason=text, canary=text)
        assert answer.status_code < 500
        assert_only_text(answer.text)


def test_a_queue_name_of_a_stranger_is_text(console: OpenConsole) -> None:
    for text in TEXTS:
        answer = console.get("/causes", queue=text)
        assert answer.status_code < 500
        assert_only_text(answer.text)


def test_the_corpus_is_there_and_only_escaped(console: OpenConsole) -> None:
    page = console.get("/message", queue=QUEUE, id="hostile-0", view="text").text
    assert MARKUP[0] not in page
    assert html.escape(MARKUP[0]) in page


def test_a_page_that_does_not_escape_would_be_found() -> None:
    for text in (
        "<img src=x onerror=alert(1)>",
        "<p onclick=x>",
        "<a href='javascript:x'>",
        "<!--",
    ):
        with pytest.raises(AssertionError):
            assert_only_text(f"<p>{text}</p>")
