"""Shell completion of queues, jobs and groups.

Completion is a convenience: if anything fails or takes long, it offers nothing and prints nothing.
Modules are imported only when they are needed, since each press of Tab starts a process.
"""

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from redrive.cli import environment

if TYPE_CHECKING:
    from redrive.failures.message.groups import Group
    from redrive.pubsub.admin.management_api import ManagementAPI

Offers = list[tuple[str, str]]
"""Words, each with a line of help, which shells show if they can."""

_TIME_LIMIT = 2.0
"""Seconds after which an answer is too late, because the user has typed on."""

_MOST_QUEUES = 50
"""Number of queues whose groups are remembered, and of jobs that are offered."""


_OF_OTHERS = frozenset({"failed", "status", "top", "dlq"})
"""Commands that also take a dead-letter queue that redrive did not make."""


def queues(context: typer.Context, incomplete: str) -> Offers:
    """Offer the main queues that the management API lists and, to commands that take them,
    dead-letter queues that redrive did not make."""
    url, management_url = _place(context.params)
    words = set(context.command_path.split())

    def ask() -> Iterator[tuple[str, str]]:
        from redrive.pubsub.admin.management_api import ManagementAPI
        from redrive.topology.names import main_queues

        with ManagementAPI(url, management_url, timedelta(seconds=_TIME_LIMIT)) as management:
            # What is found first is offered, even if there is no time for the rest.
            if "dlq" not in words:
                yield from [(name, "") for name in main_queues(management.queue_names())]
            if not words.isdisjoint(_OF_OTHERS):
                yield from _of_others(management)

    return _beginning_with(incomplete, _quickly(ask))


def _of_others(management: "ManagementAPI") -> Offers:
    from redrive.pubsub.admin.management_survey import routes_over_management
    from redrive.topology.dead_letter_queues import dead_letter_queues

    found = dead_letter_queues(routes_over_management(management))
    return [(one.name, "dead-letter queue") for one in found]


def jobs(context: typer.Context, incomplete: str) -> Offers:
    """Offer the newest jobs of the journal."""

    def ask() -> Offers:
        from redrive.cli.messages import SHORT_ID
        from redrive.failures.jobs.local_journal import LocalJournal, default_path

        path = Path(context.params.get("journal") or default_path())
        if not path.exists():
            return []
        with LocalJournal(path) as journal:
            return [
                (job.id[:SHORT_ID], f"{job.kind} {job.queue} {job.state.value}")
                for job in journal.jobs(_MOST_QUEUES)
            ]

    return _beginning_with(incomplete, _quickly(ask))


def groups(context: typer.Context, incomplete: str) -> Offers:
    """Offer the groups that `redrive failed groups` last showed for the queue."""

    def ask() -> Offers:
        url, _ = _place(context.params)
        queue = str(context.params.get("queue") or context.params.get("source") or "")
        return [(one, words) for one, words in _remembered().get(_key(url, queue), [])]

    return _beginning_with(incomplete, _quickly(ask))


def remember_groups(url: str, queue: str, shown: "Iterable[Group]") -> None:
    """Remember the ids of groups for `groups`, each with its count and error type, in a file that
    only the user can read. Nothing else is kept: messages may contain secrets."""
    from redrive.failures.message.cause import Cause

    found = [
        [group.key.group_id, f"{group.count:,} {group.key.error_type}"]
        for group in shown
        if isinstance(group.key, Cause)
    ]
    with suppress(OSError):
        known = _remembered()
        known.pop(_key(url, queue), None)
        newest = [*known.items(), (_key(url, queue), found)][-_MOST_QUEUES:]
        path = _groups_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The new file has mode 0600, and replaces the old one atomically.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(dict(newest), file)
        os.replace(name, path)


def _remembered() -> dict[str, list[list[str]]]:
    try:
        known = json.loads(_groups_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _groups_path() -> Path:
    from redrive.failures.jobs.local_journal import default_path

    return default_path().with_name("groups.json")


def _key(url: str, queue: str) -> str:
    from redrive.pubsub.url import BrokerURL

    return f"{BrokerURL.parse(url).address} {queue}"


def _place(given: Mapping[str, object]) -> tuple[str, str | None]:
    """Return the URLs of the broker and its management API, from the words typed so far or the
    environment."""
    url = given.get("url") or os.environ.get(environment.URL_VARIABLE) or environment.DEFAULT_URL
    named = given.get("management_url")
    management_url = named or os.environ.get(environment.MANAGEMENT_VARIABLE)
    return str(url), environment.management_url_for(
        str(url),
        None if management_url is None else str(management_url),
        from_environment=not named,
    )


def _beginning_with(incomplete: str, offers: Offers) -> Offers:
    return [one for one in offers if one[0].startswith(incomplete)]


def _quickly(ask: Callable[[], Iterable[tuple[str, str]]]) -> Offers:
    """Return what `ask` finds before it fails or takes too long."""
    found: Offers = []

    def run() -> None:
        with suppress(Exception):
            found.extend(ask())

    # A daemon: an answer that comes too late must not keep the shell waiting.
    asking = threading.Thread(target=run, name="redrive-completion", daemon=True)
    asking.start()
    asking.join(_TIME_LIMIT)
    return list(found)
