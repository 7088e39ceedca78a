"""A console that ends, or is killed, while a job runs in it: nothing is lost, and the job goes on
elsewhere."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cli_support import PATIENCE, run_redrive
from contract.support import Recorder, Service, retrying
from effort import nightly
from redrive import FailedQueue
from waiting import wait_until

QUEUE = "shop@orders"
COUNT = 40


@contextmanager
def console(url: str, state: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A console that may requeue, as a process, and a browser that was let in."""
    words = [sys.executable, "-m", "redrive.cli", "web", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*words, "--allow", "requeue", "--url", url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(state)},
    )
    try:
        assert process.stdout is not None
        printed = process.stdout.readline() + process.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+)(/open\?token=\S+)", printed)
        assert found is not None, printed
        headers = {"sec-fetch-site": "same-origin"}
        with httpx.Client(
            base_url=found[1], trust_env=False, timeout=PATIENCE, headers=headers
        ) as client:
            assert client.get(found[2]).status_code == 303
            yield process, client
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def begun(client: httpx.Client) -> str:
    """The id of a slow job, which has sent something."""
    assert client.post("/look", data={"queue": QUEUE}).status_code == 303
    wait_until(
        lambda: client.get("/progress/look", params={"queue": QUEUE}).json()["ended"], "it looked"
    )
    form = {"queue": QUEUE, "planned": str(COUNT), "reason": "slowly", "canary": "0"}
    answer = client.post("/begin", data={**form, "rate": "2", "stop_at": "100"})
    assert answer.status_code == 303, answer.text
    id_ = answer.headers["location"].rpartition("=")[2]

    def has_sent() -> bool:
        told = client.get("/progress/job", params={"id": id_}).json()
        return bool(told["values"]["sent"] not in ("0", "1"))

    wait_until(has_sent, "it has sent something")
    return id_


@pytest.mark.parametrize("sent", [nightly(signal.SIGINT, why="a kill is worse"), signal.SIGKILL])
def test_its_job_is_taken_up_elsewhere_and_every_message_is_handled(
    rabbitmq_url: str, tmp_path: Path, sent: signal.Signals
) -> None:
    service = Service(rabbitmq_url, queue=QUEUE, retry=retrying(0))
    ids = set(service.set_aside(COUNT))
    with console(rabbitmq_url, tmp_path) as (process, client):
        id_ = begun(client)
        process.send_signal(sent)
        assert process.wait(PATIENCE) == (0 if sent is signal.SIGINT else -signal.SIGKILL)
    # The process of its jobs sees that it is gone, and stops.
    failed = FailedQueue(rabbitmq_url, QUEUE)
    wait_until(lambda: failed.depth() > 0, "what was not sent is in its queue again")
    with console(rabbitmq_url, tmp_path / "elsewhere") as (_, client):
        wait_until(
            lambda: "interrupted</span>" in client.get("/job", params={"id": id_}).text,
            "the job is known to be interrupted",
        )
    recorder = Recorder(lambda message: None)
    with service.subscriber(recorder):
        done = run_redrive(
            *("jobs", "resume", id_, "--yes"),
            url=rabbitmq_url,
            environment={"XDG_STATE_HOME": str(tmp_path / "a third place")},
        )
        assert done.code == 0, done.err
        recorder.wait_for_handled(ids)
    assert FailedQueue(rabbitmq_url, QUEUE).depth() == 0
