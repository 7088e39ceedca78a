"""Attempts to bring tags into the page of a Spark run: what a browser would make of it is looked
at."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from corpus import MARKUP, SECRETS, STEERING, Secret, steering_in
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.report_page import page_of
from redrive.spark_reprocess.run_plan import RunGroup, RunPlan

MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: Counter[tuple[str, str]] = Counter()
        self.others: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes.update((tag, name) for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)

    def error(self, message: str) -> None:
        self.others.append(message)


def page_with(text: str, *, ended: bool) -> str:
    """The page of a run in which all that strangers write is this text."""
    group = RunGroup(text, text, text, text, 3, 2, 100, MOMENT, MOMENT + timedelta(hours=1))
    plan = RunPlan(text, text, text, 3, 2, 100, 80, 60, 30, {text: 3}, [group], [(MOMENT, 3)], 60)
    identity = (
        Reconciliation(
            text,
            [text],
            {text: 3},
            3,
            1,
            0,
            0,
            2,
            1,
            3,
            0,
            0,
            refusals=[{"id": text, "error": text}],
        )
        if ended
        else None
    )
    return page_of(plan, identity)


@pytest.mark.parametrize("ended", [False, True], ids=["plan", "report"])
@pytest.mark.parametrize("payload", [*MARKUP, *STEERING.values()], ids=ascii)
def test_the_page_is_made_of_the_same_tags_whatever_it_shows(payload: str, ended: bool) -> None:
    shown, plain = Page(page_with(payload, ended=ended)), Page(page_with("plain", ended=ended))
    assert (shown.tags, shown.attributes, shown.others) == (
        plain.tags,
        plain.attributes,
        plain.others,
    )
    assert {"script", "img", "iframe", "form", "base", "link", "object", "a"}.isdisjoint(shown.tags)
    assert not any(
        name.startswith("on") or name in ("href", "src", "action") for _, name in shown.attributes
    )


@pytest.mark.parametrize("payload", [text for text in MARKUP if not steering_in(text)])
def test_a_reader_of_the_page_sees_what_was_written(payload: str) -> None:
    assert payload in Page(page_with(payload, ended=True)).text


@pytest.mark.parametrize("payload", STEERING.values(), ids=STEERING)
def test_the_page_has_nothing_that_steers_who_prints_it_to_a_terminal(payload: str) -> None:
    assert steering_in(page_with(payload, ended=True)) == set()


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.shape)
def test_the_page_shows_no_secret(secret: Secret) -> None:
    assert secret.secret not in page_with(secret.text, ended=True)
