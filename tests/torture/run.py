"""One torture run, from its broker's start to its report."""

import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torture.checker import LATE_NS, LATE_ON_A_BUSY_MACHINE_NS, Disturbance, Ledger, Report, check
from torture.event_journal import JournalReader
from torture.fault_plan import fault_plan
from torture.injection import Injector, now
from torture.lanes import LANES, ORPHANS, SHELLS, WORKERS_PER_SHELL, lane_of
from torture.plants import kinds_of
from torture.program import Settings, publishing_is_over
from torture.site import Site
from torture.supervisor import Supervised, Supervisor, run_to_its_end

_BETWEEN_LOOKS = 0.25
_BETWEEN_WORDS = 3.0
_MOVING_SECONDS = 180.0
_QUIET_SECONDS = 45.0
"""Longer than the longest delay: for so long nothing may be heard of a message that waits."""
_SENT_AGAIN_SECONDS = 240.0
"""What a quorum queue dead-letters, and nobody confirms because a node was just killed, is sent
again after three minutes. Source: RabbitMQ, rabbit_fifo_dlx_worker,
`dead_letter_worker_publisher_confirm_timeout` (180 s by default); met on 4.3.6, on a busy machine,
and on 3.10.8, whose queues found no exchange while it started.
"""
_DRAIN_SECONDS = 900.0
_CALM_SECONDS = 40.0
"""Publishing goes on for so long after the last fault: what is late then has no excuse."""
_MOST_RELEASES = 5


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be run.

    Args:
        seed: which faults.
        minutes: for how long.
        faults: how many of them at most; None for any number.
        version: which RabbitMQ, such as `4.3`; the one there is where it is empty.
        nodes: how many nodes it has.
        plant: the bug that is put in place; empty for none.
    """

    seed: int = 1
    minutes: float = 3.0
    faults: int | None = None
    version: str = ""
    nodes: int = 1
    plant: str = ""


@dataclass(slots=True)
class Result:
    """What a run has come to.

    Args:
        options: what was run.
        broker: on what.
        faults: how many there were of each kind.
        releases: how often dead-lettering that had stopped was released.
        deaths: which processes have died by themselves, and how.
        notes: what else is worth knowing.
        seconds: how long it took.
        report: what became of all messages.
        folder: where the evidence is; None where it is deleted.
    """

    options: Options
    broker: str
    report: Report
    faults: dict[str, int] = field(default_factory=dict)
    releases: int = 0
    deaths: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    folder: Path | None = None

    def as_json(self) -> str:
        """It as JSON."""
        values = asdict(self)
        values["folder"] = str(self.folder) if self.folder else None
        return json.dumps(values, indent=2)


class TortureRun:
    """A run that has begun.

    Args:
        options: what is to be run.
        tell: is told how far it is, every few seconds.
    """

    def __init__(self, options: Options, tell: Callable[[str], None]) -> None:
        self._options = options
        self._tell = tell
        self._folder = Path(tempfile.mkdtemp(prefix="redrive-torture-"))
        self._reader = JournalReader(self._folder)
        self._ledger = Ledger(LANES)
        self._disturbances: list[Disturbance] = []
        self._faults: Counter[str] = Counter()
        self._notes: list[str] = []
        self._plan_file = self._folder / "plan.txt"
        self._doing = "starting the broker"
        self._orphans = 0
        self._begun = time.monotonic()
        self._is_over = threading.Event()

    def result(self) -> Result:
        """Runs to the end and counts."""
        telling = threading.Thread(target=self._go_on_telling, daemon=True)
        telling.start()
        try:
            with Site(self._options.nodes, self._options.version) as site:
                result = self._on(site)
        except KeyboardInterrupt:
            self._forget()
            raise
        except BaseException:
            self._tell(f"what there is of it is in {self._folder}")
            raise
        finally:
            self._is_over.set()
            telling.join()
        if not result.report.findings:
            self._forget()
            result.folder = None
        return result

    def _forget(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _on(self, site: Site) -> Result:
        self._say("declaring")
        self._declare(site)
        processes = self._processes(site)
        injector = Injector(
            site,
            *processes,
            make_orphans=lambda count: self._make_orphans(site, count),
            hold=self._pass_time,
        )
        with Supervisor(process for kind in processes for process in kind) as supervisor:
            self._say("starting the processes")
            self._wait_until_moving()
            self._do_faults(injector)
            self._say("calm")
            self._pass_time(_CALM_SECONDS)
            publishing_is_over(self._folder).touch()
            releases = self._drain(site, supervisor, processes[1])
            self._say("ending the processes")
            supervisor.stop()
        self._note_deaths(supervisor)
        self._read()
        self._say("counting")
        return self._counted(site, supervisor, releases)

    def _counted(self, site: Site, supervisor: Supervisor, releases: int) -> Result:
        # A planted bug is to be found by what it delays.
        late_ns = LATE_NS if self._options.plant else LATE_ON_A_BUSY_MACHINE_NS
        report = check(self._ledger, site.remains(), self._disturbances, late_ns)
        result = Result(
            self._options,
            site.origin,
            report,
            dict(self._faults),
            releases,
            dict(Counter(map(str, supervisor.deaths))),
            self._notes,
            time.monotonic() - self._begun,
            self._folder,
        )
        if report.findings:
            (self._folder / "broker.log").write_text(site.log)
            site.save_data(self._folder)
            (self._folder / "result.json").write_text(result.as_json())
            (self._folder / "disturbances.txt").write_text(
                "".join(f"{one.begin} {one.end} {one.what}\n" for one in self._disturbances)
            )
        return result

    # --- what is there ----------------------------------------------------------------------------

    def _settings(self, site: Site, name: str, url: str, shell: str) -> Settings:
        plant = self._options.plant
        return Settings(name, str(self._folder), url, shell, plant, site.version)

    def _declare(self, site: Site) -> None:
        for shell in SHELLS:
            settings = self._settings(site, f"declare-{shell}", site.direct_url, shell)
            run_to_its_end(settings, "worker_program", "declare")
        # Which makes the ladder, too.
        self._make_orphans(site, 1)
        site.let_it_remember()

    def _make_orphans(self, site: Site, count: int) -> None:
        settings = self._settings(site, ORPHANS, site.direct_url, SHELLS[0])
        first, self._orphans = self._orphans, self._orphans + count
        run_to_its_end(settings, "orphan_program", str(first), str(count))

    def _processes(self, site: Site) -> tuple[list[Supervised], list[Supervised], list[Supervised]]:
        def made(what: str, each: int) -> list[Supervised]:
            return [
                Supervised(
                    self._settings(site, f"{what}-{shell}-{number}", site.url, shell),
                    f"{what}_program",
                )
                for shell in SHELLS
                for number in range(1, each + 1)
            ]

        return made("worker", WORKERS_PER_SHELL), made("publisher", 1), made("operator", 1)

    # --- what happens -----------------------------------------------------------------------------

    def _do_faults(self, injector: Injector) -> None:
        deadline = time.monotonic() + self._options.minutes * 60
        plan = fault_plan(self._options.seed, injector.targets, kinds_of(self._options.plant))
        most = self._options.faults
        for number, fault in enumerate(plan):
            if time.monotonic() > deadline or (most is not None and number >= most):
                return
            self._say(str(fault))
            with self._disturbance(str(fault)):
                problem = injector.inflict(fault)
                self._wait_until_moving()
            if problem:
                self._note(f"{fault}: {problem}")
            self._faults[fault.kind] += 1
            if fault.meanwhile is not None:
                self._faults[fault.meanwhile.kind] += 1
            self._say("resting")
            self._pass_time(fault.rest)

    @contextlib.contextmanager
    def _disturbance(self, what: str) -> Iterator[None]:
        begin = now()
        with self._plan_file.open("a") as plan:
            plan.write(f"{begin} begin {what}\n")
        try:
            yield
        finally:
            self._disturbances.append(Disturbance(what, begin, now()))
            with self._plan_file.open("a") as plan:
                plan.write(f"{now()} over {what}\n")

    def _wait_until_moving(self) -> None:
        """Waits until each shell has handled something."""
        since = now()
        deadline = time.monotonic() + _MOVING_SECONDS
        moving: set[str] = set()
        while moving < set(SHELLS):
            if time.monotonic() > deadline:
                still = ", ".join(sorted(set(SHELLS) - moving))
                self._note(f"{still}: nothing handled for {_MOVING_SECONDS:g} s: {self._doing}")
                return
            moving |= {
                lane_of(event_id).partition("@")[2] for event_id, at in self._read() if at > since
            }
            time.sleep(_BETWEEN_LOOKS)

    def _drain(self, site: Site, supervisor: Supervisor, publishers: list[Supervised]) -> int:
        """Waits until everything is accounted for, or nothing moves any more; returns how often
        what was stuck had to be released."""
        self._say("waiting for the rest")
        releases = 0
        seen, quiet_since = -1, time.monotonic()
        deadline = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < deadline:
            self._read()
            if self._is_all_done(site, publishers):
                return releases
            if self._events != seen:
                seen, quiet_since = self._events, time.monotonic()
            elif time.monotonic() - quiet_since > _QUIET_SECONDS and (
                time.monotonic() - quiet_since > self._longest_quiet(site)
            ):
                if releases == _MOST_RELEASES or not self._has_released(site):
                    self._note("nothing moved any more, and not everything was accounted for")
                    return releases
                releases += 1
                quiet_since = time.monotonic()
            time.sleep(_BETWEEN_LOOKS)
        self._note(f"not everything was accounted for within {_DRAIN_SECONDS:g} s")
        return releases

    def _has_released(self, site: Site) -> bool:
        begin = now()
        released = site.release()
        if released:
            self._disturbances.append(Disturbance("release", begin, now()))
        return released

    def _longest_quiet(self, site: Site) -> float:
        """For how many seconds nothing may be heard of what is left."""
        return _SENT_AGAIN_SECONDS if site.holds_messages() else _QUIET_SECONDS

    def _is_all_done(self, site: Site, publishers: list[Supervised]) -> bool:
        if self._ledger.unfinished or not all(publisher.is_done for publisher in publishers):
            return False
        return not site.holds_messages()

    # --- what is known ----------------------------------------------------------------------------

    _events = 0

    def _read(self) -> list[tuple[str, int]]:
        """Reads the journals on; returns what was handled, and when."""
        events = list(self._reader.new_events())
        self._events += len(events)
        self._ledger.add(events)
        return [(event.id, event.at) for event in events if event.what == "handled"]

    def _pass_time(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read()
            time.sleep(min(left, _BETWEEN_LOOKS))

    def _say(self, doing: str) -> None:
        self._doing = doing
        self._tell_how_far_it_is()

    def _go_on_telling(self) -> None:
        while not self._is_over.wait(_BETWEEN_WORDS):
            self._tell_how_far_it_is()

    def _tell_how_far_it_is(self) -> None:
        ledger = self._ledger
        self._tell(
            f"{time.monotonic() - self._begun:5.0f} s  {self._faults.total():3} faults  "
            f"{ledger.count_of_sent} sent  {ledger.count_of_done} done  "
            f"{ledger.count_of_sent - ledger.count_of_done} on their way  {self._doing}"
        )

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._tell(text)

    def _note_deaths(self, supervisor: Supervisor) -> None:
        for death in supervisor.deaths:
            self._disturbances.append(Disturbance(f"{death.name} died", death.at, death.at))
