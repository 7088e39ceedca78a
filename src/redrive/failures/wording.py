"""What plans and jobs say, in the same words on the command line, in the console and on Spark.

Anyone who may write to the journal may have forged what it says of a job: it is shown, not
believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.message.route import Verdict
from redrive.failures.queue.order import Fact
from redrive.number_text import count_of, moment_in_words
from redrive.redaction import in_one_line
from redrive.topology.headers import counted
from redrive.topology.rewrite import MOST_REDRIVES

_LONGEST = 200
WHY_THEY_STAY = {
    Verdict.UNKNOWN: "nothing says which queue {they} failed in",
    Verdict.CONTRADICTED: "what {they} {say} about {their} way back is contradicted",
    Verdict.UNCHECKED: "the broker could not confirm {their} way back",
}
"""Why a plan leaves messages out, in the order in which it is told."""
_ONE = {"they": "it", "them": "it", "their": "its", "say": "says", "were": "was"}
_SEVERAL = {word: word for word in _ONE}
_DONE = {
    "requeue": "requeued",
    "discard": "deleted",
    "expire": "deleted",
    "restore": "restored",
    "spark drain": "drained",
    "spark requeue": "requeued",
    "spark restore": "restored",
    "spark discard": "discarded",
}
"""What each kind of job did with the messages that the journal counts as sent."""


def pluralized(text: str, count: int) -> str:
    """Return a text whose pronouns, in braces, agree with a number of messages."""
    return text.format_map(_ONE if count == 1 else _SEVERAL)


# --- plans ----------------------------------------------------------------------------------------


def too_often(count: int) -> str:
    """Say how many messages stay because they were requeued too often."""
    return f"{count_of(count, 'message')} not included: requeued {MOST_REDRIVES} times before."


def not_included(verdict: Verdict, count: int) -> str:
    """Say how many messages stay because of the verdict on their way back."""
    return (
        f"{count_of(count, 'message')} not included: {pluralized(WHY_THEY_STAY[verdict], count)}."
    )


def shared_ids(count: int) -> str:
    """Say how many failure ids are shared by messages that differ."""
    what, which = ("failure id is", "it") if count == 1 else ("failure ids are", "each")
    return (
        f"{count:,} {what} shared by messages that differ; at most one message with {which} is "
        "genuine. Each message is handled separately."
    )


def possible_duplicates(count: int, lost: str = "the connection or the process") -> str:
    """Say how many messages may have been sent twice."""
    lost_while = pluralized(f"{lost} was lost while {{they}} {{were}} in flight", count)
    return f"{count_of(count, 'possible duplicate')}: {lost_while}."


# --- jobs -----------------------------------------------------------------------------------------


_WAITS = {State.WAITING: "waiting to start", State.ASKED: "waiting for approval"}


def state_in_words(state: State) -> str:
    """Return the state of a job."""
    return _WAITS.get(state, state.value)


@dataclass(frozen=True, slots=True)
class JobTotals:
    """What happened to the messages of a job.

    Args:
        planned: how many it should send.
        succeeded: how many a subscriber has reported as handled.
        failed_again: how many are known to have failed again.
        on_the_way: how many were sent, but are not known to have succeeded or failed again.
        not_sent: how many could not be sent.
        not_tried: the rest.
    """

    planned: int
    succeeded: int
    failed_again: int
    on_the_way: int
    not_sent: int
    not_tried: int

    @classmethod
    def of(cls, job: JobRecord) -> "JobTotals":
        """Return the totals of a job of the journal."""
        outcome = job.outcome
        return cls(
            job.planned,
            outcome.succeeded,
            outcome.failed_again,
            outcome.retrying + outcome.unknown,
            job.not_sent,
            max(0, job.planned - job.sent - job.not_sent),
        )

    @property
    def adds_up(self) -> bool:
        """Whether the parts add up to the planned number."""
        parts = self.succeeded + self.failed_again + self.on_the_way + self.not_sent
        return parts + self.not_tried == self.planned


@dataclass(frozen=True, slots=True)
class PlannedCause:
    """A cause in a job's plan.

    Args:
        count: how many of its messages the job should send.
        group_id: the group id of the cause.
        what: the cause in words.
    """

    count: int
    group_id: str
    what: str


def causes_of(job: JobRecord) -> list[PlannedCause]:
    """Return the messages that a job should send, by cause."""
    found = _plan_of(job).get("causes")
    return [
        PlannedCause(
            counted(one.get("count")),
            str(one.get("group_id") or "")[:_LONGEST],
            ": ".join(
                str(one[name])[:_LONGEST] for name in ("error_type", "message") if one.get(name)
            ),
        )
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict)
    ]


def _plan_of(job: JobRecord) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", job.plan)


def job_facts(job: JobRecord) -> list[Fact]:
    """Return what a job is, who runs it, and why."""
    facts = (
        Fact("job", job.id),
        Fact("action", job.kind),
        Fact("queue", job.queue),
        Fact("broker", job.broker),
        Fact("who", job.by),
        Fact("asked for by", job.asked_by),
        Fact("approved by", job.approved_by),
        Fact("why", job.reason or "–"),
    )
    return [fact for fact in facts if fact.text]


def status_facts(job: JobRecord) -> list[Fact]:
    """Return when a job began, when it last changed, and its state."""
    problem = f": {job.problem}" if job.problem else ""
    return [
        Fact("started", moment_in_words(job.begun_at)),
        Fact("last update", moment_in_words(job.changed_at)),
        Fact("state", f"{state_in_words(job.state)}{problem}"),
    ]


def result_facts(job: JobRecord, most_causes: int | None = None) -> list[Fact]:
    """Return what a job should send, by cause, and what became of its messages."""
    facts = [
        Fact("planned", f"{job.planned:,}"),
        *(Fact("", line) for line in _planned(job, most_causes)),
        Fact(_DONE.get(job.kind, "sent"), f"{job.sent:,}"),
    ]
    if job.kind == "requeue":
        facts += [
            Fact(name.replace("_", " "), f"{count:,}")
            for name, count in job.outcome._asdict().items()
        ]
    if job.reported_twice:
        said = f"{job.reported_twice:,} more outcomes than messages: some were delivered twice"
        facts.append(Fact("reported twice", said))
    if job.not_sent or job.kind == "requeue":
        facts.append(Fact("not sent", f"{job.not_sent:,}"))
    if job.kind == "requeue":
        facts.append(Fact("not tried", f"{JobTotals.of(job).not_tried:,}"))
    if job.possible_duplicates:
        known = len(job.duplicate_ids)
        ids = f", {known:,} with a known id" if known < job.possible_duplicates else ""
        facts.append(Fact("maybe twice", f"{job.possible_duplicates:,}{ids}"))
    return facts


def _planned(job: JobRecord, most_causes: int | None) -> list[str]:
    """Return lines about what a job should send, by cause, and what should stay."""
    causes = causes_of(job)
    lines = [
        f"{one.count:,} {in_one_line(one.group_id)}  {in_one_line(one.what or 'no error recorded')}"
        for one in causes[:most_causes]
    ]
    more = len(causes) - len(lines) + counted(_plan_of(job).get("other_causes"))
    lines += [f"and {count_of(more, 'further cause')}"] if more else []
    found = _plan_of(job).get("stay")
    stay = found if isinstance(found, dict) else {}
    if often := counted(stay.get("requeued_too_often")):
        lines.append(f"{count_of(often, 'message')} not included: requeued too often before.")
    for name, verdict in _STAY.items():
        if count := counted(stay.get(name)):
            lines.append(not_included(verdict, count))
    if others := counted(_plan_of(job).get("not_meant")):
        lines.append(f"{count_of(others, 'other')} that the filter does not match")
    return lines


_STAY = {
    "no_way_back": Verdict.UNKNOWN,
    "contradicted": Verdict.CONTRADICTED,
    "unchecked": Verdict.UNCHECKED,
}
"""The names under which the journal has why messages stay."""


def job_json(job: JobRecord) -> dict[str, object]:
    """Return a job as JSON values; a requeue has the outcome of its messages too."""
    if job.kind != "requeue":
        return job.as_json()
    return {
        **job.as_json(),
        **job.outcome._asdict(),
        "reported_twice": job.reported_twice,
        "digest": job.digest,
    }
