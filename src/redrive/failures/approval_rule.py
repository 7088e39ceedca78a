"""Who may approve a job that somebody has asked for: another user of the broker's, as the broker
vouches for both.

Two people who share an account are one here. Where the broker vouches for nobody, as with a
certificate, nobody can approve: anybody could write that somebody else has asked.
"""

from dataclasses import replace

from redrive.errors import ConfigurationError
from redrive.failures.job_record import JobRecord, State


def resumed(known: JobRecord, job: JobRecord) -> JobRecord:
    """Return a job that somebody wants to run now, with who has asked for it and who has approved
    it."""
    if known.state in (State.DECLINED, State.FORGOTTEN):
        raise ConfigurationError(f"job {job.id} was {known.problem}", "Plan it again.")
    if known.kind == "requeue":
        check_seen(known, job.digest)
    if known.state is not State.ASKED:
        return job.with_order_of(known)
    if not job.approved_by:
        raise ConfigurationError(
            f"job {job.id} waits for approval, asked for by {known.by}",
            f"Somebody else may: redrive jobs approve {job.id}.",
        )
    check_may_approve(known, job)
    return replace(job.with_order_of(known), asked_by=known.by, approved_by=job.by)


def check_seen(known: JobRecord, digest: str) -> None:
    """Check that what somebody has seen of a job is what it would do."""
    if digest != known.digest:
        raise ConfigurationError(
            f"job {known.id} is not what was shown: it would send something else",
            f"Look at it again: redrive jobs show {known.id}.",
        )


def check_may_approve(known: JobRecord, job: JobRecord) -> None:
    """Check that somebody else approves a job than has asked for it, as the broker vouches."""
    if not known.user:
        raise ConfigurationError(
            f"job {job.id} can't be approved: {known.who} has asked for it by their own word, and "
            "the broker vouches for nobody",
            "Have it declined, and asked for again by a user who logs in with a password or token.",
        )
    if not job.user:
        raise ConfigurationError(
            f"job {job.id} can't be approved by who logs in with a certificate: the broker vouches "
            "for nobody",
            "Approve it as a user who logs in with a password or token.",
        )
    if known.user == job.user:
        raise ConfigurationError(
            f"job {job.id} was asked for by {known.by}, who can't approve it",
            "Somebody else has to, with a broker account of their own.",
        )


def may_approve(known: JobRecord, job: JobRecord) -> bool:
    """Whether an entry that approves a job counts."""
    return bool(known.user and job.user) and known.user != job.user


def is_same(one: JobRecord, other: JobRecord) -> bool:
    """Whether two records are by the same person, as far as anybody can tell; to be read, and never
    to decide anything."""
    if one.user and other.user:
        return one.user == other.user
    return one.who == other.who


def waits_for_none(job: JobRecord) -> ConfigurationError:
    """The error that a job does not wait for an approval."""
    return ConfigurationError(
        f"job {job.id} is {job.state.value}: it waits for no approval",
        f"See: redrive jobs show {job.id}.",
    )
