"""The command that continues a job on Spark, from what the journal records about the job."""

import shlex
from collections.abc import Iterator, Mapping

from redrive.failures.jobs.job_record import JobRecord
from redrive.redaction import in_one_line
from redrive.topology.names import ExchangeFamily

_PREFIX = "spark "
_PATCH_FILE = "FILE"


def is_on_spark(job: JobRecord) -> bool:
    """Return whether a job runs on Spark."""
    return job.kind.startswith(_PREFIX)


def run_of(job: JobRecord) -> str:
    """Return the run of the archive that a job on Spark works on; empty if it is not recorded."""
    return _text(job.order, "run")


def command_of(job: JobRecord) -> str:
    """Return the command that continues a job on Spark. People have to type it: the archive is
    where Spark can reach it, and the journal may be somebody else's."""
    name = job.kind.removeprefix(_PREFIX)
    if name == "requeue" and job.order.get("command") == "send":
        name = "send"
    words = ["redrive", "spark", name, *_arguments_of(job, name)]
    return in_one_line(
        " ".join(word if word == _PATCH_FILE else shlex.quote(word) for word in words)
    )


def _arguments_of(job: JobRecord, name: str) -> Iterator[str]:
    takes_queues = name in ("requeue", "drain")
    file = _text(job.order, "from")
    if takes_queues:
        yield from _family_of(job)
    if takes_queues and not file:
        queues = job.order.get("queues")
        yield from (str(queue) for queue in queues if queue) if isinstance(queues, list) else ()
    yield from ("--archive", job.file)
    if file:
        yield from ("--from", file)
    if not takes_queues:
        yield from ("--run", run_of(job))
    selection = job.order.get("selection")
    where = _text(selection, "where") if isinstance(selection, dict) else ""
    if where:
        yield from ("--where", where)
    for option in ("to", "transform", "order_by"):
        if _text(job.order, option):
            yield from (f"--{option.replace('_', '-')}", _text(job.order, option))
    if job.order.get("patch"):
        yield from ("--patch", _PATCH_FILE)
    for flag in ("via", "unchecked", "force", "keep", "literal"):
        if job.order.get(flag) is True:
            yield f"--{flag}"


def _family_of(job: JobRecord) -> Iterator[str]:
    """Yield the options that name a non-default exchange family; a run of the archive has its
    own."""
    usual = ExchangeFamily()
    for name, option, default in (
        ("main", "--exchange", usual.main),
        ("retry_suffix", "--retry-suffix", usual.retry_suffix),
        ("failed_suffix", "--failed-suffix", usual.failed_suffix),
    ):
        value = _text(job.exchanges, name)
        if value and value != default:
            yield from (option, value)


def _text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""
