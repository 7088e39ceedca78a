"""The page that moves failed messages from their queue to a file on the console's machine."""

import uuid
from datetime import UTC, datetime
from pathlib import Path

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.jobs.discard_job import discard_into
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.queue.failed_queue_base import source_of
from redrive.failures.store.filter import Filter
from redrive.failures.store.index import default_folder
from redrive.failures.store.look import Look
from redrive.number_text import count_of
from redrive.pubsub.url import BrokerURL
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.command_lines import discard_command
from redrive.web.context import ConsoleContext
from redrive.web.look_questions import CountOf
from redrive.web.page_request import PageRequest

MOST = 10_000
"""Discard more messages than this on the command line, which shows progress."""


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show what would be discarded, according to the last look."""
    return _page(context, request, "")


def begin(context: ConsoleContext, request: PageRequest) -> Response:
    """Write the messages to a file, delete them from the queue, and show the job."""
    place = request.place
    context.permissions.check(OperatorAct.DISCARD, place)
    failed = context.looks.queue(place)
    try:
        count, _, filter_ = _counted(context, request)
        if count > MOST:
            raise ConfigurationError(
                f"{count_of(count, 'message')} would be discarded",
                f"At most {MOST:,} can be discarded here: use redrive failed discard.",
            )
        reason = request.check_reason()
        request.check_typed(count, "discarded")
        id_ = str(uuid.uuid4())
        job = JobRecord(
            id_,
            "discard",
            source_of(failed).name,
            BrokerURL.parse(context.settings.url).address,
            {"selection": filter_.as_json()},
            reason=reason,
            literal=place.literal,
            planned=count,
            file=str(_file_of(context, id_)),
        )
        with context.worker.journal() as journal:
            discard_into(failed, journal, job, filter_, count)
    except RedriveError as error:
        return _page(context, request, str(error))
    return RedirectResponse(request.link("/job", {"id": id_}), 303)


def _file_of(context: ConsoleContext, id_: str) -> Path:
    # The store is not available with a login.
    own = default_folder().with_name("discarded")
    folder = own if context.permissions.has_login else context.store.folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigurationError(
            f"can't create the folder {str(folder)!r}: {error.strerror}",
            "Free disk space or check its permissions. Nothing was deleted from the queue.",
        ) from error
    return folder / f"discarded-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{id_[:8]}.jsonl"


def _counted(context: ConsoleContext, request: PageRequest) -> tuple[int, Look, Filter]:
    filter_ = context.filter_of(request)
    count, look = context.looks.answer(request.place, CountOf(filter_))
    return count, look, filter_


def _page(context: ConsoleContext, request: PageRequest, problem: str) -> Response:
    place = request.place
    count, look, _ = _counted(context, request)
    return context.page(
        "discard",
        request,
        "Discard",
        {
            "place": place,
            "standing": context.queue_states.state(place, look),
            "count": count,
            "most": MOST,
            "problem": problem,
            "may": context.permissions.may(OperatorAct.DISCARD, place),
            "command": discard_command(place, request.filter, request.text("reason") or "…"),
        },
        400 if problem else 200,
    )
