"""The asyncio version of `Job`."""

from dataclasses import fields

from redrive.failures.canary import Unknown
from redrive.failures.job import Job
from redrive.failures.job_record import JobOutcome, JobRecord, State
from redrive.failures.look_reporter import OnLook
from redrive.failures.order import Order
from redrive.failures.plan import Plan
from redrive.failures.requeue import Cancel, Progress
from redrive.failures.requeue_job import Notice, OnOutcome
from redrive.pubsub.aio.threads import on_loop, run_out, to_its_end
from redrive.pubsub.reports import RequeueReport
from redrive.topology.durations import Duration


class AsyncJob(RequeueReport):
    """A requeue of failed messages, like `Job`. Its `RequeueReport` fields describe the last run.

    Args:
        job: the blocking job that it wraps.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(**{one.name: getattr(job, one.name) for one in fields(RequeueReport)})
        self._job = job

    @property
    def record(self) -> JobRecord:
        """The job's record in the journal."""
        return self._job.record

    @property
    def id(self) -> str:
        """The job's id, which each message that it sent carries."""
        return self._job.id

    @property
    def state(self) -> State:
        """The job's state when its last run ended: `done`, `interrupted` or `stopped`."""
        return self._job.state

    @property
    def problem(self) -> str:
        """Why the job stopped; empty if it did not."""
        return self._job.problem

    @property
    def order(self) -> Order:
        """What the job was told to do; see `Job.order`."""
        return self._job.order

    async def outcome(
        self, *, on_progress: OnLook | None = None, patience: Duration | None = None
    ) -> JobOutcome:
        """Return what has become of the job's messages by now, as `Job.outcome` does."""
        told = on_loop(on_progress)
        return await to_its_end(lambda: self._job.outcome(on_progress=told, patience=patience))

    async def told(self) -> JobOutcome:
        """Return the outcomes that subscribers have reported, as `Job.told` does."""
        return await to_its_end(self._job.told)

    async def left(self, *, on_progress: OnLook | None = None) -> Plan:
        """Return what the job would still send, as `Job.left` does."""
        told = on_loop(on_progress)
        return await to_its_end(lambda: self._job.left(on_progress=told))

    async def resume(
        self,
        plan: Plan | None = None,
        *,
        watch: Duration | None = None,
        unknown: Unknown | None = None,
        on_progress: Progress | None = None,
        on_notice: Notice | None = None,
        on_outcome: OnOutcome | None = None,
        cancel: Cancel | None = None,
    ) -> "AsyncJob":
        """Continue a job that was interrupted or stopped, as `Job.resume` does.

        If the task is cancelled, messages in flight are settled before it raises.
        """
        tell_people, tell_outcome = on_loop(on_notice), on_loop(on_outcome)
        return AsyncJob(
            await run_out(
                lambda tell, stop: self._job.resume(
                    plan,
                    watch=watch,
                    unknown=unknown,
                    on_progress=tell,
                    on_notice=tell_people,
                    on_outcome=tell_outcome,
                    cancel=stop,
                ),
                on_progress,
                cancel,
            )
        )
