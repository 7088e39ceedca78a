"""What the doctor finds at a broker, looked after in the background and now and then."""

import threading
import time
from dataclasses import dataclass, field

from redrive.errors import RedriveError
from redrive.pubsub.admin.management_survey import checked_up
from redrive.topology.doctor.finding import Finding
from redrive.web.console_settings import ConsoleSettings

_FRESH = 120.0
"""Seconds for which what was found is shown."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor has found.

    Args:
        findings: what will hurt.
        subscriptions: how many were looked at.
        problem: why they could not be; empty otherwise.
    """

    findings: list[Finding] = field(default_factory=list)
    subscriptions: int = 0
    problem: str = ""


class Health:
    """Asks the doctor, each two minutes at most and only while somebody looks."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._is_asking = False
        self._asked_at = float("-inf")
        self._known: Diagnosis | None = None

    @property
    def known(self) -> Diagnosis | None:
        """What was found last; None until something was. It is asked for anew behind a page's
        back where that is old."""
        with self._lock:
            is_old = time.monotonic() - self._asked_at > _FRESH
            if is_old and not self._is_asking:
                self._is_asking = True
                threading.Thread(target=self._ask, name="redrive-doctor", daemon=True).start()
            return self._known

    def _ask(self) -> None:
        try:
            settings = self._settings
            found = checked_up(settings.url, settings.management_url, settings.family)
            known = Diagnosis(found.findings, found.subscriptions)
        except RedriveError as error:
            known = Diagnosis(problem=str(error).partition("\n")[0])
        with self._lock:
            self._known, self._asked_at, self._is_asking = known, time.monotonic(), False
