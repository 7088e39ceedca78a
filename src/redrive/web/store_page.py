"""The pages of the store: the copies of failed messages, their contents, and their restore."""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from starlette.responses import JSONResponse, RedirectResponse, Response

from redrive.errors import ConfigurationError, PermissionDenied, RedriveError
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.jobs.restore_target import (
    RestoreTarget,
    digests_in,
    missing_from,
    place_of,
    restored,
)
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.message_source import answer_of
from redrive.failures.queue.snapshot import Snapshot
from redrive.number_text import count_of
from redrive.pubsub.reports import LookProgress
from redrive.pubsub.url import BrokerURL
from redrive.web.command_lines import command, snapshot_command
from redrive.web.context import ConsoleContext
from redrive.web.page_request import PageRequest, QueuePlace
from redrive.web.store import StoreWork

_MOST_CAUSES = 50


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the copies, or the contents of one."""
    check_user(context)
    name, word = request.text("name"), request.text("word")
    if name:
        return _one(context, request, name)
    # Copied before the files are listed: a task that ends in between must still show as running.
    work = replace(found) if (found := context.store.work) is not None else None
    try:
        queues = [line.place for line in context.queue_states.counts() if line.failed]
    except RedriveError:
        queues = []
    return context.page(
        "store",
        request,
        "Store",
        {
            "folder": str(context.store.folder),
            "word": word,
            "files": [
                file for file in context.store.files() if word.casefold() in file.name.casefold()
            ],
            "command": snapshot_command(
                queues[0] if queues else QueuePlace("QUEUE"),
                str(context.store.folder / "copy.parquet"),
            ),
            "work": work,
            "queues": queues,
            "may_expire": context.settings.may_discard,
        },
    )


def progress(context: ConsoleContext, _: PageRequest) -> Response:
    """Return the progress of the store's task, for its page's script."""
    work = context.store.work
    if work is None:
        return JSONResponse({"ended": True})
    return JSONResponse({"ended": work.has_ended, "values": {"done": f"{work.done:,}"}})


def copy(context: ConsoleContext, request: PageRequest) -> Response:
    """Copy the messages of a queue to a new file; they stay in the queue."""
    _check_permit(context)
    place, path = request.place, context.store.new_path(request.place)
    failed = context.looks.queue(place)

    def act(work: StoreWork) -> str:
        def note(progress: LookProgress) -> None:
            work.done = progress.looked_at

        count = failed.snapshot(path, on_progress=note)
        return f"{count_of(count, 'message')} of {place.name} copied to {path.name}."

    context.store.do(f"copying {place.name}", act)
    return RedirectResponse(request.link("/store"), 303)


def restore(context: ConsoleContext, request: PageRequest) -> Response:
    """Restore the messages of a copy to their queues, as jobs of the journal, without those that
    are there already unless the request asks for duplicates."""
    _check_permit(context)
    name, reason = request.text("name"), request.check_reason()
    kept = context.store.snapshot(name)
    may_duplicate = request.text("duplicate") == "yes"

    def act(work: StoreWork) -> str:
        places = Counter(map(place_of, kept.browse()))
        done = skipped = 0
        for place in sorted(places):
            failed = context.looks.queue(QueuePlace(*place))
            there = Counter() if may_duplicate else digests_in(failed)
            new = sum(1 for _ in missing_from(there, _mine(kept, place), context.settings.family))
            skipped += places[place] - new
            if new:
                done += _restored(context, kept, place, there, new, reason, work)
        return f"{done:,} of {places.total():,} messages of {name} restored." + (
            f" {skipped:,} are in their queue already." if skipped else ""
        )

    context.store.do(f"restoring {name}", act)
    return RedirectResponse(request.link("/store"), 303)


def check_user(context: ConsoleContext) -> None:
    """Check that this user may use the store."""
    if context.permissions.has_login:
        raise PermissionDenied(
            (
                "the store is not available with a login: the broker's permissions do not "
                "cover its files"
            ),
            "Use redrive failed snapshot and restore on the machine that has them.",
        )


def _check_permit(context: ConsoleContext) -> None:
    check_user(context)
    if not context.settings.may_store:
        raise ConfigurationError(
            "this console does not allow copies",
            "Start it with --allow store, or use redrive failed snapshot and restore.",
        )


def _one(context: ConsoleContext, request: PageRequest, name: str) -> Response:
    kept = context.store.snapshot(name)
    groups, look = answer_of(kept, lambda look: look.groups())
    places = Counter(map(place_of, kept.browse()))
    causes = groups.largest_first
    return context.page(
        "kept",
        request,
        name,
        {
            "name": name,
            "command": command("failed", "restore", str(kept.path)),
            "total": look.looked_at,
            "groups": causes[:_MOST_CAUSES],
            "more": max(0, len(causes) - _MOST_CAUSES),
            "places": [(QueuePlace(*place), count) for place, count in places.most_common()],
        },
    )


def _mine(kept: Snapshot, place: RestoreTarget) -> Iterator[FailedMessage]:
    return (message for message in kept.browse() if place_of(message) == place)


def _restored(
    context: ConsoleContext,
    kept: Snapshot,
    place: RestoreTarget,
    there: Counter[bytes],
    count: int,
    reason: str,
    work: StoreWork,
) -> int:
    job = JobRecord(
        str(uuid.uuid4()),
        "restore",
        place.name,
        BrokerURL.parse(context.settings.url).address,
        reason=reason,
        planned=count,
        file=str(kept.path),
        literal=place.is_literal,
    )

    def counted() -> Iterator[FailedMessage]:
        for message in missing_from(there, _mine(kept, place), context.settings.family):
            yield message
            work.done += 1

    failed = context.looks.queue(QueuePlace(*place))
    deliveries = (message.delivery for message in counted())
    with context.worker.journal() as journal:
        return restored(journal, job, failed, deliveries)
