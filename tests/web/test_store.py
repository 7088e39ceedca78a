"""The store: copies of failed messages, looked into and restored; old messages moved there."""

import re
from pathlib import Path

import pytest

from contract.support import Service
from redrive import FailedQueue
from redrive.failures.jobs.journal import Journal
from redrive.failures.queue.snapshot import Snapshot
from redrive.web.console_settings import Permit
from redrive.web.store import StoreWork
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens

ALL = LOOKUP + SLOW


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    return opens(Permit.STORE)


def ended(console: OpenConsole) -> StoreWork:
    store = console.server.console.context.store
    wait_until(lambda: store.work is not None and store.work.has_ended, "the store is done")
    assert store.work is not None
    return store.work


def copied(console: OpenConsole) -> str:
    """The name of a copy of the queue."""
    assert console.post("/store/copy", queue=QUEUE).status_code == 303
    assert ended(console).problem == ""
    return console.server.console.context.store.files()[0].name


def test_a_queue_is_copied_and_keeps_its_messages(console: OpenConsole, service: Service) -> None:
    name = copied(console)
    assert name.startswith("shop_orders-")
    assert f"{ALL} messages of {QUEUE} copied to {name}" in console.get("/store").text
    assert FailedQueue(service.url, QUEUE).depth() == ALL
    folder = console.server.console.context.store.folder
    assert Snapshot(folder / name).depth() == ALL
    assert (folder / name).stat().st_mode & 0o077 == 0


def test_what_is_in_a_copy_is_shown_without_its_queue(
    console: OpenConsole, service: Service
) -> None:
    name = copied(console)
    FailedQueue(service.url, QUEUE).purge()
    text = console.get("/store", name=name).text
    assert f"<strong>{ALL} messages</strong>" in text
    assert "KeyError" in text


def test_a_copy_is_found_by_a_word_of_its_name(console: OpenConsole) -> None:
    copied(console)
    assert 'class="title"' in console.get("/store", word="ORDERS").text
    nothing = console.get("/store", word="no such").text
    assert 'class="title"' not in nothing
    assert "No copies match." in nothing


def test_a_copy_is_restored_once_and_the_journal_says_who_and_why(
    console: OpenConsole, service: Service
) -> None:
    name = copied(console)
    FailedQueue(service.url, QUEUE).purge()
    assert console.post("/store/restore", name=name, reason="a slip").status_code == 303
    assert ended(console).result == f"{ALL} of {ALL} messages of {name} restored."
    assert FailedQueue(service.url, QUEUE).depth() == ALL
    with Journal(service.url) as journal:
        (job,) = journal.jobs()
    assert (job.kind, job.reason, job.sent, job.origin) == ("restore", "a slip", ALL, "console")
    console.post("/store/restore", name=name, reason="again")
    assert f"{ALL} are in their queue already." in ended(console).result
    assert FailedQueue(service.url, QUEUE).depth() == ALL
    console.post("/store/restore", name=name, reason="again", duplicate="yes")
    ended(console)
    assert FailedQueue(service.url, QUEUE).depth() == 2 * ALL


def test_a_restore_needs_a_reason(console: OpenConsole) -> None:
    assert console.post("/store/restore", name=copied(console)).status_code == 400


@pytest.mark.parametrize(
    "name", ["../secret.parquet", "/etc/passwd", "link.parquet", "none.parquet", "..", "notes.txt"]
)
def test_nothing_outside_of_the_folder_is_read(
    console: OpenConsole, tmp_path: Path, name: str
) -> None:
    folder = console.server.console.context.store.folder
    folder.mkdir(parents=True)
    (folder.parent / "secret.parquet").write_bytes(b"x")
    (folder / "link.parquet").symlink_to(folder.parent / "secret.parquet")
    (folder / "notes.txt").write_text("x", encoding="utf-8")
    answer = console.get("/store", name=name)
    assert answer.status_code == 400
    assert console.post("/store/restore", name=name, reason="x").status_code == 400
    assert "link.parquet" not in console.get("/store").text


def test_a_file_that_is_damaged_spoils_its_own_page_alone(console: OpenConsole) -> None:
    folder = console.server.console.context.store.folder
    folder.mkdir(parents=True)
    (folder / "broken.parquet").write_bytes(b"x")
    assert console.get("/store", name="broken.parquet").status_code == 400
    assert "broken.parquet" in console.get("/store").text


def test_a_console_that_only_reads_keeps_and_restores_nothing(
    opens: Opens, service: Service
) -> None:
    console = opens()
    assert console.post("/store/copy", queue=QUEUE).status_code == 400
    assert console.post("/store/restore", name="x", reason="x").status_code == 400
    assert console.get("/store").status_code == 200


def expired(console: OpenConsole, **form: str) -> int:
    """Has all messages moved, as they stand on the page; the status of the answer."""
    page = console.get("/expire", queue=QUEUE, older_than="0s").text
    before = re.search('name="before" value="([^"]+)"', page)
    form = {"before": before[1] if before else "", "reason": "old", **form}
    answer = console.post("/expire/begin", queue=QUEUE, older_than="0s", **form)
    return answer.status_code


def test_old_messages_are_shown_first_and_then_moved_into_the_store(
    opens: Opens, service: Service
) -> None:
    console = opens(Permit.DISCARD)
    console.look()
    assert "No messages are that old" in console.get("/expire", queue=QUEUE).text
    page = console.get("/expire", queue=QUEUE, older_than="0s").text
    assert f"<strong>{ALL} messages</strong>" in page
    assert f"redrive failed expire {QUEUE} --older-than 0s" in page
    assert FailedQueue(service.url, QUEUE).depth() == ALL
    assert expired(console, typed=str(ALL - 1)) == 400
    assert expired(console, typed=str(ALL), reason="") == 400
    assert FailedQueue(service.url, QUEUE).depth() == ALL
    assert expired(console, typed=str(ALL)) == 303
    work = ended(console)
    assert work.problem == ""
    name = console.server.console.context.store.files()[0].name
    assert work.result == f"{ALL} messages of {QUEUE} moved to {name}."
    assert FailedQueue(service.url, QUEUE).depth() == 0
    assert Snapshot(console.server.console.context.store.folder / name).depth() == ALL
    with Journal(service.url) as journal:
        (job,) = journal.jobs()
    assert (job.kind, job.reason, job.sent, job.origin) == ("expire", "old", ALL, "console")


@pytest.mark.parametrize("permits", [(), (Permit.STORE,), (Permit.REQUEUE,)])
def test_a_console_that_may_not_discard_expires_nothing(
    opens: Opens, service: Service, permits: tuple[Permit, ...]
) -> None:
    console = opens(*permits)
    console.look()
    assert "can't expire messages here" in console.get(
        "/expire", queue=QUEUE, older_than="0s"
    ).text.replace("&#39;", "'")
    assert expired(console, typed=str(ALL), before="2099-01-01T00:00:00+00:00") == 400
    assert FailedQueue(service.url, QUEUE).depth() == ALL


def test_what_was_discarded_is_restored_from_the_page_of_the_job(
    opens: Opens, service: Service
) -> None:
    console = opens(Permit.DISCARD, Permit.STORE)
    console.look()
    asked = {"queue": QUEUE, "where": "error_type = 'TimeoutError'"}
    done = console.post("/discard/begin", **asked, reason="too old", typed=str(SLOW))
    assert done.status_code == 303, done.text
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP
    page = console.client.get(done.headers["location"]).text
    name = re.findall(r'href="/store\?name=([^"]+)">Restore these messages', page)[0]
    assert console.post("/store/restore", name=name, reason="they were right").status_code == 303
    assert f"{SLOW} of {SLOW} messages of {name} restored" in ended(console).result
    assert FailedQueue(service.url, QUEUE).depth() == ALL
