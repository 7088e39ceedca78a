"""Attempts to write into a team's topology file by what queues and bindings are called."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_support import redrive
from contract.plain import plain_channel
from corpus import STEERING, steering_in
from redrive.pubsub.admin import topology_file
from redrive.topology.broker_import import file_of, recover
from redrive.topology.diff import Observed
from redrive.topology.model import Binding, Subscription
from redrive.topology.policy import RetryPolicy

INJECTED = "x\ndefaults: {exchange: attacker, retry: {max_retries: 0}}\n#"
QUEUE = "shop@q"

hostile = st.one_of(
    st.sampled_from(
        [
            *STEERING.values(),
            INJECTED,
            '"',
            "'",
            "\\",
            "\\u0041",
            "# x",
            "{}",
            "*alias",
            "&a",
            "!!python/object",
            "%YAML",
            "---",
        ]
    ),
    st.text(max_size=20),
)


def seen(queue: str, keys: list[str], stray: list[str], delay: int | None = 30_000) -> Observed:
    """What a broker shows of one subscription of this name, bound by `keys`, and of bindings that
    nobody asked for."""
    wanted = Subscription(QUEUE).topology()
    named = {name: name.replace(QUEUE, queue) for name in (one.name for one in wanted.queues)}
    bindings = {
        replace(
            one,
            destination=named[one.destination],
            routing_key=one.routing_key.replace(QUEUE, queue),
        )
        for one in wanted.bindings
    }
    bindings |= {Binding("master", queue, key, "queue", ()) for key in keys}
    bindings |= {
        Binding("master.failed", named[f"{QUEUE}@failed"], key, "queue", ()) for key in stray
    }
    arguments = {named[one.name]: {**one.arguments} for one in wanted.queues}
    arguments = {
        name: {k: v.replace(QUEUE, queue) if isinstance(v, str) else v for k, v in own.items()}
        for name, own in arguments.items()
    }
    if delay is not None:
        arguments[named[f"{QUEUE}@retry"]]["x-message-ttl"] = delay
    return Observed(
        {one.name: one.type for one in (*wanted.exchanges, *wanted.pointers)},
        arguments,
        frozenset(bindings),
    )


@given(hostile.map("shop@{}".format), st.lists(hostile, max_size=3), st.lists(hostile, max_size=3))
def test_the_file_is_read_back_as_what_was_found(
    queue: str, keys: list[str], stray: list[str]
) -> None:
    recovered = recover(seen(queue, keys, stray))
    text = file_of(recovered)
    assert topology_file.parse(text, "team.yaml").built() == recovered.subscriptions
    assert steering_in(text) == set()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert len(comments) == 1 + len(recovered.notes)


@pytest.mark.parametrize("payload", [*STEERING.values(), INJECTED], ids=ascii)
def test_a_binding_key_adds_nothing_to_the_file(payload: str) -> None:
    recovered = recover(seen(QUEUE, ["user.*"], [payload]))
    assert recovered.notes
    parsed = topology_file.parse(file_of(recovered), "team.yaml").built()
    assert parsed == (
        Subscription(QUEUE, ["user.*"], retry=RetryPolicy(delay=timedelta(seconds=30))),
    )


@pytest.mark.parametrize("delay", [2**32, 2**70, -(2**70)])
def test_a_delay_that_no_broker_has_is_noted(delay: int) -> None:
    recovered = recover(seen(QUEUE, [], [], delay))
    assert recovered.subscriptions == ()
    assert recovered.notes == (f"{QUEUE} is left out: {QUEUE}@retry has the x-message-ttl {delay}",)


def test_the_command_writes_and_prints_only_what_is_there(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path
) -> None:
    assert (
        redrive("declare", "--queue", QUEUE, "--routing-key", "user.*", url=rabbitmq_url).code == 0
    )
    names = [
        f"x{payload}"
        for name, payload in STEERING.items()
        if name not in ("line feed", "carriage return")
    ]
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_bind(f"{QUEUE}@failed", "master.failed", INJECTED)
        for name in names:
            for queue in (name, f"{name}@failed"):  # noted as left out, as they have no retry queue
                channel.queue_declare(queue, durable=True)
    management = ("--management-url", rabbitmq_management_url)
    file = tmp_path / "team.yaml"
    written = redrive("topology", "init", str(file), *management, url=rabbitmq_url)
    assert written.code == 0
    assert steering_in(file.read_text(encoding="utf-8")) == set()
    printed = redrive("topology", "init", *management, url=rabbitmq_url)
    as_json = redrive("topology", "init", *management, "--output", "json", url=rabbitmq_url)
    for done in (written, printed, as_json):
        assert done.code == 0
        assert steering_in(done.out + done.err) == set()
    assert printed.out == file.read_text(encoding="utf-8")
    assert len(as_json.json()["notes"]) == len(names) + 1
    found = topology_file.parse(printed.out, "team.yaml").built()
    assert [(one.queue, one.exchanges.main, one.routing_keys) for one in found] == [
        (QUEUE, "master", ("user.*",))
    ]
    planned = redrive("topology", "plan", str(file), *management, url=rabbitmq_url)
    assert [
        line[:2] for line in planned.out.splitlines() if line[:2] in ("+ ", "~ ", "- ", "x ")
    ] == ["- "]
    assert "1 no longer wanted" in planned.out
    assert not any(line.startswith("defaults") for line in planned.out.splitlines())
    assert steering_in(planned.out + planned.err) == set()
