"""The pages of the store: the copies of failed messages, their contents, and their restore."""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from starlette.responses import JSONResponse, RedirectResponse, Response

from redrive.errors import ConfigurationError, PermissionDenied, RedriveError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.job_record import JobRecord
from redrive.failures.message_source import answer_of
from redrive.failures.restore_target import RestoreTarget, place_of, restored, there_already
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.reports import LookProgress
from redrive.pubsub.url import BrokerURL
from redrive.web.command_lines import restore_command, snapshot_command
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
        queues = [line.place for line in context.queue_states.lines() if line.failed]
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
        return (
            f"1 message of {place.name} copied to {path.name}."
            if count == 1
            else f"{count:,} messages of {place.name} copied to {path.name}."
        )

    context.store.do(f"copying {place.name}", act)
    return RedirectResponse(request.link("/store"), 303)


def restore(context: ConsoleContext, request: PageRequest) -> Response:
    """Restore the messages of a copy to their queues, as jobs of the journal. If some are there
    already, none is restored unless the request allows duplicates."""
    _check_permit(context)
    name, reason = request.text("name"), request.reason
    kept = context.store.snapshot(name)
    if not reason:
        raise ConfigurationError("no reason given", "Give one: it goes into the journal.")
    may_duplicate = request.text("duplicate") == "yes"

    def act(work: StoreWork) -> str:
        places = Counter(map(place_of, kept.browse()))
        for place in () if may_duplicate else sorted(places):
            _check_not_there(context, kept, place)
        count = sum(
            _restored(context, kept, place, places[place], reason, work) for place in sorted(places)
        )
        return (
            f"{count:,} of 1 message of {name} restored."
            if places.total() == 1
            else f"{count:,} of {places.total():,} messages of {name} restored."
        )

    context.store.do(f"restoring {name}", act)
    return RedirectResponse(request.link("/store"), 303)


def check_user(context: ConsoleContext) -> None:
    """Check that this user may use the store."""
    if context.has_login:
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
            "command": restore_command(str(kept.path)),
            "total": look.looked_at,
            "groups": causes[:_MOST_CAUSES],
            "more": max(0, len(causes) - _MOST_CAUSES),
            "places": [(QueuePlace(*place), count) for place, count in places.most_common()],
        },
    )


def _mine(kept: Snapshot, place: RestoreTarget) -> Iterator[FailedMessage]:
    return (message for message in kept.browse() if place_of(message) == place)


def _check_not_there(context: ConsoleContext, kept: Snapshot, place: RestoreTarget) -> None:
    failed = context.looks.queue(QueuePlace(*place))
    count = there_already(failed, _mine(kept, place), context.settings.family)
    if count:
        raise ConfigurationError(
            (
                f"1 message of this file is in {place.queue!r} already and would be duplicated"
                if count == 1
                else f"{count:,} messages of this file are in {place.queue!r} already and "
                "would be duplicated"
            ),
            "Nothing was restored. To restore anyway, allow duplicates.",
        )


def _restored(
    context: ConsoleContext,
    kept: Snapshot,
    place: RestoreTarget,
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
        for message in _mine(kept, place):
            yield message
            work.done += 1

    failed = context.looks.queue(QueuePlace(*place))
    deliveries = (message.delivery for message in counted())
    with context.worker.journal() as journal:
        return restored(journal, job, failed, deliveries)
