"""The ways that messages take through redrive in a torture run, as data: nothing of redrive is
imported here, because the checker relies on it."""

from dataclasses import dataclass
from typing import Literal

Way = Literal["deadletter", "republish", "ladder", "ordered", "broker", "scheduled", "requeue"]
ShellName = Literal["blocking", "async"]

SHELLS: tuple[ShellName, ...] = ("blocking", "async")
ALWAYS = -1
"""How often a handler fails that never succeeds: its message ends in the failed queue."""
UNTIL_REQUEUED = -2
"""How often a handler fails that succeeds once an operator has requeued its message."""
NOBODY_WANTS_IT = -3
"""Of a scheduled message whose queue is deleted before it is due: it ends in `master.unrouted`."""

MAX_RETRIES = 3
TICK_MS = 1000
UNROUTED = "master.unrouted"
LONG_DELAY_MS = 30_000
"""What some messages of the ladder wait for: others must not wait behind them."""

HOLDS_BACK = (4, 3)
"""The first RabbitMQ that can hold failed messages back by itself."""

_PREFETCH = 20
_EVERY_LONG = 25
_PATTERN = (0, 1, 0, 2, ALWAYS, 0, 1, 2)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a message says in its body about its own fate.

    Args:
        fails: how often its handler fails, or one of the constants of this module.
        wait_ms: how long it waits: a scheduled message before it comes, one of the ladder before
            each retry if that is another time than its policy's.
    """

    fails: int = 0
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One way through redrive, on a queue of its own, in one shell.

    Args:
        way: which way.
        shell: which shell publishes, handles and requeues.
        max_retries: the retries allowed after the first attempt.
        delays_ms: how long each retry waits, the last of them for all later ones.
        batch: how many messages are published at a time.
        pause: how many seconds its publisher waits after that.
    """

    way: Way
    shell: ShellName
    max_retries: int = MAX_RETRIES
    delays_ms: tuple[int, ...] = (1000,)
    batch: int = 8
    pause: float = 1.0

    @property
    def name(self) -> str:
        """What its queue is called, and its messages' ids begin with."""
        return f"{self.way}@{self.shell}"

    @property
    def routing_key(self) -> str:
        """What its messages are published with."""
        return f"{self.way}.{self.shell}"

    @property
    def queue_type(self) -> Literal["quorum", "classic"]:
        """What is republished is for classic queues."""
        return "classic" if self.way == "republish" else "quorum"

    @property
    def is_ordered(self) -> bool:
        """Whether nothing may overtake anything."""
        return self.way == "ordered"

    @property
    def counts_returns(self) -> bool:
        """Whether each return of a message is a retry to the broker, a dying worker's as well."""
        return self.way in ("ordered", "broker")

    def is_on(self, version: str) -> bool:
        """Whether a RabbitMQ of this version has this way."""
        major, minor, *_ = (int(part) for part in version.split(".")[:2])
        return self.way != "broker" or (major, minor) >= HOLDS_BACK

    @property
    def in_flight(self) -> int:
        """How many of its messages a single fault may deliver or publish twice, at most."""
        return self.batch + WORKERS_PER_SHELL * (1 if self.is_ordered else _PREFETCH)

    @property
    def prefetch(self) -> int | None:
        """How many unsettled messages a worker has at most; an ordered queue chooses itself."""
        return None if self.is_ordered else _PREFETCH

    def id_of(self, number: int) -> str:
        """The id of its message of this number."""
        return f"{self.name}/{number}"

    def wish_of(self, number: int) -> Wish:
        """What its message of this number says in its body."""
        if self.way == "requeue":
            return Wish(ALWAYS if number % 3 == 0 else UNTIL_REQUEUED)
        fails = _PATTERN[number % len(_PATTERN)]
        if self.way == "scheduled":
            return Wish(fails, 1000 * (1 + number % 4))
        if self.way == "ladder" and number % _EVERY_LONG == 1:
            return Wish(1, LONG_DELAY_MS)
        return Wish(fails)

    def retry_delay_ms(self, retry: int, wish: Wish) -> int:
        """How long a message waits before a retry, the first of which is 1."""
        if self.way == "ladder" and wish.wait_ms:
            return wish.wait_ms
        return self.delays_ms[min(retry, len(self.delays_ms)) - 1]


WORKERS_PER_SHELL = 2
ORPHANS = "orphans"
"""What the ids of messages that nobody wants begin with."""

LANES: tuple[Lane, ...] = tuple(
    lane
    for shell in SHELLS
    for lane in (
        Lane("deadletter", shell),
        Lane("republish", shell),
        Lane("ladder", shell, delays_ms=(1000, 2000)),
        Lane("ordered", shell, delays_ms=(200,), batch=1, pause=0.5),
        Lane("broker", shell),
        Lane("scheduled", shell, batch=3),
        Lane("requeue", shell, batch=4),
    )
)


def lanes_on(version: str) -> tuple[Lane, ...]:
    """The lanes that a RabbitMQ of this version has."""
    return tuple(lane for lane in LANES if lane.is_on(version))


def lanes_of(shell: str, version: str) -> tuple[Lane, ...]:
    """Those of a shell."""
    return tuple(lane for lane in lanes_on(version) if lane.shell == shell)


def lane_of(id_: str) -> str:
    """The name of the lane that a message is of, by its id."""
    return id_.rpartition("/")[0]


def number_of(id_: str) -> int:
    """The number of a message in its lane."""
    return int(id_.rpartition("/")[2])
