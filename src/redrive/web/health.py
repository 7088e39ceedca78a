"""The doctor's findings for a broker, refreshed in the background."""

import threading
import time
from dataclasses import dataclass, field

from redrive.errors import RedriveError
from redrive.pubsub.admin.management_survey import checked_up
from redrive.topology.doctor.finding import Finding
from redrive.web.console_settings import ConsoleSettings

_FRESH = 120.0
"""Seconds for which the findings are shown before they are refreshed."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor found.

    Args:
        findings: the problems.
        subscriptions: how many subscriptions were checked.
        problem: why they could not be checked; empty otherwise.
    """

    findings: list[Finding] = field(default_factory=list)
    subscriptions: int = 0
    problem: str = ""


class Health:
    """The doctor's findings, refreshed every two minutes at most and only while pages are
    viewed."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._is_asking = False
        self._asked_at = float("-inf")
        self._known: Diagnosis | None = None

    @property
    def known(self) -> Diagnosis | None:
        """The latest findings; None before the first. Old ones are refreshed in the background."""
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
