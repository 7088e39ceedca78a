"""Who may approve a job: a broker user other than the one who asked for it.

The broker has to vouch for both users. Two people who share an account count as one. Where the
broker vouches for nobody, as with a certificate, nobody can approve, because anybody could claim
that somebody else asked.
"""

from dataclasses import replace

from redrive.errors import ConfigurationError
from redrive.failures.jobs.job_record import JobRecord, State


def resumed(known: JobRecord, job: JobRecord) -> JobRecord:
    """Return a job to run now, with who asked for it and who approved it."""
    if known.state is State.DONE:
        raise ConfigurationError(
            f"job {job.id} is done: {known.who} has completed it",
            f"See: redrive jobs show {job.id}.",
        )
    if known.state in (State.DECLINED, State.FORGOTTEN):
        raise ConfigurationError(f"job {job.id} was {known.problem}", "Plan it again.")
    if known.kind == "requeue":
        check_seen(known, job.digest)
    if known.state is not State.ASKED:
        return job.with_order_of(known)
    if not job.approved_by:
        raise ConfigurationError(
            f"job {job.id} waits for approval, asked for by {known.by}",
            f"Somebody else may approve it: redrive jobs approve {job.id}.",
        )
    check_may_approve(known, job)
    return replace(job.with_order_of(known), asked_by=known.by, approved_by=job.by)


def check_seen(known: JobRecord, digest: str) -> None:
    """Check that a job would still do what its approver was shown."""
    if digest != known.digest:
        raise ConfigurationError(
            f"job {known.id} is not what was shown: it would send something else",
            f"Look at it again: redrive jobs show {known.id}.",
        )


def check_may_approve(known: JobRecord, job: JobRecord) -> None:
    """Check that the broker vouches for both users, and that the approver did not ask for the
    job."""
    if not known.user:
        raise ConfigurationError(
            f"job {job.id} can't be approved: the broker does not vouch for {known.who}, who asked "
            "for it",
            "Decline it, and ask for it again as a user who logs in with a password or token.",
        )
    if not job.user:
        raise ConfigurationError(
            f"job {job.id} can't be approved by a user who logs in with a certificate: the broker "
            "does not vouch for them",
            "Approve it as a user who logs in with a password or token.",
        )
    if known.user == job.user:
        raise ConfigurationError(
            f"job {job.id} was asked for by {known.by}, who can't approve it",
            "Somebody else has to approve it, with a broker account of their own.",
        )


def may_approve(asked_by: str, user: str) -> bool:
    """Return whether a journal entry of a user counts that approves a job of another."""
    return bool(asked_by and user) and asked_by != user


def is_same(one: JobRecord, other: JobRecord) -> bool:
    """Return whether two records seem to be by the same person; for display only, never for a
    decision."""
    if one.user and other.user:
        return one.user == other.user
    return one.who == other.who


def waits_for_none(job: JobRecord) -> ConfigurationError:
    """Return the error that a job is not waiting for approval."""
    return ConfigurationError(
        f"job {job.id} is {job.state.value}: it is not waiting for approval",
        f"See: redrive jobs show {job.id}.",
    )
