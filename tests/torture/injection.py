"""Carries the faults of a plan out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from redrive import RedriveError
from torture.fault_plan import Fault, Targets
from torture.lanes import Lane
from torture.site import Site
from torture.supervisor import Supervised

_ORPHANS = 40


@dataclass(slots=True)
class Injector:
    """Breaks what a fault says, and mends it again.

    Args:
        site: the broker and its wires.
        workers: the processes that handle messages.
        publishers: those that publish.
        operators: those that requeue.
        make_orphans: deletes a queue that so many messages are scheduled for.
        hold: lets so many seconds pass.
    """

    site: Site
    workers: Sequence[Supervised]
    publishers: Sequence[Supervised]
    operators: Sequence[Supervised]
    make_orphans: Callable[[int], None]
    hold: Callable[[float], None]

    @property
    def targets(self) -> Targets:
        """How many there are of what can be hit."""
        return Targets(
            len(self.site.nodes),
            len(self.workers),
            len(self.publishers),
            len(self.operators),
            len(self._quorum_lanes),
        )

    @property
    def _quorum_lanes(self) -> Sequence[Lane]:
        return [lane for lane in self.site.lanes if lane.queue_type == "quorum"]

    def inflict(self, fault: Fault) -> str:
        """Has a fault happen and end; returns why it could not, and else nothing."""
        try:
            self._begin(fault)
            if fault.meanwhile is None:
                self.hold(fault.seconds)
            else:
                self.hold(fault.seconds / 2)
                self._begin(fault.meanwhile)
                self.hold(fault.seconds / 2)
        except RedriveError as error:
            return str(error).partition("\n")[0]
        finally:
            self.heal()
        return ""

    def heal(self) -> None:
        """Ends every fault."""
        for worker in self.workers:
            worker.resume()
        self.site.heal()

    def _begin(self, fault: Fault) -> None:
        site, target = self.site, fault.target
        match fault.kind:
            case "node killed":
                site.nodes[target].kill()
            case "node paused":
                site.nodes[target].pause()
            case "node restarted":
                site.nodes[target].restart()
            case "wire cut":
                site.proxies[target].cut()
            case "wire frozen":
                site.proxies[target].freeze()
            case "worker killed":
                self.workers[target].kill()
            case "worker paused":
                self.workers[target].pause()
            case "publisher killed":
                self.publishers[target].kill()
            case "operator killed":
                self.operators[target].kill()
            case "queue deleted":
                self.make_orphans(_ORPHANS)
            case "node cut off":
                site.cut_off(target)
            case "leader moved":
                site.move_leader(self._quorum_lanes[target], 1)
            case _:
                assert_never(fault.kind)


def now() -> int:
    """The moment, in nanoseconds of the clock of the journals."""
    return time.monotonic_ns()
