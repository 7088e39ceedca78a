"""Each command and each class, on a broker that is reached over TLS alone, its management API over
https."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import redrive
from contract.shells import BLOCKING, Shell
from contract.support import Recorder, always_fails, assert_it_helps, both_shells, fails_first
from redrive import BrokerUnavailable, RetryPolicy
from secured_broker import Secured, secured_broker
from waiting import wait_until

QUEUE = "shop@orders"
LARGE = 20 * 1024 * 1024


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """A broker with TLS."""
    with secured_broker(max_message_size=2 * LARGE) as secured:
        yield secured


def fail_one(shell: Shell, url: str) -> None:
    """Has a message of the subscription fail for good."""
    failed, retry = shell.failed_queue(url, QUEUE), RetryPolicy(max_retries=0)
    shell.declare(url, QUEUE, routing_keys=["order.*"], retry=retry)
    with (
        shell.subscriber(always_fails, url, QUEUE, routing_keys=["order.*"], retry=retry),
        shell.publisher(url) as publisher,
    ):
        publisher.publish("socks", "order.paid")
        wait_until(lambda: failed.depth() > 0, "a message has failed")


COMMANDS = [
    ["declare", "--queue", QUEUE, "--routing-key", "order.*"],
    ["status", QUEUE],
    ["top", "--once"],
    ["doctor", QUEUE],
    ["publish", "order.paid", "socks"],
    ["watch", QUEUE, "--above", "1000000", "--once"],
    ["failed", "list", QUEUE],
    ["failed", "groups", QUEUE],
    ["failed", "query", QUEUE, "select count(*) from failed"],
    ["failed", "snapshot", QUEUE, "--file", "{folder}/copy.parquet"],
    ["failed", "requeue", QUEUE, "--yes"],
    ["topology", "init", "{folder}/team.yaml"],
]


def arguments_of(command: list[str], secured: Secured, folder: Path) -> list[str]:
    """A command with its files in a folder, and the management API's address if it takes it."""
    arguments = [word.format(folder=folder) for word in command]
    if command[0] in ("publish", "declare"):
        return arguments
    return [*arguments, "--management-url", secured.management_url]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_command_reaches_a_broker_and_its_management_api_over_tls(
    secured: Secured, command: list[str], tmp_path: Path
) -> None:
    fail_one(BLOCKING, secured.url)
    done = redrive(*arguments_of(command, secured, tmp_path), url=secured.url)
    assert done.code in (0, 1), done.err
    assert "management API" not in done.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_command_trusts_no_certificate_of_a_ca_that_nobody_named(
    secured: Secured, command: list[str], tmp_path: Path
) -> None:
    done = redrive(*arguments_of(command, secured, tmp_path), url=secured.place)
    assert done.code == 2
    assert "certificate is not trusted" in done.error_lines[0]
    assert "cacertfile" in done.err
    assert len(done.error_lines) <= 2


@both_shells
def test_a_retry_waits_on_the_ladder_over_tls(secured: Secured, shell: Shell) -> None:
    queue, key = f"ladder-{shell.name}", f"ladder.{shell.name}"
    retry = RetryPolicy(backoff=[timedelta(seconds=1), timedelta(seconds=2)])
    recorder = Recorder(fails_first(2))
    shell.declare(secured.url, queue, routing_keys=[key], retry=retry)
    with (
        shell.subscriber(recorder, secured.url, queue, routing_keys=[key], retry=retry),
        shell.publisher(secured.url) as publisher,
    ):
        recorder.wait_for_handled([publisher.publish("socks", key)])
    assert [attempt.retries for attempt in recorder.attempts] == [0, 1, 2]


@both_shells
@pytest.mark.nightly("small messages are tried each time")
def test_a_message_of_20_megabytes_goes_both_ways_over_tls(secured: Secured, shell: Shell) -> None:
    queue, key = f"large-{shell.name}", f"large.{shell.name}"
    bodies: list[int] = []
    recorder = Recorder(lambda message: bodies.append(len(message.body)))
    shell.declare(secured.url, queue, routing_keys=[key])
    with (
        shell.subscriber(recorder, secured.url, queue, routing_keys=[key]),
        shell.publisher(secured.url) as publisher,
    ):
        recorder.wait_for_handled([publisher.publish(bytes(LARGE), key)])
    assert bodies == [LARGE]


@both_shells
def test_a_certificate_for_another_name_than_is_asked_for_is_refused(
    secured: Secured, shell: Shell
) -> None:
    with (
        pytest.raises(BrokerUnavailable) as refused,
        shell.publisher(f"{secured.url}&server_name_indication=elsewhere.example"),
    ):
        pass
    assert_it_helps(refused.value, "certificate", "elsewhere.example")
    by_address = secured.url.replace("localhost", "127.0.0.1")
    with shell.publisher(f"{by_address}&server_name_indication=localhost"):
        pass
