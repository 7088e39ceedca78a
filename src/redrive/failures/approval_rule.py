"""Who may approve a job that somebody has asked for: anybody else.

Who somebody is, the broker's user says, for whom the broker vouches: two people who share one are
one here. Where the broker does not vouch, as with a certificate, it is the user of the operating
system and its host.
"""

from dataclasses import replace

from redrive.errors import ConfigurationError
from redrive.failures.job_record import JobRecord, State


def approved(known: JobRecord, job: JobRecord) -> JobRecord:
    """A job that somebody wants to run now, with who has asked for it and who has approved it.

    Args:
        known: what the journal has of it.
        job: it, with who wants to run it; `approved_by` says whether that is to approve it.

    Raises:
        ConfigurationError: it waits for an approval, and this is none, or by whoever has asked; or
            it was declined.
    """
    if known.state is State.DECLINED:
        raise ConfigurationError(f"job {job.id} was {known.problem}", "Plan it again.")
    if known.state is not State.ASKED:
        return replace(job, asked_by=known.asked_by, approved_by=known.approved_by)
    if not job.approved_by:
        raise ConfigurationError(
            f"job {job.id} waits for approval, asked for by {known.by}",
            f"Somebody else may: redrive jobs approve {job.id}.",
        )
    check_may_approve(known, job)
    return replace(job, asked_by=known.by, approved_by=job.by)


def check_may_approve(known: JobRecord, job: JobRecord) -> None:
    """Checks that somebody else approves a job than has asked for it.

    Args:
        known: the job, with who has asked.
        job: it, with who approves.

    Raises:
        ConfigurationError: they are one, as far as anybody can tell.
    """
    if is_same(known, job):
        raise ConfigurationError(
            f"job {job.id} was asked for by {known.by}, who can't approve it",
            "Somebody else has to, with a broker account of their own.",
        )


def is_same(one: JobRecord, other: JobRecord) -> bool:
    """Whether two records are by the same person, as far as anybody can tell."""
    if one.user and other.user:
        return one.user == other.user
    return one.who == other.who


def waits_for_none(job: JobRecord) -> ConfigurationError:
    """The error that a job does not wait for an approval."""
    return ConfigurationError(
        f"job {job.id} is {job.state.value}: it waits for no approval",
        f"See: redrive jobs show {job.id}.",
    )
