"""`redrive topology` where the tags of a subscription change: what they leave behind is found, and
taken away."""

from pathlib import Path

import pytest

from cli_support import redrive
from redrive.topology.model import Exchange, Subscription
from redrive.topology.tags import TagFilter
from topology_support import Team

ORDERS = "subscriptions:\n  shop@orders: {routing_keys: [order.*]%s}\n"
VIP, EU = (Subscription("shop@orders", ["order.*"], tags=TagFilter(tag)) for tag in ("vip", "eu"))
AROUND = [("binding", "shop@orders")] * 2


@pytest.fixture
def team(tmp_path: Path, rabbitmq_url: str, rabbitmq_management_url: str) -> Team:
    return Team(tmp_path / "team.yaml", rabbitmq_url, rabbitmq_management_url)


def _filter_of(subscription: Subscription) -> tuple[str, str]:
    return ("exchange", subscription.filter_exchange)


@pytest.mark.parametrize(
    ("before", "after", "retired"),
    [
        (", tags: vip", "", [_filter_of(VIP), ("exchange", "shop@orders@tags")]),
        (", tags: vip", ", tags: eu", [_filter_of(VIP), ("exchange", "shop@orders@tags")]),
        ("", ", tags: eu", AROUND),
    ],
    ids=["taken back", "changed", "new"],
)
def test_what_tags_leave_behind_when_they_change_is_planned_and_applied(
    team: Team, before: str, after: str, retired: list[tuple[str, str]]
) -> None:
    changed = team.with_file(ORDERS % after)
    team.file.write_text(ORDERS % before)
    assert team.run("apply").code == 0
    planned = changed.run("plan", "--output", "json").json()
    assert [
        (what["kind"], what.get("name") or what["queue"]) for what in planned["retire"]
    ] == retired
    assert planned["remove"] == []
    assert changed.run("check").code == 1
    assert changed.run("apply").out.endswith(f" created, {len(retired)} removed.\n")
    assert changed.run("plan").out.startswith("Nothing to do")
    assert changed.run("check").code == 0
    written = redrive("topology", "init", "--management-url", team.management_url, url=team.url).out
    assert (f'tags: "{after[-2:]}"' if after else "    retry:") in written
    assert ("tags" in written) == bool(after)
    applied = team.observe()
    assert changed.run("destroy", "--yes").code == 0
    assert changed.run("apply").code == 0
    assert changed.observe() == applied


def test_a_pointer_that_is_gone_or_names_another_filter_is_found_and_mended(team: Team) -> None:
    team.file.write_text(ORDERS % ", tags: vip")
    assert team.run("apply").code == 0
    pointer = VIP.topology().pointers[0]
    team.change(lambda declarer: declarer.delete(pointer))
    assert team.run("plan").out == "+ fanout exchange shop@orders@tags\n1 exchange to create.\n"
    team.change(lambda declarer: declarer.declare(EU.topology().pointers[0]))
    assert team.run("plan").out.startswith(
        "x fanout exchange shop@orders@tags: it names a tag filter that is no longer wanted\n"
    )
    assert team.run("apply").code == 0
    assert team.run("check").code == 0
    team.change(lambda declarer: declarer.delete(Exchange(VIP.filter_exchange, "headers")))
    made = [what["kind"] for what in team.run("check", "--output", "json").json()["make"]]
    assert made == ["exchange", *["binding"] * 3]


def test_a_filter_of_tags_that_a_file_no_longer_has_is_destroyed_with_its_queue(team: Team) -> None:
    team.file.write_text(ORDERS % ", tags: vip")
    assert team.run("apply").code == 0
    team.file.write_text(ORDERS % "")
    assert team.run("destroy", "--yes").code == 0
    team.wait_until_nothing_is_left()


def test_a_subscription_that_is_declared_without_its_tags_says_that_their_filter_would_stay(
    team: Team,
) -> None:
    team.file.write_text(ORDERS % ", tags: vip")
    assert team.run("apply").code == 0
    arguments = (
        "--queue",
        "shop@orders",
        "--routing-key",
        "order.*",
        "--dry-run",
        "--output",
        "json",
    )
    declared = redrive("declare", *arguments, "--management-url", team.management_url, url=team.url)
    left = [what["name"] for what in declared.json()["objects"] if what["state"] == "would stay"]
    assert left == [VIP.filter_exchange, "shop@orders@tags"]
