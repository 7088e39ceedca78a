"""What the command line tells of a subscription whose failed messages RabbitMQ 4.3 itself holds
back, and that an older broker is told apart."""

import json
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import Outcome, give_the_management_api_time, redrive, running
from contract.administration import Administration
from contract.support import OutOfStock, Recorder, Service, always_fails, retrying
from redrive import Message
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.delay_policy import Policy
from waiting import wait_until

pytestmark = pytest.mark.versions("delayed retries, new in 4.3")

QUEUE = "shop@orders"
DECLARE = ("declare", "--queue", QUEUE, "--routing-key", "order.*", "--retry-via", "broker")


def holds_back(url: str) -> bool:
    """Whether this broker holds failed messages back by itself; else `declare` refuses."""
    with declaring(Connector(url, "test")) as declarer:
        if declarer.version.holds_failed_messages_back:
            return True
    done = redrive(*DECLARE, url=url)
    assert (done.code, "needs RabbitMQ 4.3 or newer" in done.err) == (2, True), done
    return False


def test_declare_makes_two_queues_and_finds_them_again(rabbitmq_url: str) -> None:
    if not holds_back(rabbitmq_url):
        return
    first = redrive(*DECLARE, "--retry-delay", "10s", "--output", "json", url=rabbitmq_url)
    again = redrive(*DECLARE, "--retry-delay", "10s", url=rabbitmq_url)
    other = redrive(*DECLARE, "--retry-delay", "20s", url=rabbitmq_url)

    made = [one["name"] for one in json.loads(first.out)["objects"] if one["kind"] == "queue"]
    assert made == ["shop@orders", "shop@orders@failed"]
    assert again.code == 0, again.err
    assert other.code == 1
    assert "x-delayed-retry-m" in other.err


def test_what_is_held_back_is_shown_wherever_depths_are(
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not holds_back(rabbitmq_url):
        return
    give_the_management_api_time(monkeypatch)
    management = ("--management-url", rabbitmq_management_url)
    service = Service(rabbitmq_url, queue=QUEUE, retry=retrying(3, timedelta(minutes=10)))
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry_via="broker"):
        service.publish_numbered(4)
        handler.wait_for_attempts(4)

    def status() -> dict[str, object]:
        done = redrive("status", QUEUE, "--output", "json", *management, url=rabbitmq_url)
        assert done.code == 0, done
        (found,) = json.loads(done.out)
        return dict(found)

    wait_until(lambda: status()["held_back"] == 4, "status counts what is held back")
    assert status()["retry"] is None
    table = redrive("status", QUEUE, *management, url=rabbitmq_url)
    assert "4 failed messages of shop@orders are held back in the main queue" in table.out
    top = redrive("top", "--once", "--output", "json", *management, url=rabbitmq_url)
    assert '"retry": 4' in top.out
    waiting = redrive("scheduled", QUEUE, "--output", "json", *management, url=rabbitmq_url)
    assert waiting.json()["held_back"] == {
        "queue": QUEUE,
        "messages": 4,
        "due_within_seconds": 600.0,
    }

    unknown = redrive(
        "status",
        QUEUE,
        "--output",
        "json",
        "--management-url",
        "http://localhost:1",
        url=rabbitmq_url,
    )
    assert json.loads(unknown.out)[0]["held_back"] is None

    doctor = redrive("doctor", QUEUE, "--output", "json", *management, url=rabbitmq_url)
    report = json.loads(doctor.out)
    assert {finding["kind"] for finding in report["findings"]} <= {"topic-permission"}
    assert report["would_gain"] == []

    file = tmp_path / "team.yaml"
    assert redrive("topology", "init", str(file), *management, url=rabbitmq_url).code == 0
    assert "retry_via: broker" in file.read_text()
    plan = redrive("topology", "check", str(file), *management, url=rabbitmq_url)
    assert plan.code == 0, plan


def test_doctor_says_who_would_gain(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    Service(rabbitmq_url, queue=QUEUE).declare()
    done = redrive("doctor", QUEUE, "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    said = "can hold failed messages back by itself" in done.err + done.out
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        assert said == declarer.version.holds_failed_messages_back


def test_a_job_knows_what_became_of_messages_that_were_held_back_meanwhile(
    rabbitmq_url: str,
) -> None:
    if not holds_back(rabbitmq_url):
        return
    service = Service(rabbitmq_url, queue=QUEUE, retry=retrying(2))
    service.declare(retry_via="broker")
    service.set_aside_declared(20)

    def odd_ones_fail(message: Message) -> None:
        if int(message.message_id or 0) % 2 or not message.retries:
            raise OutOfStock("still none")

    with service.subscriber(odd_ones_fail, retry_via="broker"):
        done = redrive("failed", "requeue", QUEUE, "--yes", "--output", "json", url=rabbitmq_url)
        job = done.json()["job"]

        def told() -> tuple[int, int, int]:
            found = redrive("jobs", "show", job, "--output", "json", url=rabbitmq_url).json()
            return found["succeeded"], found["failed_again"], found["unknown"]

        wait_until(lambda: told() == (10, 10, 0), "the worker tells of all")

    assert told() == (10, 10, 0)


SHOP = """
import os
from redrive import RetryPolicy, Subscriber

orders = Subscriber(
    os.environ["SHOP_URL"],
    "shop@orders",
    ["order.*"],
    retry=RetryPolicy(1, "150ms"),
    retry_via="broker",
)

@orders.handler
def on_order(body: str) -> None:
    raise ValueError("no such order")
"""


def test_run_runs_a_subscriber_whose_messages_are_held_back(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    if not holds_back(rabbitmq_url):
        return
    (tmp_path / "shop.py").write_text(SHOP)
    service = Service(rabbitmq_url, queue=QUEUE)
    service.declare(retry=retrying(1, timedelta(milliseconds=150)), retry_via="broker")
    ids = service.publish_numbered(3)

    with running(
        "run", "shop:orders", environment={"SHOP_URL": rabbitmq_url}, cwd=str(tmp_path)
    ) as process:
        failed = service.wait_for_failed(3)
        process.signal(signal.SIGTERM)
        done = process.end()

    assert sorted(message.message_id or "" for message in failed) == sorted(ids)
    assert {message.retries for message in failed} == {1}
    assert done.code == 0, done


FILE = """\
subscriptions:
  shop@orders:
    routing_keys: [order.*]
    retry: {{delay: {delay}}}
    retry_via: broker
    delay_by: {by}
"""


class Team:
    """A team whose topology file has the delay, and what it says to it."""

    def __init__(self, url: str, management_url: str, folder: Path) -> None:
        self.url = url
        self._file = folder / "team.yaml"
        self._management = ("--management-url", management_url)
        self.api = ManagementAPI(url, management_url)

    def asks_for(self, delay: str, by: str = "policy") -> None:
        """Writes its file."""
        self._file.write_text(FILE.format(delay=delay, by=by))

    def does(self, verb: str, *more: str, url: str | None = None) -> Outcome:
        """Runs a command on its file."""
        return redrive(
            "topology", verb, str(self._file), *self._management, *more, url=url or self.url
        )

    def delays(self) -> dict[str, object]:
        """What the policies of the virtual host set, by name."""
        return {
            policy.name: policy.definition.get("delayed-retry-min")
            for policy in self.api.observe().policies
        }


@pytest.fixture
def team(rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path) -> Iterator[Team]:
    team = Team(rabbitmq_url, rabbitmq_management_url, tmp_path)
    with team.api:
        yield team


OURS = "redrive.delay.shop@orders"


def test_a_delay_by_policy_is_changed_on_a_live_queue(team: Team) -> None:
    team.asks_for("10m")
    if not holds_back(team.url):
        assert "needs RabbitMQ 4.3 or newer" in team.does("apply").err
        return
    assert team.does("apply").code == 0
    assert team.delays() == {OURS: 600_000}
    assert team.does("check").code == 0
    service = Service(team.url, queue=QUEUE, retry=retrying(1, timedelta(minutes=10)))
    handler = Recorder(always_fails)

    with service.shell.subscriber(
        handler, team.url, QUEUE, retry=service.retry, retry_via="broker", declare=False
    ):
        service.publish_numbered(1)
        handler.wait_for_attempts(1)
        wait_until(lambda: team.api.held_back() == {QUEUE: 1}, "the failed message is held back")
        team.asks_for("150ms")
        plan = team.does("plan")
        assert team.does("apply").code == 0
        service.publish_numbered(1)
        handler.wait_for_attempts(3)
        service.wait_for_failed(1)

    assert (plan.code, f"* policy {OURS}: delayed-retry-max 600000 → 150" in plan.out) == (0, True)
    assert "1 delay to set by policy." in plan.out
    assert team.does("check").code == 0
    assert team.does("plan", "--output", "json").json()["set"] == []
    wait_until(lambda: team.api.held_back() == {QUEUE: 1}, "the first is held back, and no other")


def test_what_another_policy_sets_is_taken_over_and_another_delay_refused(team: Team) -> None:
    team.asks_for("1m")
    if not holds_back(team.url):
        return
    team.api.set_policy(Policy("limits", "^shop@", {"max-length": 5000}, 3))

    done = team.does("apply")

    assert done.code == 0, done
    (ours,) = (policy for policy in team.api.observe().policies if policy.name == OURS)
    assert ours.definition["max-length"] == 5000
    assert "plus the settings of policy limits" in done.out
    team.api.set_policy(Policy("limits", "^shop@", {"delayed-retry-min": 7}, 3))
    refused = team.does("apply")
    assert (refused.code, "policy 'limits' sets delayed-retry-min=7" in refused.err) == (2, True)


def test_a_delay_goes_from_argument_to_policy_and_back_by_a_migration(team: Team) -> None:
    team.asks_for("1m", by="argument")
    if not holds_back(team.url):
        return
    assert team.does("apply").code == 0
    team.asks_for("2m")

    plan = team.does("plan")
    assert plan.code == 1
    assert "x-delayed-retry-max is 60000, the file says none" in plan.out
    to_policy = team.does("migrate", "--yes")
    assert (to_policy.code, f"* policy {OURS}" in to_policy.out) == (0, True), to_policy
    assert team.delays() == {OURS: 120_000}
    assert team.does("check").code == 0

    team.asks_for("3m", by="argument")
    back = team.does("migrate", "--yes")
    assert (back.code, f"x policy {OURS}" in back.out) == (0, True), back
    assert team.delays() == {}
    assert team.does("check").code == 0


def test_the_policy_goes_with_its_queue(team: Team) -> None:
    team.asks_for("1m")
    if not holds_back(team.url):
        return
    assert team.does("apply").code == 0

    assert team.does("destroy", "--yes").code == 0

    assert team.delays() == {}


def test_a_subscriber_that_declares_the_queue_is_told_who_does(team: Team) -> None:
    team.asks_for("1m")
    if not holds_back(team.url):
        return
    assert team.does("apply").code == 0

    done = redrive(*DECLARE, url=team.url)

    assert done.code == 1
    assert "a policy sets its delay" in done.err
    assert "declare=False" in done.err


def test_who_may_set_no_policy_is_told_so(team: Team, rabbitmq_management_url: str) -> None:
    team.asks_for("1m")
    if not holds_back(team.url):
        return
    administration = Administration(rabbitmq_management_url, team.url)
    with administration.user("held-back", tags="management") as url:
        done = team.does("apply", url=url)

    assert done.code == 2
    assert "does not let the user" in done.err
    assert "policymaker" in done.err


def test_without_the_management_api_no_policy_can_be_set(team: Team) -> None:
    team.asks_for("1m")
    if not holds_back(team.url):
        return

    done = team.does("apply", "--management-url", "http://localhost:1")

    assert done.code == 2
    assert "its management API does not answer" in done.err
