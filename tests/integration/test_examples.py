"""The examples run as their READMEs say."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import Subscriber
from redrive.testing.ports import free_ports
from waiting import DEADLINE, wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(folder: str, file: str, url: str) -> str:
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, file],
        cwd=EXAMPLES / folder,
        env={**os.environ, "REDRIVE_URL": url},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_publishing_is_confirmed(rabbitmq_url: str) -> None:
    assert "confirmed: 1000\n" in run_example("01-publish", "publish.py", rabbitmq_url)


def test_subscribing_retries_what_may_work_later(rabbitmq_url: str) -> None:
    assert "welcome, guanyiyao, at the attempt number 3\n" in run_example(
        "02-subscribe", "subscribe.py", rabbitmq_url
    )


def test_what_failed_succeeds_after_the_fix(rabbitmq_url: str) -> None:
    told = run_example("03-requeue-after-a-fix", "requeue.py", rabbitmq_url)
    assert "requeued: 2\n" in told
    assert told.endswith("still failed: 0\n")


def test_a_web_service_publishes(rabbitmq_url: str) -> None:
    Subscriber(rabbitmq_url, "somebody@user", ["user.create"]).declare()
    with web_service("04-fastapi-service", rabbitmq_url) as port:
        answer = wait_until(lambda: _post_a_user(port), "the service answers")
        assert answer is not None
        assert set(json.loads(answer)) == {"message_id"}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_web_service_publishes_and_subscribes_on_its_event_loop(
    rabbitmq_url: str, loop: str
) -> None:
    with web_service("05-fastapi-asyncio", rabbitmq_url, "--loop", loop) as port:
        assert wait_until(lambda: _post_a_user(port), "the service answers")
        wait_until(lambda: _get(port, "welcomed") == ["guanyiyao"], "the message is handled")


def test_one_broker_takes_them_all(rabbitmq_url: str) -> None:
    """Each compares what it declares with what is there, so another order would make no
    difference."""
    with web_service("05-fastapi-asyncio", rabbitmq_url) as port:
        assert wait_until(lambda: _post_a_user(port), "the service answers")
    run_example("03-requeue-after-a-fix", "requeue.py", rabbitmq_url)
    run_example("02-subscribe", "subscribe.py", rabbitmq_url)


@contextlib.contextmanager
def web_service(folder: str, url: str, *options: str) -> Iterator[int]:
    """The service of an example, on a port of its own; it has to leave in order, and quietly."""
    (port,) = free_ports(1)
    service = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "uvicorn",
            "service:app",
            "--port",
            str(port),
            "--log-level",
            "error",
            *options,
        ],
        cwd=EXAMPLES / folder,
        env={**os.environ, "REDRIVE_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield port
    finally:
        service.terminate()
        _, told = service.communicate(timeout=DEADLINE)
    assert told == ""


def _post_a_user(port: int) -> bytes | None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/users",
        data=b'{"id": 121, "name": "guanyiyao"}',
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        pytest.fail(f"the service answered {error.code}: {error.read()!r}")
    except OSError:
        return None  # it does not listen yet


def _get(port: int, path: str) -> object:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=DEADLINE) as answer:
        return json.loads(answer.read())
