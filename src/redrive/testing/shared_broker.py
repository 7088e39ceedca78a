"""One private broker for all processes that run parts of the same test run."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout

from redrive.testing.broker_choice import private_broker
from redrive.testing.external_broker import ExternalBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.testing.broker import Broker


class SharedBroker(NamedTuple):
    """A broker that is also used by other processes."""

    broker: Broker
    label: str
    """Such as `RabbitMQ 4.3.6 (container rabbitmq:4.3-management)`."""


@contextlib.contextmanager
def shared_broker(folder: Path, process: str) -> Iterator[SharedBroker]:
    """Provide the broker of all processes that use the same folder.

    The first process starts it, and stops it when all others have left. That includes processes
    that were killed, since a process marks its presence with a lock, which the operating system
    releases when it dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "broker.json"
    entry, owner, user = (
        FileLock(folder / "entry.lock"),
        FileLock(folder / "owner.lock"),
        FileLock(folder / f"user-{process}.lock"),
    )
    with contextlib.ExitStack() as whole:
        whole.callback(entry.release)
        with entry:
            if _is_free(owner):
                own = whole.enter_context(private_broker())
                whole.enter_context(owner)
                told.write_text(
                    json.dumps(
                        {"url": own.url, "management_url": own.management_url, "label": str(own)}
                    ),
                    encoding="utf-8",
                )
                whole.callback(_wait_for_users, entry, folder)
            else:
                whole.enter_context(user)
            found = json.loads(told.read_text(encoding="utf-8"))
        yield SharedBroker(
            whole.enter_context(ExternalBroker(found["url"], found["management_url"])),
            found["label"],
        )


def _is_free(lock: FileLock) -> bool:
    try:
        with lock.acquire(timeout=0):
            return True
    except Timeout:
        return False


def _wait_for_users(entry: FileLock, folder: Path) -> None:
    # A process that comes from now on waits at this lock, and then starts its own broker.
    entry.acquire()
    for user in folder.glob("user-*.lock"):
        with FileLock(user):
            pass
