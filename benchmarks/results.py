"""What the runs gave."""

from dataclasses import dataclass, field
from statistics import median

from benchmarks.plan import Entry, Scenario, Target


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender.

    Args:
        done: how many messages.
        seconds: wall time.
        cpu_seconds: of the contender's process.
        peak_mb: the most memory that the process had, in MB.
    """

    done: int
    seconds: float
    cpu_seconds: float
    peak_mb: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.done / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time for a message, in microseconds."""
        return self.cpu_seconds / self.done * 1e6


@dataclass(slots=True)
class Result:
    """A scenario on one broker: each contender's runs, in the order of the rounds."""

    scenario: Scenario
    broker_version: str
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, entry: Entry, run: Run) -> None:
        """A run is through."""
        self.runs.setdefault(entry.name, []).append(run)

    def rate(self, entry: str) -> float:
        """The median rate."""
        return median(run.rate for run in self.runs[entry])

    def spread(self, entry: str) -> tuple[float, float]:
        """The lowest and the highest rate."""
        rates = [run.rate for run in self.runs[entry]]
        return min(rates), max(rates)

    def cpu_us(self, entry: str) -> float:
        """The median CPU time for a message, in microseconds."""
        return median(run.cpu_us for run in self.runs[entry])

    def peak_mb(self, entry: str) -> float:
        """The most memory of any run, in MB."""
        return max(run.peak_mb for run in self.runs[entry])

    def ratio(self, entry: str, to: str) -> float | None:
        """The median of the ratios of each round; None where either has no run."""
        pairs = list(zip(self.runs.get(entry, []), self.runs.get(to, []), strict=False))
        return median(run.rate / other.rate for run, other in pairs) if pairs else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a promise was kept on one broker.

    Args:
        target: the promise.
        broker_version: where.
        measured: in words; "not measured" where a run failed.
        met: whether it was kept; None where a run failed.
    """

    target: Target
    broker_version: str
    measured: str
    met: bool | None


def verdict(target: Target, result: Result) -> Verdict:
    """Compares a promise with what was measured."""
    if target.entry not in result.runs:
        return Verdict(target, result.broker_version, "not measured", None)
    if target.under_mb is not None:
        peak = result.peak_mb(target.entry)
        return Verdict(target, result.broker_version, f"{peak:.0f} MB", peak < target.under_mb)
    assert target.against is not None
    assert target.at_least is not None
    ratio = result.ratio(target.entry, target.against)
    if ratio is None:
        return Verdict(target, result.broker_version, "not measured", None)
    return Verdict(target, result.broker_version, f"{ratio:.2f} ×", ratio >= target.at_least)
