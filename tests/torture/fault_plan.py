"""Which faults happen in a torture run, in which order and for how long: all of it from one
seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "node killed",
    "node paused",
    "node restarted",
    "wire cut",
    "wire frozen",
    "worker killed",
    "worker paused",
    "publisher killed",
    "operator killed",
    "queue deleted",
    "node cut off",
    "leader moved",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

OF_A_CLUSTER: tuple[Kind, ...] = ("node cut off", "leader moved")
"""What one node alone can't suffer."""

_KILLS: tuple[Kind, ...] = ("worker killed", "publisher killed", "operator killed")
"""What may happen while something else is broken: it needs no time."""

_TIMES: dict[Kind, tuple[float, float]] = {
    "node killed": (0.0, 4.0),
    "node paused": (1.0, 20.0),
    "node restarted": (0.0, 0.0),
    "wire cut": (0.0, 0.0),
    "wire frozen": (1.0, 20.0),
    "worker killed": (0.0, 0.0),
    "worker paused": (1.0, 25.0),
    "publisher killed": (0.0, 0.0),
    "operator killed": (0.0, 0.0),
    "queue deleted": (0.0, 0.0),
    "node cut off": (10.0, 25.0),
    "leader moved": (0.0, 0.0),
}
"""How many seconds each lasts, from and to: some shorter than a heartbeat, some longer."""

_OFTEN: tuple[Kind, ...] = ("wire cut", "worker killed", "publisher killed", "operator killed")
"""What happens twice as often: it is over in a moment."""

_LONGEST_REST = 6.0
_SHARE_WITH_A_KILL = 1 / 3


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Args:
        kind: what happens.
        target: to which one of its kind: a node, a worker, a publisher, an operator, a lane whose
            leader moves.
        seconds: how long it lasts before it is healed.
        rest: how many seconds nothing happens after everything moves again.
        meanwhile: a process that is killed in the middle of it.
    """

    kind: Kind
    target: int
    seconds: float = 0.0
    rest: float = 0.0
    meanwhile: "Fault | None" = None

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        killed = f", and meanwhile {self.meanwhile}" if self.meanwhile else ""
        return f"{self.kind} ({self.target}){lasting}{killed}"


@dataclass(frozen=True, slots=True)
class Targets:
    """How many there are of what a fault can hit."""

    nodes: int = 1
    workers: int = 1
    publishers: int = 1
    operators: int = 1
    lanes: int = 1

    def of(self, kind: Kind) -> int:
        """How many a fault of this kind can choose from."""
        if kind == "leader moved":
            return self.lanes
        noun = kind.partition(" ")[0]
        return {
            "worker": self.workers,
            "publisher": self.publishers,
            "operator": self.operators,
            "queue": 1,
        }.get(noun, self.nodes)


def kinds_for(nodes: int) -> tuple[Kind, ...]:
    """The kinds of faults that so many nodes can suffer."""
    return tuple(kind for kind in KINDS if nodes > 1 or kind not in OF_A_CLUSTER)


def fault_plan(seed: int, targets: Targets, kinds: tuple[Kind, ...] = ()) -> Iterator[Fault]:
    """Yields faults without end; the same for the same arguments.

    Each round has every kind in it, in an order of its own, so that a short run sees them all.
    """
    chance = random.Random(seed)
    chosen = kinds or kinds_for(targets.nodes)
    while True:
        round_ = [*chosen, *(kind for kind in _OFTEN if kind in chosen)]
        chance.shuffle(round_)
        for kind in round_:
            yield _fault(chance, kind, targets, chosen)


def _fault(chance: random.Random, kind: Kind, targets: Targets, chosen: tuple[Kind, ...]) -> Fault:
    target = chance.randrange(targets.of(kind))
    seconds = round(chance.uniform(*_TIMES[kind]), 1)
    rest = round(chance.uniform(0, _LONGEST_REST), 1)
    kills = [kill for kill in _KILLS if kill in chosen]
    meanwhile = None
    if seconds and kills and chance.random() < _SHARE_WITH_A_KILL:
        also = chance.choice(kills)
        meanwhile = Fault(also, chance.randrange(targets.of(also)))
    return Fault(kind, target, seconds, rest, meanwhile)
