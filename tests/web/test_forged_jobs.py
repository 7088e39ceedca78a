"""What stands in the journal, and a console that is asked to carry it out: whoever may write there
can't have it send what nobody has seen, nor what it is not allowed to do."""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest

from cli_support import redrive
from contract.administration import Administration
from contract.plain import drain, plain_channel
from redrive import ExchangeFamily, FailedQueue
from redrive.failures.jobs.approval import ask
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal import Journal
from redrive.failures.jobs.journal_entry import JobStep, JournalEntry
from redrive.failures.message.mask import Mask
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import plan_of
from redrive.failures.store.filter import Filter
from redrive.pubsub.url import BrokerURL
from redrive.web.console_settings import Permit
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens
from web.test_acting import wait_for_end

pytestmark = pytest.mark.usefixtures("service")

ALL = LOOKUP + SLOW
PATCH = '{"price": "of-the-attacker"}'
FORGED_ORDERS = [
    Order(patch=PATCH),
    Order(function="http.server:test"),
    Order(edits={"a" * 64: "e30="}),
]


@pytest.fixture
def mallory(rabbitmq_url: str, rabbitmq_management_url: str) -> Iterator[str]:
    """The broker's address for somebody else who may write to the journal."""
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    with administration.user(administration.unique("mallory")) as address:
        yield address


def append(url: str, step: JobStep, record: JobRecord, *, vouched: bool = True) -> None:
    """Has somebody write an entry to the journal."""
    body = JournalEntry(step, record.id, record.who, run=record.run, record=record).encode()
    with plain_channel(url) as channel:
        properties = pika.BasicProperties(  # type: ignore[no-untyped-call]
            message_id=json.loads(body)["id"],
            user_id=BrokerURL.parse(url).username if vouched else None,
        )
        channel.basic_publish("", "redrive.journal", body, properties, mandatory=True)


def interrupted(url: str, order: Order) -> JobRecord:
    """A job that somebody has made up, as if it had been interrupted."""
    with Journal(url, Path(f"{uuid.uuid4()}.sqlite3")) as journal:
        journal.ask(asked_record(url, Order()))  # which declares the stream
    record = replace(asked_record(url, order), state=State.INTERRUPTED)
    append(url, JobStep.ENDED, record)
    return record


def asked_record(url: str, order: Order) -> JobRecord:
    return JobRecord(
        str(uuid.uuid4()),
        "requeue",
        QUEUE,
        BrokerURL.parse(url).address,
        order.as_json(),
        who="ops@desk",
        reason="nightly",
        planned=ALL,
        exchanges=ExchangeFamily().as_json(),
    )


def asked_for(url: str, order: Order, path: Path) -> JobRecord:
    """A job that somebody asks approval for."""
    failed = FailedQueue(url, QUEUE)
    with Journal(url, path) as journal:
        return ask(failed, journal, order, list(failed.browse()), reason="one cause")


def digest_on(console: OpenConsole, id_: str) -> str:
    """The digest in the form of a job's page."""
    found = re.search(r'name="digest" value="(\w+)"', console.get("/job", id=id_).text)
    assert found is not None
    return found[1]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("order", FORGED_ORDERS, ids=["patch", "function", "edits"])
def test_a_console_that_may_not_edit_carries_out_no_order_that_changes_bodies(
    opens: Opens, rabbitmq_url: str, mallory: str, order: Order
) -> None:
    console = opens(Permit.REQUEUE)
    job = interrupted(mallory, order)
    page = console.get("/job", id=job.id).text
    assert "http.server:test" in page or "of-the-attacker" in page or "edited aaaaaaaaaaaa" in page
    assert 'action="/resume"' not in page
    assert console.post("/resume", id=job.id).status_code == 400
    assert drain(rabbitmq_url, QUEUE) == []


def test_a_console_that_may_edit_runs_no_function_either(
    opens: Opens, rabbitmq_url: str, mallory: str
) -> None:
    console = opens(Permit.REQUEUE, Permit.EDIT)
    job = interrupted(mallory, Order(function="http.server:test"))
    refused = console.post("/resume", id=job.id)
    assert (refused.status_code, "the console does not run functions" in refused.text) == (
        400,
        True,
    )
    assert console.server.console.context.worker.process is None
    run = redrive("jobs", "run", job.id, "--digest", job.digest, "--yes", url=rabbitmq_url)
    assert (run.code, "Run it with redrive jobs resume" in run.err) == (2, True)
    assert drain(rabbitmq_url, QUEUE) == []


@pytest.mark.parametrize(
    ("order", "hidden"),
    [
        (FORGED_ORDERS[0], {"hide_bodies": True}),
        (FORGED_ORDERS[2], {"hide_bodies": True}),
        (FORGED_ORDERS[2], {"mask": Mask.of(["$.price"])}),
    ],
    ids=["patch, hidden", "edits, hidden", "edits, masked"],
)
def test_what_a_console_can_not_show_it_does_not_send(
    opens: Opens, rabbitmq_url: str, mallory: str, order: Order, hidden: dict[str, Any]
) -> None:
    console = opens(Permit.REQUEUE, Permit.EDIT, **hidden)
    job = interrupted(mallory, order)
    page = console.get("/job", id=job.id).text
    assert "hidden by this console" in page
    assert "of-the-attacker" not in page
    assert console.post("/resume", id=job.id).status_code == 400
    assert drain(rabbitmq_url, QUEUE) == []


def test_a_page_shows_all_of_an_order_that_waits(
    opens: Opens, mallory: str, tmp_path: Path
) -> None:
    console = opens(Permit.REQUEUE, Permit.EDIT)
    order = Order(Filter("error_type = 'KeyError'"), rate=5.0, patch=PATCH, force=True)
    page = console.get("/job", id=asked_for(mallory, order, tmp_path / "m.sqlite3").id).text
    for shown in ("error_type = &#39;KeyError&#39;", "5/s", "of-the-attacker", "--force"):
        assert shown in page


@pytest.mark.parametrize(
    ("step", "vouched"), [(JobStep.TAKEN_UP, True), (JobStep.ASKED, False)], ids=str
)
def test_what_is_approved_is_what_the_page_has_shown(
    opens: Opens, rabbitmq_url: str, mallory: str, tmp_path: Path, step: JobStep, vouched: bool
) -> None:
    console = opens(Permit.REQUEUE, Permit.EDIT)
    asked = asked_for(mallory, Order(Filter("error_type = 'KeyError'")), tmp_path / "m.sqlite3")
    digest = digest_on(console, asked.id)
    order = Order(patch=PATCH)
    plan = plan_of(order, list(FailedQueue(mallory, QUEUE).browse()), with_fingerprint=True)
    other = replace(
        asked,
        order=replace(order, limit=plan.count).as_json(),
        planned=plan.count,
        plan=plan.noted(),
        who="carol@desk",
    )
    append(mallory, step, other, vouched=vouched)
    assert console.post("/approve", id=asked.id, digest=digest).status_code == 303
    wait_for_end(console, asked.id)
    sent = [body for _, body in drain(rabbitmq_url, QUEUE)]
    assert len(sent) == LOOKUP
    assert not any(b"attacker" in body for body in sent)


def test_what_the_page_has_not_shown_is_not_approved(
    opens: Opens, rabbitmq_url: str, mallory: str, tmp_path: Path
) -> None:
    console = opens(Permit.REQUEUE)
    asked = asked_for(mallory, Order(), tmp_path / "m.sqlite3")
    for digest in ("", "a" * 32):
        refused = console.post("/approve", id=asked.id, digest=digest)
        assert (refused.status_code, "is not what was shown" in refused.text) == (400, True)
    assert drain(rabbitmq_url, QUEUE) == []


def test_who_asks_by_their_own_word_is_approved_by_nobody_and_the_page_says_why(
    opens: Opens, rabbitmq_url: str, tmp_path: Path
) -> None:
    console = opens(Permit.REQUEUE)
    own = asked_for(rabbitmq_url, Order(), tmp_path / "m.sqlite3")
    forged = replace(own, id=str(uuid.uuid4()), who="bob@desk", user="")
    append(rabbitmq_url, JobStep.ASKED, forged, vouched=False)
    page = console.get("/job", id=forged.id).text
    assert "the broker does not vouch for" in page
    assert "Approve and start" not in page
    refused = console.post("/approve", id=forged.id, digest=forged.digest)
    assert (refused.status_code, "does not vouch for" in refused.text) == (400, True)
    assert drain(rabbitmq_url, QUEUE) == []


def test_a_job_that_nobody_runs_hinders_nobody_once_it_is_forgotten(
    opens: Opens, rabbitmq_url: str, mallory: str
) -> None:
    console = opens(Permit.REQUEUE)
    console.look()
    with Journal(mallory, Path("m.sqlite3")) as journal:
        journal.ask(asked_record(mallory, Order()))  # which declares the stream
    running = replace(asked_record(mallory, Order()), state=State.RUNNING, who="ops@not-there")
    append(mallory, JobStep.BEGUN, running)
    form = {"planned": str(ALL), "reason": "fixed", "canary": "0", "queue": QUEUE}
    refused = console.post("/begin", **form)
    assert (refused.status_code, f"redrive jobs forget {running.id}" in refused.text) == (400, True)
    assert redrive("jobs", "resume", running.id, "--yes", url=rabbitmq_url).code == 2
    done = redrive("jobs", "forget", running.id, "--reason", "no such machine", url=rabbitmq_url)
    assert (done.code, "is forgotten" in done.out) == (0, True), done
    assert redrive("jobs", "resume", running.id, "--yes", url=rabbitmq_url).code == 2
    begun = console.post("/begin", **form)
    assert begun.status_code == 303, begun.text
    wait_for_end(console, begun.headers["location"].rpartition("=")[2])
    assert len(drain(rabbitmq_url, QUEUE)) == ALL
