"""The table of `SECURITY.md`: who can do what, by the broker's rights of the documented roles."""

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika import exceptions

from contract.administration import Administration
from contract.plain import plain_channel
from contract.support import Service, retrying
from redrive import FailedQueue, RedriveError
from redrive.failures.jobs.approval import approve, ask
from redrive.failures.jobs.job_record import State
from redrive.failures.jobs.journal import Journal
from redrive.failures.queue.order import Order
from redrive.topology.doctor.permissions import VERBS, Right, granted_pattern, least_rights
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily, failed_queue

pytestmark = pytest.mark.versions("which rights the broker asks for")

MINE, OTHERS = "shop@orders", "bank@accounts"
SUBSCRIPTION = Subscription(MINE, ["order.*"])
FAMILY = ExchangeFamily()
ROLES: dict[str, list[Right]] = {
    "service": [
        *least_rights("publisher", SUBSCRIPTION),
        *least_rights("subscriber", SUBSCRIPTION),
    ],
    "declarer": list(least_rights("declarer", SUBSCRIPTION)),
    "reader": [Right("read", "queue", failed_queue(MINE))],
    "operator": list(least_rights("operator", SUBSCRIPTION)),
    "approver": list(least_rights("operator", SUBSCRIPTION)),
}


def table() -> dict[str, dict[str, bool]]:
    """What the page says: of each act, who can do it."""
    text = Path(__file__).parents[2].joinpath("SECURITY.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not re.fullmatch(r"[|-]+", line)
    ]
    roles = rows[0][1:]
    return {
        act: {role: one == "yes" for role, one in zip(roles, said, strict=True)}
        for act, *said in rows[1:]
    }


SAID = table()


class Users:
    """Users of the roles, each with an account of its own."""

    def __init__(
        self, administration: Administration, url: str, held: contextlib.ExitStack
    ) -> None:
        self._administration = administration
        self._held = held
        self.urls = {"administrator": url}

    def url(self, role: str) -> str:
        """The address of the user of a role."""
        if role not in self.urls:
            rights = ROLES[role]
            name = f"{role}-{uuid.uuid4().hex[:12]}"
            granted = {verb: granted_pattern(rights, verb) for verb in VERBS}
            self.urls[role] = self._held.enter_context(self._administration.user(name, **granted))
            for exchange in (FAMILY.failed, FAMILY.retry):
                self._administration.set_topic_permission(
                    name, exchange, write=f"^{MINE}$", read=f"^{MINE}$"
                )
        return self.urls[role]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def users(rabbitmq_management_url: str, rabbitmq_url: str) -> Iterator[Users]:
    for queue in (MINE, OTHERS):
        Service(rabbitmq_url, queue=queue, retry=retrying(1)).set_aside(2)
    with contextlib.ExitStack() as held:
        users = Users(Administration(rabbitmq_management_url, rabbitmq_url), rabbitmq_url, held)
        # A journal that is there: what is asked is who may write to it.
        asked(users, "administrator")
        yield users


def asked(users: Users, role: str) -> str:
    """The id of a job that the user of a role has asked for."""
    failed = FailedQueue(users.url(role), MINE)
    with Journal(users.url(role), Path(f"{uuid.uuid4()}.sqlite3")) as journal:
        return ask(failed, journal, Order(), list(failed.browse()), reason="fixed").id


def reads(users: Users, role: str) -> object:
    with plain_channel(users.url(role)) as channel:
        return channel.basic_get(failed_queue(MINE), auto_ack=True)[2]


def reads_others(users: Users, role: str) -> object:
    """By a queue that it may declare, bound for all, or from the queue itself."""
    found: list[object] = []
    for queue in ("redrive.watch.mine", MINE):
        with (
            contextlib.suppress(exceptions.ChannelClosedByBroker),
            plain_channel(users.url(role)) as channel,
        ):
            if queue != MINE:
                channel.queue_declare(queue, exclusive=True)
            channel.queue_bind(queue, FAMILY.failed, "#")
            found.append(queue)
    with (
        contextlib.suppress(exceptions.ChannelClosedByBroker),
        plain_channel(users.url(role)) as channel,
    ):
        found.append(channel.basic_get(failed_queue(OTHERS), auto_ack=True)[2])
    return found


def appends(users: Users, role: str) -> object:
    with plain_channel(users.url(role)) as channel:
        properties = pika.BasicProperties(message_id=str(uuid.uuid4()))  # type: ignore[no-untyped-call]
        channel.basic_publish("", "redrive.journal", json.dumps({}).encode(), properties, True)
    return True


def approves(users: Users, role: str) -> object:
    id_ = asked(users, "operator")
    with Journal(users.url(role), Path(f"{uuid.uuid4()}.sqlite3")) as journal:
        job = approve(FailedQueue(users.url(role), MINE), journal, journal.job(id_))
    return job.state is State.DONE


def requeues(users: Users, role: str) -> object:
    return FailedQueue(users.url(role), MINE).requeue(limit=1).requeued


def edits(users: Users, role: str) -> object:
    return FailedQueue(users.url(role), MINE).requeue(limit=1, edit=lambda _: b"other").requeued


def deletes(users: Users, role: str) -> object:
    for act in ("queue_purge", "queue_delete"):
        with (
            contextlib.suppress(exceptions.ChannelClosedByBroker),
            plain_channel(users.url(role)) as channel,
        ):
            getattr(channel, act)(failed_queue(MINE))
            return True
    return False


ACTS: dict[str, Callable[[Users, str], object]] = {
    "read failed messages of the queue": reads,
    "read failed messages of other queues": reads_others,
    "append to the shared journal": appends,
    "approve a job that the operator has asked for": approves,
    "requeue failed messages": requeues,
    "requeue them with edited bodies": edits,
    "delete failed messages": deletes,
}


def test_the_page_has_each_act() -> None:
    assert list(SAID) == list(ACTS)


@pytest.mark.parametrize("role", [*ROLES, "administrator"])
@pytest.mark.parametrize("act", ACTS)
def test_the_broker_lets_do_what_the_page_says(
    users: Users, act: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        can = bool(ACTS[act](users, role))
    except (RedriveError, exceptions.AMQPError):
        can = False
    assert can is SAID[act][role]
