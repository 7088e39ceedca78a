"""What every command says when the broker can't be had."""

import uuid
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import httpx
import pytest

from cli_support import declare, give_up_on, redrive, run_redrive

SECRET = "hunter2"
COMMANDS = [
    pytest.param(("declare", "--queue", "q", "--routing-key", "k"), id="declare"),
    pytest.param(("status", "q"), id="status"),
    pytest.param(("publish", "k", "body"), id="publish"),
    pytest.param(("failed", "list", "q"), id="list"),
    pytest.param(("failed", "show", "q", "id"), id="show"),
    pytest.param(("failed", "requeue", "q", "--yes"), id="requeue"),
    pytest.param(("failed", "purge", "q", "--yes"), id="purge"),
    pytest.param(("demo",), id="demo"),
]
ADDRESSES = [
    pytest.param(f"http://user:{SECRET}@localhost/", "is not a broker address", id="scheme"),
    pytest.param(f"amqp://user:{SECRET}@localhost:port/", "the URL has the port 'port'", id="port"),
    pytest.param(
        f"amqp://user:{SECRET}@no-such-host.invalid/", "the host name is not known", id="host"
    ),
    pytest.param(f"amqp://user:{SECRET}@127.0.0.1:9/", "nothing listens there", id="nobody"),
    pytest.param(
        f"amqp://user:{SECRET}@localhost/?foo=1", "the URL has the parameter 'foo'", id="parameter"
    ),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("url", "problem"), ADDRESSES)
def test_an_address_without_a_broker_is_said_in_two_lines(
    command: tuple[str, ...], url: str, problem: str
) -> None:
    done = redrive(*command, url=url)
    assert done.code == 2
    assert problem in done.error_lines[0]
    assert done.error_lines[0].startswith("Error: ")
    assert len(done.error_lines) == 2
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_with_json_the_error_is_json_too(command: tuple[str, ...]) -> None:
    done = redrive(*command, "--output", "json", url=f"amqp://user:{SECRET}@127.0.0.1:9/")
    assert (done.code, done.out) == (2, "")
    assert '"kind": "BrokerUnavailable"' in done.err
    assert SECRET not in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_password_is_said_and_not_shown(
    rabbitmq_url: str, command: tuple[str, ...]
) -> None:
    parts = urlsplit(rabbitmq_url)
    done = redrive(*command, url=f"amqp://guest:{SECRET}@{parts.hostname}:{parts.port}{parts.path}")
    assert done.code == 2
    assert "refused the user 'guest' or the password" in done.error_lines[0]
    assert SECRET not in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_virtual_host_that_is_not_there_is_named(
    rabbitmq_url: str, command: tuple[str, ...]
) -> None:
    done = redrive(*command, url=urlsplit(rabbitmq_url)._replace(path="/no-such").geturl())
    assert done.code == 2
    assert "has no virtual host 'no-such'" in done.error_lines[0]


@pytest.fixture
def powerless_url(rabbitmq_url: str, rabbitmq_management_url: str) -> Iterator[str]:
    """The address for a user that may open the virtual host, and do nothing in it."""
    parts = urlsplit(rabbitmq_url)
    name = f"powerless-{uuid.uuid4().hex[:8]}"
    administrator = (parts.username or "guest", parts.password or "guest")
    with httpx.Client(
        base_url=rabbitmq_management_url, auth=administrator, trust_env=False
    ) as client:
        client.put(f"/api/users/{name}", json={"password": SECRET, "tags": ""}).raise_for_status()
        virtual_host = quote(parts.path[1:], safe="")
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        client.put(f"/api/permissions/{virtual_host}/{name}", json=nothing).raise_for_status()
        yield f"amqp://{name}:{SECRET}@{parts.hostname}:{parts.port}{parts.path}"
        client.delete(f"/api/users/{name}").raise_for_status()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.id != "status"])
def test_a_right_that_is_missing_is_named(
    rabbitmq_url: str, powerless_url: str, command: tuple[str, ...]
) -> None:
    give_up_on(rabbitmq_url, "q", ["one"])
    done = redrive(*command, url=powerless_url)
    assert done.code == 2
    assert "ACCESS_REFUSED" in done.error_lines[0] or "refused" in done.error_lines[0]
    assert SECRET not in done.err


def test_the_address_may_be_in_the_environment(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, "q")
    assert run_redrive("status", "q", environment={"REDRIVE_URL": rabbitmq_url}).code == 0


def test_a_password_in_the_wrong_place_is_not_shown() -> None:
    done = redrive("publish", "key", "body", f"amqp://user:{SECRET}@localhost/")
    assert done.code == 2
    assert SECRET not in done.err
