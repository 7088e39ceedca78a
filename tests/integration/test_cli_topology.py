"""`redrive topology` on a real broker: a file's topology is planned, made, drawn, checked and taken
away."""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from cli_support import Terminal, depth_of, redrive
from redrive import Publisher
from redrive.pubsub.blocking.declarer import Declarer
from redrive.testing import Broker
from redrive.topology.model import Binding, Exchange, Queue
from topology_support import Team
from waiting import wait_until

TEAM = """
subscriptions:
  ucenter@user:
    routing_keys: [user.*]
    retry: {delay: 5m, backoff: {first: 1s, cap: 4s}}
  ucenter@audit:
    routing_keys: ["#"]
    queue_type: classic
  legacy@peer:
    routing_keys: [peer.*]
    queue_type: classic
    retry_via: republish
  shop@orders:
    exchange: {main: shop, retry_suffix: "@retry", failed_suffix: "@failed"}
    routing_keys: [order.paid, order.cancelled]
    tags: vip || eu
"""


@pytest.fixture
def team(tmp_path: Path, rabbitmq_url: str, rabbitmq_management_url: str) -> Team:
    file = tmp_path / "team.yaml"
    file.write_text(TEAM)
    return Team(file, rabbitmq_url, rabbitmq_management_url)


def test_plan_shows_what_apply_makes_and_is_empty_after_it(team: Team) -> None:
    planned = team.run("plan")
    assert planned.code == 0
    assert "+ quorum queue ucenter@user@retry" in planned.out
    assert planned.out.endswith("\n14 exchanges, 16 queues and 35 bindings to create.\n")
    assert depth_of(team.url, "ucenter@user")["main"] is None
    assert team.run("apply").code == 0
    assert team.run("plan").out.startswith("Nothing to do: the broker")
    assert team.run("check").code == 0


def test_what_init_writes_makes_the_same_topology_elsewhere(team: Team, tmp_path: Path) -> None:
    # But for backoff: the broker does not know whose it is, and notes are all that init can write
    # of it.
    team.file.write_text(TEAM.replace(", backoff: {first: 1s, cap: 4s}", ""))
    assert team.run("apply").code == 0
    before = team.observe()
    written = tmp_path / "written.yaml"
    assert (
        redrive(
            "topology", "init", str(written), "--management-url", team.management_url, url=team.url
        ).code
        == 0
    )
    assert team.run("destroy", "--yes").code == 0
    team.wait_until_nothing_is_left()
    assert team._replace(file=written).run("apply").code == 0
    assert team.observe() == before


@pytest.mark.nightly("what is imported is compared without a broker each time")
def test_rabbitmqctl_imports_the_definitions_of_a_virtual_host(
    team: Team, rabbitmq_broker: Broker
) -> None:
    virtual_host = urlsplit(team.url).path[1:]
    shown = redrive(
        "topology", "show", str(team.file), "--format", "definitions", "--vhost", virtual_host
    )
    # The broker writes the file itself: it may be in a container, which sees none of ours.
    path = f"/tmp/{virtual_host}.json"
    content = base64.b64encode(shown.out.encode()).decode()
    assert (
        rabbitmq_broker.control(
            "eval", f'file:write_file("{path}", base64:decode("{content}")).'
        ).strip()
        == "ok"
    )
    rabbitmq_broker.control("import_definitions", path)
    rabbitmq_broker.control("eval", f'file:delete("{path}").')
    assert team.run("check").code == 0


def test_the_management_api_imports_the_definitions(team: Team) -> None:
    definitions = redrive("topology", "show", str(team.file), "--format", "definitions").json()
    parts = urlsplit(team.url)
    with httpx.Client(
        auth=(parts.username or "", parts.password or ""), timeout=30, trust_env=False
    ) as client:
        client.post(
            f"{team.management_url}/api/definitions/{parts.path[1:]}", json=definitions
        ).raise_for_status()
    assert team.run("check").code == 0


# --- drift ----------------------------------------------------------------------------------------


def _rebind(declarer: Declarer) -> None:
    declarer.unbind(Binding("master", "ucenter@user", "user.*"))
    declarer.declare(Binding("master", "ucenter@user", "account.*"))


def _with_another_ttl(declarer: Declarer) -> None:
    declarer.delete(Queue("ucenter@audit@retry"))
    declarer.declare(Queue("ucenter@audit@retry", {"x-queue-type": "classic", "x-message-ttl": 1}))


def _as_another_type(declarer: Declarer) -> None:
    declarer.delete(Queue("ucenter@user@failed"))
    declarer.declare(Queue("ucenter@user@failed", {"x-queue-type": "classic"}))
    declarer.declare(Binding("master.failed", "ucenter@user@failed", "ucenter@user"))


def _another_exchange(declarer: Declarer) -> None:
    declarer.delete(Exchange("shop@failed"))
    declarer.declare(Exchange("shop@failed", "direct"))


def _with_another_level(declarer: Declarer) -> None:
    declarer.delete(Queue("master.delay.0"))
    declarer.declare(Queue("master.delay.0", {"x-queue-type": "classic"}))


def test_each_kind_of_drift_is_found_and_named(team: Team) -> None:
    assert team.run("apply").code == 0
    for change in (_rebind, _with_another_ttl, _as_another_type, _another_exchange):
        team.change(change)
    team.change(lambda declarer: declarer.delete(Queue("shop@orders@retry")))
    checked = team.run("check", "--output", "json")
    found: dict[str, Any] = checked.json()
    assert checked.code == 1
    assert [what["name"] for what in found["make"] if what["kind"] != "binding"] == [
        "shop@orders@retry"
    ]
    assert {
        (what["exchange"], what["routing_key"])
        for what in found["make"]
        if what["kind"] == "binding"
    } == {
        ("master", "user.*"),
        ("master.retry", "ucenter@audit"),
        ("shop@failed", "shop@orders"),
        ("shop@retry", "shop@orders"),
    }
    assert {(differs["name"], differs["argument"]) for differs in found["migrate"]} == {
        ("ucenter@audit@retry", "x-message-ttl"),
        ("ucenter@audit@retry", "x-dead-letter-exchange"),
        ("ucenter@audit@retry", "x-dead-letter-routing-key"),
        ("ucenter@user@failed", "x-queue-type"),
        ("ucenter@user@failed", "x-delivery-limit"),
    }
    assert [(differs["name"], differs["argument"]) for differs in found["by_hand"]] == [
        ("shop@failed", "type")
    ]
    assert [binding["routing_key"] for binding in found["remove"]] == ["account.*"]


def test_what_no_command_can_change_is_said_with_what_to_do(team: Team) -> None:
    assert team.run("apply").code == 0
    team.change(_another_exchange)
    team.change(_with_another_level)
    planned = team.run("plan")
    assert planned.code == 1
    assert "~ exchange shop@failed: type is direct, the file says topic\n" in planned.out
    assert "2 to delete by hand and create again" in planned.out
    assert "to migrate" not in planned.out
    assert (
        "neither RabbitMQ nor `migrate` can change exchange shop@failed, queue master.delay.0. "
        "Delete each" in planned.out
    )
    assert team.run("migrate").out.startswith("Nothing to migrate")

    team.change(lambda declarer: declarer.delete(Exchange("shop@failed")))
    team.change(lambda declarer: declarer.delete(Queue("master.delay.0")))
    assert team.run("apply").code == 0
    assert team.run("check").code == 0


def test_where_something_differs_apply_makes_nothing(team: Team) -> None:
    team.change(
        lambda declarer: declarer.declare(Queue("shop@orders@failed", {"x-queue-type": "classic"}))
    )
    done = team.run("apply")
    assert done.code == 1
    assert done.error_lines[0].startswith(
        "Error: queue 'shop@orders@failed' is on the broker with x-"
    )
    assert set(team.observe().queues) == {"shop@orders@failed"}


def test_apply_goes_on_after_a_run_that_was_cut_off(team: Team) -> None:
    team.change(lambda declarer: declarer.declare(Exchange("master")))
    team.change(lambda declarer: declarer.declare(Exchange("master.retry")))
    assert team.run("apply").out.endswith("\n12 exchanges, 16 queues and 35 bindings created.\n")
    assert team.run("check").code == 0


def test_apply_removes_what_is_not_asked_for_only_with_prune(team: Team) -> None:
    assert team.run("apply").code == 0
    team.change(lambda declarer: declarer.declare(Binding("master", "ucenter@user", "account.*")))
    assert team.run("apply").code == 0
    assert team.run("check").code == 1
    refused = team.run("apply", "--prune")
    assert (refused.code, refused.error_lines[-1]) == (
        2,
        "Give --yes to go ahead, or --dry-run to see what would happen.",
    )
    assert team.run("apply", "--prune", "--yes").out.endswith("1 removed.\n")
    assert team.run("check").code == 0


def test_without_the_management_api_plan_says_what_it_could_not_compare_and_check_fails(
    team: Team,
) -> None:
    blind = team._replace(management_url="http://127.0.0.1:9")
    assert blind.run("apply").code == 0
    planned = blind.run("plan", "--output", "json")
    assert (planned.code, planned.json()["bindings_compared"]) == (0, False)
    assert planned.err.startswith(
        "Bindings were not compared: RabbitMQ at http://127.0.0.1:9 can't be used"
    )
    checked = blind.run("check")
    assert checked.code == 2
    assert "rabbitmq-plugins enable rabbitmq_management" in checked.error_lines[1]


# --- destroy --------------------------------------------------------------------------------------


def test_what_holds_messages_is_not_destroyed_unless_told_so(team: Team) -> None:
    team.run("apply")
    redrive("publish", "user.create", "x", url=team.url)
    refused = team.run("destroy", "--yes")
    assert refused.code == 1
    assert refused.err.startswith(
        "Not empty: ucenter@user (1 message), ucenter@audit (1 message). Nothing was deleted"
    )
    assert team.run("check").code == 0
    assert [team.run("destroy", "--with-messages", "--yes").code for _ in range(2)] == [0, 0]
    team.wait_until_nothing_is_left()


def test_an_exchange_that_somebody_else_uses_stays(team: Team) -> None:
    team.run("apply")
    team.change(lambda declarer: declarer.declare(Queue("other", {"x-queue-type": "classic"})))
    team.change(lambda declarer: declarer.declare(Binding("master", "other", "#")))
    done = team.run("destroy", "--yes")
    assert done.code == 0
    assert "exchange master was not deleted" in done.err
    assert set(team.observe().exchanges) == {"master"}


def test_a_delay_ladder_that_another_file_uses_stays_until_that_one_is_destroyed(
    team: Team,
) -> None:
    another = team.with_file(
        "subscriptions:\n  other@user: {routing_keys: [user.*], retry: {backoff: [1s, 3s]}}\n"
    )
    assert (team.run("apply").code, another.run("apply").code) == (0, 0)
    done = team.run("destroy", "--yes", "--output", "json")
    assert (done.code, done.json()["kept_ladders"]) == (0, ["master"])
    assert "The delay ladder of master stays: others use it (other@user)." in done.err
    assert another.run("check").code == 0
    assert another.run("destroy", "--yes").code == 0
    team.wait_until_nothing_is_left()


def test_messages_on_a_delay_ladder_that_others_use_survive(team: Team) -> None:
    another = team.with_file("subscriptions:\n  other@user: {routing_keys: [user.*]}\n")
    assert (team.run("apply").code, another.run("apply").code) == (0, 0)
    with Publisher(team.url) as publisher:
        publisher.publish("x", "user.create", delay=timedelta(seconds=5))
    assert team.run("destroy", "--with-messages", "--yes").code == 0
    wait_until(
        lambda: depth_of(team.url, "other@user")["main"] == 1, "the delayed message is delivered"
    )


def test_a_delay_ladder_that_others_came_to_before_the_answer_is_left_to_them(team: Team) -> None:
    another = team.with_file("subscriptions:\n  other@user: {routing_keys: [user.*]}\n")
    assert team.run("apply").code == 0
    command = ("topology", "destroy", str(team.file), "--management-url", team.management_url)
    with Terminal(*command, url=team.url, columns=200) as terminal:
        terminal.wait_for("[y/N]")
        assert another.run("apply").code == 0
        terminal.type("y\n")
        assert terminal.end() == 2
        assert "the bindings of the delay ladder changed" in terminal.words
    assert team.run("check").code == 0


def test_a_delay_ladder_stays_where_nobody_can_tell_who_uses_it(team: Team) -> None:
    team.run("apply")
    done = team._replace(management_url="http://127.0.0.1:9").run("destroy", "--yes")
    assert done.code == 0
    assert (
        "The delay ladder of master stays: can't tell who uses it: RabbitMQ at "
        "http://127.0.0.1:9" in done.err
    )
    assert set(team.observe().queues) == {
        "master.unrouted",
        *(f"master.delay.{level}" for level in range(3)),
    }


# --- without a broker -----------------------------------------------------------------------------


def test_a_mistake_in_the_file_is_told_in_two_lines(team: Team) -> None:
    team.file.write_text("subscriptions:\n  a:\n    retry: {delay: 30}\n")
    done = team.run("plan")
    assert (done.code, done.out) == (2, "")
    assert done.error_lines == [
        f"Error: {team.file}, line 3, subscriptions → a → retry → delay: the duration is 30",
        "Give a number with a unit: 500ms, 30s, 5m, 1h30m.",
    ]


def test_a_file_is_never_overwritten(team: Team) -> None:
    done = redrive(
        "topology", "init", str(team.file), "--management-url", team.management_url, url=team.url
    )
    assert (done.code, done.error_lines[0]) == (2, f"Error: {str(team.file)!r} already exists")
    assert team.file.read_text() == TEAM


def test_a_virtual_host_is_refused_where_nothing_would_name_it(team: Team) -> None:
    done = redrive("topology", "show", str(team.file), "--vhost", "/")
    assert (done.code, done.out) == (2, "")
    assert done.error_lines[0] == "Error: --format tree has no virtual host"


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("tree", "master  (retries"),
        ("mermaid", "flowchart LR"),
        ("json", "["),
        ("definitions", "{"),
    ],
)
def test_a_file_is_shown_in_each_form_without_a_broker(
    tmp_path: Path, form: str, begins: str
) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(TEAM)
    shown = redrive("topology", "show", str(file), "--format", form)
    assert shown.code == 0
    assert shown.out.startswith(begins)


def test_the_schema_is_json() -> None:
    assert json.loads(redrive("topology", "schema").out)["title"]
