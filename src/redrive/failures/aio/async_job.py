"""The asyncio version of `Job`."""

from dataclasses import fields

from redrive.failures.aio.offloaded import offloaded
from redrive.failures.jobs.job import Job
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.queue.order import Order
from redrive.pubsub.reports import RequeueReport


class AsyncJob(RequeueReport):
    """A requeue of failed messages, like `Job`. Its `RequeueReport` fields describe the last run.

    Args:
        job: the blocking job that it wraps.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(**{one.name: getattr(job, one.name) for one in fields(RequeueReport)})
        self._blocking = job

    @property
    def record(self) -> JobRecord:
        """The job's record in the journal."""
        return self._blocking.record

    @property
    def id(self) -> str:
        """The job's id, which each message that it sent carries."""
        return self._blocking.id

    @property
    def state(self) -> State:
        """The job's state when its last run ended: `done`, `interrupted` or `stopped`."""
        return self._blocking.state

    @property
    def problem(self) -> str:
        """Why the job stopped; empty if it did not."""
        return self._blocking.problem

    @property
    def order(self) -> Order:
        """What the job was told to do; see `Job.order`."""
        return self._blocking.order

    outcome = offloaded(Job.outcome)
    told = offloaded(Job.told)
    left = offloaded(Job.left)

    resume = offloaded(Job.resume, lambda job: AsyncJob(job))
