"""The documented roles, with the real commands: exactly the rights of a role suffice for all that
it is said to do."""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import Outcome, declare, redrive
from contract.administration import Administration
from contract.plain import wait_for_consumers
from redrive import FailedQueue, Message, PermissionDenied, Publisher, RetryPolicy, Subscriber
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.topology.doctor.permissions import VERBS, Right, Role, granted_pattern, least_rights
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from waiting import wait_until

pytestmark = pytest.mark.versions("which rights the broker asks for")

QUEUE = "ucenter@user"
NOWHERE = "http://127.0.0.1:9"
"""No management API: what a role does, it does over AMQP alone."""


@contextlib.contextmanager
def user_with(administration: Administration, roles: Sequence[Role]) -> Iterator[str]:
    """The address of a user with exactly the rights of these roles, and of failures and retries
    with those of this queue alone."""
    rights: list[Right] = [
        right for role in roles for right in least_rights(role, Subscription(QUEUE, ["user.*"]))
    ]
    granted = {verb: granted_pattern(rights, verb) for verb in VERBS}
    name = f"role-{uuid.uuid4().hex[:12]}"
    with administration.user(name, **granted) as url:
        for exchange in ("master.failed", "master.retry"):
            administration.set_topic_permission(
                name, exchange, write=f"^{QUEUE}$", read=f"^{QUEUE}$"
            )
        yield url


@pytest.fixture
def administration(rabbitmq_management_url: str, rabbitmq_url: str) -> Administration:
    """The broker's management API."""
    declare(rabbitmq_url, QUEUE)
    return Administration(rabbitmq_management_url, rabbitmq_url)


@pytest.fixture
def operator(administration: Administration) -> Iterator[str]:
    """The address of an operator."""
    with user_with(administration, ["operator"]) as url:
        yield url


def set_aside(url: str, count: int) -> None:
    """Puts numbered messages into the failed queue."""
    FailedQueue(url, QUEUE).restore(
        Delivery(
            QUEUE,
            "master.failed",
            QUEUE,
            Properties(headers=Table.of({"redrive-failure-id": str(n)}), delivery_mode=2),
            str(n).encode(),
        )
        for n in range(count)
    )


@contextlib.contextmanager
def a_worker(url: str, *, fails: bool = False, **options: object) -> Iterator[None]:
    """A worker that handles all, or fails at all."""
    subscriber = Subscriber(
        url,
        QUEUE,
        ["user.*"],
        retry=RetryPolicy(0, timedelta(milliseconds=200)),
        **options,  # type: ignore[arg-type]
    )

    @subscriber.handler
    def handle(message: Message) -> None:
        if fails:
            raise ValueError("still no plan")

    subscriber.start()
    try:
        wait_for_consumers(url, QUEUE)
        yield
    finally:
        subscriber.stop()
        subscriber.wait()


def done(*arguments: str, url: str) -> Outcome:
    """A command that must succeed."""
    outcome = redrive(*arguments, url=url)
    assert outcome.code == 0, (arguments, outcome.out, outcome.err)
    return outcome


def test_an_operator_sees_how_much_is_in_the_queues(operator: str, rabbitmq_url: str) -> None:
    set_aside(rabbitmq_url, 3)
    (found,) = done("status", QUEUE, "--output", "json", url=operator).json()
    assert {place: found[place]["messages"] for place in ("main", "retry", "failed")} == {
        "main": 0,
        "retry": 0,
        "failed": 3,
    }
    assert QUEUE in done("status", QUEUE, url=operator).out


@pytest.mark.parametrize(
    "command",
    [
        ("failed", "list", QUEUE),
        ("failed", "groups", QUEUE),
        ("failed", "show", QUEUE, "1"),
        ("failed", "query", QUEUE, "select count(*) from failed"),
    ],
    ids=lambda command: command[1],
)
def test_an_operator_looks_at_failed_messages(
    operator: str, rabbitmq_url: str, command: tuple[str, ...]
) -> None:
    set_aside(rabbitmq_url, 3)
    done(*command, "--management-url", NOWHERE, url=operator)
    assert FailedQueue(rabbitmq_url, QUEUE).depth() == 3


def test_an_operator_copies_discards_and_restores_them(
    operator: str, rabbitmq_url: str, tmp_path: Path
) -> None:
    set_aside(rabbitmq_url, 3)
    done(
        "failed",
        "snapshot",
        QUEUE,
        "-o",
        str(tmp_path / "copy.jsonl"),
        "--management-url",
        NOWHERE,
        url=operator,
    )
    gone = str(tmp_path / "gone.jsonl")
    done("failed", "discard", QUEUE, "-o", gone, "--yes", "--management-url", NOWHERE, url=operator)
    assert FailedQueue(rabbitmq_url, QUEUE).depth() == 0
    done("failed", "restore", gone, "--yes", url=operator)
    assert FailedQueue(rabbitmq_url, QUEUE).depth() == 3
    done("failed", "purge", QUEUE, "--yes", url=operator)
    assert FailedQueue(rabbitmq_url, QUEUE).depth() == 0


def test_an_operator_sends_them_back_and_sees_what_became_of_them(
    operator: str, administration: Administration, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url, 5)
    sent = done(
        "failed",
        "requeue",
        QUEUE,
        "--yes",
        "--management-url",
        NOWHERE,
        "--output",
        "json",
        url=operator,
    ).json()
    with a_worker(rabbitmq_url):
        wait_until(
            lambda: (
                done("jobs", "show", sent["job"], "--output", "json", url=operator).json()[
                    "handled"
                ]
                == 5
            ),
            "all five are told of",
        )


def test_an_operator_sends_them_back_behind_a_canary(operator: str, rabbitmq_url: str) -> None:
    set_aside(rabbitmq_url, 5)
    with a_worker(rabbitmq_url):
        done(
            "failed",
            "requeue",
            QUEUE,
            "--yes",
            "--canary",
            "2",
            "--watch",
            "30s",
            "--management-url",
            NOWHERE,
            url=operator,
        )
    assert FailedQueue(rabbitmq_url, QUEUE).depth() == 0


def test_an_operator_has_it_stopped_where_too_many_fail_again(
    operator: str, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url, 200)
    with a_worker(rabbitmq_url, fails=True):
        stopped = redrive(
            "failed",
            "requeue",
            QUEUE,
            "--yes",
            "--stop-at",
            "5%",
            "--rate",
            "10/s",
            "--management-url",
            NOWHERE,
            url=operator,
        )
    assert stopped.code == 1, (stopped.out, stopped.err)
    assert "failed again" in stopped.out + stopped.err


@pytest.mark.parametrize("role", ["publisher", "subscriber", "delayer", "declarer", "operator"])
def test_the_doctor_finds_nothing_that_a_user_with_the_rights_of_a_role_lacks(
    administration: Administration, role: Role
) -> None:
    with user_with(administration, [role]) as url:
        assert (
            "No problem found"
            in done("doctor", QUEUE, "--role", role, "--management-url", NOWHERE, url=url).out
        )


def test_the_doctor_finds_what_an_operator_of_an_older_grant_lacks(
    administration: Administration,
) -> None:
    with administration.user(
        f"role-{uuid.uuid4().hex[:12]}",
        configure=f"^{QUEUE}@failed$",
        write=rf"^(amq\.default|{QUEUE})$",
        read=f"^{QUEUE}@failed$",
    ) as url:
        found = redrive(
            "doctor",
            QUEUE,
            "--role",
            "operator",
            "--management-url",
            NOWHERE,
            "--output",
            "json",
            url=url,
        )
    (finding,) = found.json()["findings"]
    assert "can't be an operator of it" in finding["problem"]
    for right in (
        "configure exchange master.events",
        r"configure queue redrive\.watch\..+",
        "read exchange master.failed",
    ):
        assert right in finding["problem"]


def test_a_publisher_publishes_and_with_the_ladder_there_a_delayer_delays(
    administration: Administration, rabbitmq_url: str
) -> None:
    delay = timedelta(hours=1)
    with Publisher(rabbitmq_url) as publisher:
        publisher.publish("{}", "user.remind", delay=delay)
    with user_with(administration, ["publisher"]) as url, Publisher(url) as publisher:
        done("publish", "user.create", "{}", url=url)
        with pytest.raises(PermissionDenied, match="the role delayer"):
            publisher.publish("{}", "user.remind", delay=delay)
    with user_with(administration, ["publisher", "delayer"]) as url, Publisher(url) as publisher:
        publisher.publish("{}", "user.remind", delay=delay, mandatory=True)


def test_a_declarer_declares(administration: Administration) -> None:
    with user_with(administration, ["declarer"]) as url:
        done(
            "declare",
            "--queue",
            QUEUE,
            "--routing-key",
            "user.*",
            "--retry-delay",
            "200ms",
            url=url,
        )


def test_a_subscriber_handles_and_sets_aside(
    administration: Administration, rabbitmq_url: str
) -> None:
    with user_with(administration, ["subscriber"]) as url, a_worker(url, fails=True, declare=False):
        done("publish", "user.create", "{}", url=rabbitmq_url)
        wait_until(lambda: FailedQueue(rabbitmq_url, QUEUE).depth() == 1, "it is set aside")
