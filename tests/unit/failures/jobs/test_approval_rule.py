"""Who may approve a job: anybody but whoever has asked for it."""

from dataclasses import replace

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.jobs.approval_rule import (
    check_may_approve,
    is_same,
    resumed,
    waits_for_none,
)
from redrive.failures.jobs.job_record import JobRecord, State

ASKED = JobRecord(
    "3f2a",
    "requeue",
    "shop@orders",
    "amqp://localhost/",
    who="anna on laptop",
    user="anna",
    state=State.ASKED,
)
BY_BEN = replace(ASKED, who="ben on desktop", user="ben", approved_by="whoever begins it")


def test_the_brokers_user_says_who_somebody_is() -> None:
    assert is_same(ASKED, replace(BY_BEN, user="anna"))
    assert not is_same(ASKED, replace(ASKED, user="ben"))


@pytest.mark.parametrize("user", ["", "anna"])
def test_where_the_broker_does_not_say_it_the_machines_user_does(user: str) -> None:
    known = replace(ASKED, user=user)
    assert is_same(known, replace(ASKED, user=""))
    assert not is_same(known, replace(BY_BEN, user=""))


def test_who_has_asked_can_not_approve() -> None:
    with pytest.raises(ConfigurationError, match="who can't approve it"):
        check_may_approve(ASKED, replace(ASKED, who="anna on another machine"))
    with pytest.raises(ConfigurationError, match="who can't approve it"):
        resumed(ASKED, replace(ASKED, approved_by="whoever begins it"))


def test_nobody_approves_what_was_asked_for_by_whom_the_broker_does_not_vouch_for() -> None:
    with pytest.raises(ConfigurationError, match="does not vouch for anna"):
        check_may_approve(replace(ASKED, user=""), BY_BEN)


def test_whom_the_broker_does_not_vouch_for_approves_nothing() -> None:
    with pytest.raises(ConfigurationError, match="by a user who logs in with a certificate"):
        check_may_approve(ASKED, replace(BY_BEN, user=""))


@pytest.mark.parametrize("state", [State.ASKED, State.STOPPED])
def test_what_is_not_what_was_seen_does_not_run(state: State) -> None:
    seen = replace(BY_BEN, planned=2)
    with pytest.raises(ConfigurationError, match="is not what was shown"):
        resumed(replace(ASKED, state=state), seen)


def test_somebody_else_approves_and_both_are_named() -> None:
    job = resumed(ASKED, BY_BEN)
    assert (job.asked_by, job.approved_by) == (ASKED.by, BY_BEN.by)


def test_a_job_that_waits_does_not_run_because_somebody_resumes_it() -> None:
    with pytest.raises(ConfigurationError, match="waits for approval"):
        resumed(ASKED, replace(BY_BEN, approved_by=""))


def test_a_job_that_was_declined_does_not_run_whoever_approves_it() -> None:
    declined = replace(ASKED, state=State.DECLINED, problem="declined by ben")
    with pytest.raises(ConfigurationError, match="was declined by ben"):
        resumed(declined, BY_BEN)


def test_who_approved_a_job_stays_when_it_is_resumed() -> None:
    known = replace(ASKED, state=State.STOPPED, asked_by="anna", approved_by="ben")
    job = resumed(known, replace(ASKED, asked_by="somebody", approved_by=""))
    assert (job.asked_by, job.approved_by) == ("anna", "ben")


def test_a_job_that_is_done_says_that_it_waits_for_none() -> None:
    assert "is done: it is not waiting for approval" in str(
        waits_for_none(replace(ASKED, state=State.DONE))
    )
