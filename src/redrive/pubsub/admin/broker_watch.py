"""Watch the message counts of a virtual host's queues over the management API alone.

No message is read, moved or held.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.admin.management_survey import routes_over_management
from redrive.pubsub.url import BrokerURL
from redrive.topology.dead_letter_queues import dead_letter_queues
from redrive.topology.flow import QueueCount
from redrive.topology.queue_role import QueueRole, queue_roles

logger = logging.getLogger("redrive")

QUEUES, DEAD_LETTER_QUEUES = "queues", "dead-letter-queues"
SURVEYS = (QUEUES, DEAD_LETTER_QUEUES)
_LAST_SECONDS = 1.0
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""Exceptions raised by an answer with an unexpected structure."""
_WORDS = {QUEUES: "queues", DEAD_LETTER_QUEUES: "dead-letter queues of others"}
_SURVEY_SECONDS = 60.0
"""How often all queues, exchanges and bindings are listed, to find the dead-letter queues."""
_GRACE_SECONDS = 30.0
"""How overdue an answer may be before the last sample is too old to be returned."""


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """What the broker reported last.

    Args:
        queues: the counts of each queue that has a role.
        problems: why the survey of `queues` or of `dead-letter-queues` has no result.
    """

    queues: tuple[tuple[QueueRole, QueueCount], ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)


class BrokerWatch:
    """A poller of the management API, on its own thread, that keeps the last answer.

    Once a poll fails, the values of the previous one are dropped.
    """

    def __init__(self, url: BrokerURL, management_url: str | None, every: timedelta) -> None:
        self._management = ManagementAPI(url, management_url)
        self._every = every.total_seconds()
        self._told = BrokerSample()
        self._told_at = 0.0
        self._dead_letter_queues: Collection[str] = ()
        self._surveyed_at = -_SURVEY_SECONDS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redrive-watch", daemon=True)

    def start(self) -> None:
        """Poll once, then keep polling until `stop`. A broker that does not answer is asked
        again."""
        try:
            self._look()
        except (BrokerUnavailable, *_UNREADABLE) as error:
            self._fails(error)
        self._thread.start()

    def stop(self) -> None:
        """Stop polling, whether or not it has started, and wait at most a second for a pending
        request."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)
        else:
            self._management.close()

    @property
    def alive(self) -> bool:
        """Whether the polling thread is running."""
        return self._thread.is_alive()

    def now(self) -> BrokerSample:
        """Return the current sample, or only problems if the last answer is too old."""
        late = time.monotonic() - self._told_at - self._every
        if late > _GRACE_SECONDS and not self._told.problems:
            problem = f"the management API has not answered for {late + self._every:.0f} s"
            return BrokerSample(problems=dict.fromkeys(SURVEYS, problem))
        return self._told

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            try:
                self._look()
            except (RedriveError, *_UNREADABLE) as error:
                self._fails(error)
        self._management.close()

    def _look(self) -> None:
        counts = self._management.counts()
        problem = self._survey()
        roles = queue_roles(counts, self._dead_letter_queues)
        problems = {DEAD_LETTER_QUEUES: problem} if problem else {}
        if counts and all(count.total is None for count in counts.values()):
            problems[QUEUES] = "the management API reports no counts: the broker has no statistics"
        self._tell(BrokerSample(tuple((role, counts[role.queue]) for role in roles), problems))

    def _survey(self) -> str:
        """Find the dead-letter queues if a survey is due; return the reason if that fails, else
        ""."""
        if time.monotonic() - self._surveyed_at < _SURVEY_SECONDS:
            return ""
        try:
            found = dead_letter_queues(routes_over_management(self._management))
        except (RedriveError, *_UNREADABLE) as error:
            self._dead_letter_queues = ()
            return _line(error)
        self._dead_letter_queues = [one.name for one in found]
        self._surveyed_at = time.monotonic()
        return ""

    def _fails(self, error: Exception) -> None:
        self._tell(BrokerSample(problems=dict.fromkeys(SURVEYS, _line(error))))

    def _tell(self, told: BrokerSample) -> None:
        for survey in SURVEYS:
            problem, before = told.problems.get(survey), self._told.problems.get(survey)
            if problem and not before:
                logger.warning("the %s are not measured: %s", _WORDS[survey], problem)
            elif before and not problem:
                logger.info("the %s are measured again", _WORDS[survey])
            if QUEUES in {**told.problems, **self._told.problems}:
                break  # without the queues there are no dead-letter queues either
        self._told = told
        self._told_at = time.monotonic()


def _line(error: Exception) -> str:
    if isinstance(error, _UNREADABLE):
        return f"the management API's answer can't be read: {type(error).__name__}"
    return str(error).partition("\n")[0]
