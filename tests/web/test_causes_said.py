"""What people say of causes in a console: where it stands, who sees it, and that it can be taken
back."""

import re
from pathlib import Path

import pytest

from contract.support import Service
from redrive import FailedQueue
from redrive.failures.jobs.cause_remark import CauseRemark, RemarkKind
from redrive.failures.jobs.journal import Journal
from redrive.failures.message.cause import Cause
from redrive.failures.store.filter import Filter
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, fail, failure

ALL = LOOKUP + SLOW


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console that takes remarks, over a queue that was looked at."""
    console = opens(Permit.REQUEUE, Permit.NOTE)
    console.look()
    return console


@pytest.fixture
def group_of(console: OpenConsole, service: Service) -> dict[str, str]:
    """The group id of each error."""
    groups = FailedQueue(service.url, QUEUE).causes(max_age="1h")
    return {one.key.error_type: one.key.group_id for one in groups if isinstance(one.key, Cause)}


def say(console: OpenConsole, group: str, **said: str) -> None:
    answer = console.post("/remark", group=group, back="/", **said)
    assert answer.status_code == 303, answer.text


def causes_on(text: str) -> list[tuple[int, str]]:
    """How many messages each cause on a page has, and what it is called."""
    cause = r'class="count"[^>]*>([\d,]+)<.*?class="title"[^>]*>(.*?)</a>'
    found = re.findall(cause, text, re.DOTALL)
    return [(int(count.replace(",", "")), title) for count, title in found]


def test_facets_are_counted_and_lead_to_those_that_have_a_value(
    console: OpenConsole, group_of: dict[str, str]
) -> None:
    text = console.get("/cause", queue=QUEUE, group=group_of["KeyError"], by="$.id").text
    assert "worker-1" in text
    assert "order.paid" in text
    assert "sku-3" in text
    assert "and 4 more" in text
    one = console.get(
        "/cause", queue=QUEUE, group=group_of["KeyError"], where="body->>'/id' = 'sku-3'"
    ).text
    assert "<strong>1 message</strong>" in one
    assert 'class="chips"' in one


def test_where_bodies_are_hidden_none_is_counted_by(opens: Opens, service: Service) -> None:
    console = opens(hide_bodies=True)
    console.look()
    groups = FailedQueue(service.url, QUEUE).causes("error_type = 'KeyError'", max_age="1h")
    assert isinstance(groups[0].key, Cause)
    for by in ("$.id", "body_text"):
        text = console.get("/cause", queue=QUEUE, group=groups[0].key.group_id, by=by).text
        assert "This console hides bodies" in text
        assert "$.lines" not in text


def test_a_term_is_added_by_a_form_without_knowing_the_language(
    console: OpenConsole,
) -> None:
    asked = {"queue": QUEUE, "column": "error_type", "operator": "is", "value": "KeyError"}
    assert f"{LOOKUP} messages in 1 cause match" in console.get("/causes", **asked).text


def test_a_cause_that_was_muted_is_not_shown_unless_asked_for(
    console: OpenConsole, group_of: dict[str, str]
) -> None:
    say(console, group_of["TimeoutError"], kind="state", state="muted", note="the bank is slow")
    text = console.get("/causes", queue=QUEUE).text
    assert [count for count, _ in causes_on(text)] == [LOOKUP]
    assert "1 muted cause is not shown" in text
    muted = console.get("/causes", queue=QUEUE, state="muted").text
    assert [count for count, _ in causes_on(muted)] == [SLOW]
    assert "the bank is slow" in muted


def test_a_fixed_cause_that_fails_again_says_so(
    console: OpenConsole, group_of: dict[str, str], service: Service
) -> None:
    say(console, group_of["KeyError"], kind="state", state="fixed", fixed_in="2.3.1")
    text = console.get("/cause", queue=QUEUE, group=group_of["KeyError"]).text
    assert "fixed in 2.3.1" in text
    fail(service, failure("late", "KeyError", "'late'"))
    console.look()
    text = console.get("/cause", queue=QUEUE, group=group_of["KeyError"]).text
    assert "failing again, fixed in 2.3.1" in text


def test_what_is_said_is_seen_by_whoever_opens_the_journal(
    console: OpenConsole, group_of: dict[str, str], service: Service, tmp_path: Path
) -> None:
    say(console, group_of["KeyError"], kind="state", state="known", note="see #12")
    with Journal(service.url, path=tmp_path / "another.sqlite3") as journal:
        (remark,) = journal.causes().remarks
    assert (remark.group, remark.note, remark.user) == (group_of["KeyError"], "see #12", "guest")


def test_merged_causes_are_one_on_every_page_and_in_a_plan_until_it_is_taken_back(
    console: OpenConsole, group_of: dict[str, str], service: Service
) -> None:
    key, slow = group_of["KeyError"], group_of["TimeoutError"]
    say(console, slow, kind="merge", into=key)
    assert causes_on(console.get("/causes", queue=QUEUE).text)[0][0] == ALL
    assert f"<strong>{ALL} messages</strong>" in console.get("/cause", queue=QUEUE, group=key).text
    assert f"{ALL} messages" in console.get("/plan", queue=QUEUE, group=slow).text
    (remark,) = console.server.console.context.journal_cache.book.remarks
    say(console, key, kind="undo", remark=remark.id)
    assert len(causes_on(console.get("/causes", queue=QUEUE).text)) == 2


def test_several_causes_are_planned_together(
    console: OpenConsole, group_of: dict[str, str]
) -> None:
    query = f"queue={QUEUE.replace('@', '%40')}" + "".join(
        f"&group={one}" for one in group_of.values()
    )
    assert f"<strong>{ALL} messages</strong>" in console.client.get(f"/plan?{query}").text


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "state", "state": "failing again"},
        {"kind": "split", "where": "host = 'b'", "name": "x"},
        {"kind": "merge", "into": "x"},
        {"kind": "else"},
        {"kind": "undo", "remark": "none"},
    ],
)
def test_what_can_not_be_said_is_refused_and_stands_nowhere(
    console: OpenConsole, group_of: dict[str, str], said: dict[str, str]
) -> None:
    assert console.post("/remark", group=group_of["KeyError"], **said).status_code == 400
    assert console.server.console.context.journal_cache.book.remarks == []


def test_a_console_that_only_reads_takes_no_remark(
    opens: Opens, service: Service, group_of: dict[str, str]
) -> None:
    console = opens()
    answer = console.post("/remark", group=group_of["KeyError"], kind="state", state="known")
    assert answer.status_code == 400
    assert "--allow note" in answer.text


def test_the_split_of_an_older_version_changes_no_page_and_is_told_of(
    console: OpenConsole, group_of: dict[str, str], service: Service
) -> None:
    key = group_of["KeyError"]
    before = causes_on(console.get("/causes", queue=QUEUE).text)
    where = "false), false) OR coalesce((true"
    with Journal(service.url) as journal:
        journal.remark(CauseRemark(RemarkKind.SPLIT, key, where=where, name="all"))
    console.server.console.context.journal_cache.forget()
    assert causes_on(console.get("/causes", queue=QUEUE).text) == before
    page = console.get("/cause", queue=QUEUE, group=key).text
    assert f"<strong>{LOOKUP} messages</strong>" in page
    assert "no longer supported" in page


def test_jobs_of_a_cause_and_other_queues_that_have_it_are_named(
    console: OpenConsole, group_of: dict[str, str], service: Service
) -> None:
    key = group_of["KeyError"]
    with Journal(service.url) as journal:
        FailedQueue(service.url, QUEUE).requeue(
            Filter("failure_id = 'sku-1'", groups=(key,)), reason="a try", journal=journal
        )
    console.look()
    console.server.console.context.journal_cache.forget()
    wait_until(
        lambda: "a try" in console.get("/cause", queue=QUEUE, group=key).text, "the job is named"
    )
