"""Attempts to find the password of a connection: in what objects tell of themselves, in logs, in
files."""

import logging
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import redrive
from contract.administration import Administration
from contract.shells import Shell
from contract.support import Recorder, Service, both_shells
from redrive import (
    AsyncFailedQueue,
    AsyncPublisher,
    AsyncSubscriber,
    BrokerUnavailable,
    FailedQueue,
    Publisher,
    RedriveError,
    Subscriber,
)
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.url import BrokerURL
from waiting import DEADLINE

PASSWORD = "Zk7hunter2Qx"
URL = f"amqp://shop:{PASSWORD}@127.0.0.1:1/team?heartbeat=10"


OBJECTS: dict[str, Callable[[], object]] = {
    "BrokerURL": lambda: BrokerURL.parse(URL),
    "BrokerAccess": lambda: BrokerAccess(URL, "test"),
    "Connector": lambda: Connector(URL, "test"),
    "Publisher": lambda: Publisher(URL),
    "Subscriber": lambda: Subscriber(URL, "shop@q", ["order.*"]),
    "FailedQueue": lambda: FailedQueue(URL, "shop@q"),
    "AsyncPublisher": lambda: AsyncPublisher(URL),
    "AsyncSubscriber": lambda: AsyncSubscriber(URL, "shop@q", ["order.*"]),
    "AsyncFailedQueue": lambda: AsyncFailedQueue(URL, "shop@q"),
    "Management": lambda: ManagementAPI(BrokerURL.parse(URL), "http://127.0.0.1:1"),
}


def told_by(thing: object) -> str:
    """What an object tells: by repr, str, and the repr of what it is made of."""
    parts = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = getattr(kind, "__slots__", ())
        parts |= {
            name: getattr(thing, name, None)
            for name in ([slots] if isinstance(slots, str) else slots)
            if not name.startswith("__")
        }
    if isinstance(thing, BrokerURL):
        parts.pop("password")  # which is there to be used
    return f"{thing!r} {thing} {parts!r}"


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_an_object_does_not_tell_the_password(make: Callable[[], object]) -> None:
    thing = make()
    try:
        assert PASSWORD not in told_by(thing)
    finally:
        if isinstance(thing, ManagementAPI):
            thing.close()


def test_an_error_of_connecting_does_not_tell_it_not_even_pickled() -> None:
    publisher = Publisher(URL)
    with pytest.raises(BrokerUnavailable) as raised:
        publisher.publish({}, "order.paid", timeout=timedelta(seconds=0.2))
    publisher.close()
    assert PASSWORD not in told_by(raised.value)
    assert PASSWORD.encode() not in pickle.dumps(raised.value)


@both_shells
def test_the_debug_log_of_a_real_login_does_not_have_it(
    rabbitmq_url: str, rabbitmq_management_url: str, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    user = f"shop-{administration.virtual_host}-{shell.name}"
    with administration.user(user, password=PASSWORD) as url:
        caplog.clear()
        service = Service(url, shell)
        with service.subscriber(recorder := Recorder()):
            recorder.wait_for_handled([service.publish()], DEADLINE)
    with (
        pytest.raises(RedriveError),
        service.publisher() as publisher,
    ):  # the user is gone: what is logged of a refused login?
        publisher.publish({}, "order.paid")
    assert len(caplog.records) > 10
    assert not [record.getMessage() for record in caplog.records if PASSWORD in record.getMessage()]
    assert PASSWORD not in caplog.text
    assert not any(PASSWORD in repr(record.__dict__) for record in caplog.records)


def test_no_file_of_a_job_has_it(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path
) -> None:
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    queue = "shop@orders"
    with administration.user(f"shop-{administration.virtual_host}-jobs", password=PASSWORD) as url:
        assert redrive("declare", "--queue", queue, "--routing-key", "order.*", url=url).code == 0
        with Publisher(url, "master.failed", declare=False) as publisher:
            publisher.publish({"id": 1}, queue, mandatory=True)
        journal, kept = str(tmp_path / "jobs.db"), str(tmp_path / "kept.jsonl")
        assert redrive("failed", "snapshot", queue, "-o", kept, url=url).code == 0
        for form in ("table", "json"):
            arguments = (
                "failed",
                "requeue",
                queue,
                "--yes",
                "--journal",
                journal,
                "--output",
                form,
            )
            done = redrive(*arguments, url=url)
            assert done.code == 0, done.err
            assert PASSWORD not in done.out + done.err
            restored = redrive("failed", "restore", kept, "--yes", "--journal", journal, url=url)
            assert restored.code == 0, restored.err
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) >= 2
    assert not [file for file in files if PASSWORD.encode() in file.read_bytes()]
