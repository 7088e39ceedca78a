"""The part of sending that runs in one task: publish its rows in chunks, and keep the ledger."""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PublishNacked,
    PublishRefused,
    RedriveError,
)
from redrive.failures.message.direction import Direction
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.confirms import Outgoing, Settled
from redrive.pubsub.in_flight import ThreadInFlight
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.transfer.confirmed_publisher import Sending
from redrive.pubsub.transfer.rate import RateLimit
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.spark_reprocess.row_message import (
    ORDER_KEY,
    Mode,
    Prepare,
    PreparedRow,
    Row,
    preparer,
    rows_of,
)
from redrive.spark_reprocess.settings import BATCH, LEAST_SHARE, TIMEOUT
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    import pyarrow

_ENOUGH_TO_JUDGE = 100
_CHUNKS_AT_A_TIME = 2
_SECONDS_FOR_A_LEADER, _BETWEEN_OFFERS = 15.0, 0.5
"""How long a queue is offered what it does not take, and how often: one whose node has failed has a
new leader after some seconds; one that is full stays so."""
_BEHIND = "an earlier message with its key could not be sent"


@dataclass(frozen=True, slots=True)
class SendTask:
    """The work of a send task, the same for all partitions of a DataFrame.

    Args:
        url: the broker's address, with the password.
        mode: what to do with the rows.
        job: the job's id.
        ledger: where outcomes are recorded; None for nowhere.
        batch: the maximum number of messages in flight that the ledger does not have as settled.
        rate: the maximum messages per second of this task; None for no limit.
        timeout: how long, in seconds, the broker may be away or confirm nothing.
        least_share: the share of confirmed messages below which the whole job stops.
        exchange: the exchange for rows that name none.
        exchanges: the exchange family of the failed queues.
        direction: where messages are requeued to.
    """

    url: str = field(repr=False)
    mode: Mode
    job: str
    ledger: ArchiveLedger | None = None
    batch: int = BATCH
    rate: float | None = None
    timeout: float = TIMEOUT
    least_share: float = LEAST_SHARE
    exchange: str = "master"
    exchanges: ExchangeFamily = field(default_factory=ExchangeFamily)
    direction: Direction = field(default_factory=Direction)

    def send(self, rows: Iterator[Row], part: str, attempt: int) -> "Sent":
        """Publish a part, minus what earlier attempts at it have settled."""
        connector = Connector(self.url, default_name("spark send", f"{self.job[:8]} {part}"))
        lock = f"redrive.lock.{self.job}.{part}" if self.ledger is not None else None
        # A task may begin while the broker is being restarted.
        with Sending(connector, lock=lock, patience=self.timeout) as sending:
            return _Part(self, sending, part, attempt).send(rows)


def sent_part(
    task: SendTask, names: Sequence[str], batches: Iterator["pyarrow.RecordBatch"]
) -> "Sent":
    """Send the rows of a partition from within its Spark task. The part is named after the
    partition, so that each attempt knows what earlier ones have settled."""
    from pyspark import TaskContext

    context = TaskContext.get()
    part, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
    rows = chain.from_iterable(rows_of(batch, names) for batch in batches)
    return task.send(rows, f"part-{part:05d}", attempt)


@dataclass(slots=True)
class Sent:
    """The result of a task.

    Args:
        confirmed: messages that the broker has confirmed.
        refused: messages that can't be sent.
        stopped: why the task stopped early; None if it did not.
        first_refusal: the error of the first refused message.
        attempt: the part and the attempt, as the ledger's files are named.
        files: the number of files that it wrote into the ledger.
    """

    confirmed: int = 0
    refused: int = 0
    stopped: str | None = None
    first_refusal: str = ""
    attempt: str = ""
    files: int = 0


Way = tuple[str, str]
"""The exchange and the routing key of a message, which decide the queue that takes it."""


def _way_of(message: PreparedRow) -> Way:
    return message.exchange, message.routing_key


class _Sending(Outgoing):
    """A message of a chunk on its way to the broker; `again` if it may have been sent before."""

    __slots__ = ("again", "message")

    def __init__(self, message: PreparedRow, again: bool, settled: Settled) -> None:
        super().__init__(
            message.exchange,
            message.routing_key,
            message.properties,
            message.body,
            message.id,
            settled,
        )
        self.message = message
        self.again = again


class _Chunk:
    """A group of messages that are in flight together."""

    def __init__(self, messages: list[PreparedRow], success: Event) -> None:
        self.messages = messages
        self.outcomes: list[Entry] = []
        self.lost: list[tuple[PreparedRow, bool]] = []
        self.nacked: list[tuple[PreparedRow, Entry]] = []
        self.taken: set[Way] = set()
        self.in_flight = ThreadInFlight()
        self._success = success

    def outgoing(self, messages: Iterable[tuple[PreparedRow, bool]]) -> list[Outgoing]:
        """Convert messages for the outbox; each flag says whether the message may have been sent
        before."""
        made: list[Outgoing] = [
            _Sending(message, again, self._settled) for message, again in messages
        ]
        self.in_flight.add(len(made))
        return made

    def _settled(self, outgoing: Outgoing, error: RedriveError | None) -> None:
        assert isinstance(outgoing, _Sending)
        again = outgoing.again or outgoing.in_doubt
        with self.in_flight.lock:
            if error is None:
                self.outcomes.append(Entry(outgoing.message_id, self._success, again=again))
                self.taken.add(_way_of(outgoing.message))
            elif isinstance(error, BrokerUnavailable):
                self.lost.append((outgoing.message, again))
            else:
                refused = Entry(outgoing.message_id, Event.REFUSED, _in_words(error), again)
                if isinstance(error, PublishNacked):
                    self.nacked.append((outgoing.message, refused))
                else:
                    self.outcomes.append(refused)
            self.in_flight.settle()


class _Part:
    """One attempt at one part."""

    def __init__(self, task: SendTask, sending: Sending, part: str, attempt: int) -> None:
        self._task = task
        self._sending = sending
        self._part = part
        self._attempt = attempt
        self._notes = 0
        self._outcomes: list[Entry] = []
        self._sent = Sent()
        self._latest: deque[bool] = deque(maxlen=max(_ENOUGH_TO_JUDGE, task.batch))
        self._settled_before: dict[str, Event] = {}
        self._stopped_keys: set[str] = set()
        self._nacked_since: dict[Way, float] = {}
        self._pace = RateLimit(task.rate)
        restoring = task.mode is Mode.RESTORE
        self._intention = Event.RESTORING if restoring else Event.SENDING
        self._success = Event.RESTORED if restoring else Event.SENT

    def send(self, rows: Iterator[Row]) -> Sent:
        prepare = self._connect()
        before: _Chunk | None = None
        try:
            for chunk in self._chunks(rows, prepare):
                if self._is_stopped():
                    break
                self._note([Entry(message.id, self._intention) for message in chunk.messages])
                if chunk.messages[0].order_key is not None:
                    self._send_in_order(chunk)
                    continue
                self._publish(chunk)
                if before is not None:
                    self._finish(before)
                before = chunk
            if before is not None:
                self._finish(before)
        finally:
            # Keep the outcomes known so far, even if the broker went away.
            if before is not None:
                self._keep(before)
            if self._outcomes:
                self._note([])
        self._sent.attempt, self._sent.files = f"{self._part}-{self._attempt}", self._notes
        return self._sent

    def _connect(self) -> Prepare:
        task = self._task
        frame_max = self._sending.wait_until_up(task.timeout)
        # Only now that it has the lock: the previous holder has recorded all its outcomes.
        if task.ledger is not None:
            self._settled_before = task.ledger.settled(self._part)
        return preparer(
            task.mode,
            job=task.job,
            frame_max=frame_max,
            exchange=task.exchange,
            exchanges=task.exchanges,
            direction=task.direction,
        )

    def _chunks(self, rows: Iterator[Row], prepare: Prepare) -> Iterator[_Chunk]:
        # At a low rate, a chunk is one second's worth: progress is visible only once a chunk is
        # recorded.
        size = max(
            1,
            min(
                self._task.batch // _CHUNKS_AT_A_TIME,
                math.ceil(self._task.rate or self._task.batch),
            ),
        )
        waiting: list[PreparedRow] = []
        for row in rows:
            key: str | None = row.get(ORDER_KEY)
            try:
                message = prepare(row)
            except ConfigurationError as error:
                self._outcome(Entry(str(row.get("id") or ""), Event.REFUSED, _in_words(error)), key)
                continue
            if message.id and message.id in self._settled_before:
                self._stop_after(self._settled_before[message.id], key)
                continue
            waiting.append(message if key is None else message._replace(order_key=key))
            if len(waiting) >= size:
                yield _Chunk(waiting, self._success)
                waiting = []
        if waiting:
            yield _Chunk(waiting, self._success)

    def _publish(self, chunk: _Chunk) -> None:
        self._pass_on(chunk.outgoing((message, False) for message in chunk.messages))

    def _send_in_order(self, chunk: _Chunk) -> None:
        """Send the messages of each key one after another, and other keys beside them. After one
        that can't be sent, its key's later ones are not sent."""
        lanes: dict[str | None, deque[PreparedRow]] = {}
        for message in chunk.messages:
            lanes.setdefault(message.order_key, deque()).append(message)
        while lanes:
            wave = _Chunk([], self._success)
            for key, lane in list(lanes.items()):
                if key in self._stopped_keys:
                    self._outcomes += [Entry(one.id, Event.REFUSED, _BEHIND) for one in lane]
                    self._sent.refused += len(lane)
                    lane.clear()
                else:
                    wave.messages.append(lane.popleft())
                if not lane:
                    del lanes[key]
            self._publish(wave)
            try:
                self._finish(wave)
            finally:
                self._keep(wave)

    def _stop_after(self, event: Event, key: str | None) -> None:
        """Send no more of a key if one of its messages can't be sent."""
        if event is Event.REFUSED and key is not None:
            self._stopped_keys.add(key)

    def _pass_on(self, outgoing: list[Outgoing]) -> None:
        """Send no faster than the rate."""
        step = len(outgoing) if self._task.rate is None else self._pace.batch
        for start in range(0, len(outgoing), max(1, step)):
            part = outgoing[start : start + step]
            while pause := self._pace.pause():
                time.sleep(pause)
            self._sending.send(part)
            self._pace.sent(len(part))

    def _finish(self, chunk: _Chunk) -> None:
        """Wait until a chunk is settled. Messages lost with a connection are sent again on the next
        one, unless another attempt has settled them; so are messages that a queue does not take
        now, for a while."""
        while True:
            if not chunk.in_flight.wait_until_below(1, self._task.timeout):
                why = (
                    f"it accepted no messages ({self._sending.blocked})"
                    if self._sending.blocked
                    else "it confirmed nothing"
                )
                raise BrokerUnavailable(
                    Connector(self._task.url, "").url.address,
                    f"{why} for {self._task.timeout:g} s",
                    "Run it again when the broker is healthy.",
                )
            left = [*self._lost_again(chunk), *self._offered_again(chunk)]
            if not left:
                break
            self._pass_on(chunk.outgoing(left))
        self._keep(chunk)
        self._judge()

    def _lost_again(self, chunk: _Chunk) -> list[tuple[PreparedRow, bool]]:
        """Return the messages that were lost with their connection, once there is another."""
        lost, chunk.lost = chunk.lost, []
        if lost:
            self._connect()
        for message, _ in lost:
            if message.id in self._settled_before:
                self._stop_after(self._settled_before[message.id], message.order_key)
        return [
            (message, again) for message, again in lost if message.id not in self._settled_before
        ]

    def _offered_again(self, chunk: _Chunk) -> list[tuple[PreparedRow, bool]]:
        """Return the messages that their queue does not take now, to be sent again; refuse those
        whose queue took none for too long."""
        nacked, chunk.nacked = chunk.nacked, []
        taken, chunk.taken = chunk.taken, set()
        for way in taken:
            self._nacked_since.pop(way, None)
        now = time.monotonic()
        again: list[tuple[PreparedRow, bool]] = []
        for message, refused in nacked:
            if now - self._nacked_since.setdefault(_way_of(message), now) > _SECONDS_FOR_A_LEADER:
                chunk.outcomes.append(refused)
            else:
                # The queue may have failed with the message in its log.
                again.append((message, True))
        if again:
            time.sleep(_BETWEEN_OFFERS)
        return again

    def _keep(self, chunk: _Chunk) -> None:
        outcomes, chunk.outcomes = chunk.outcomes, []
        keys = {one.id: one.order_key for one in chunk.messages if one.order_key is not None}
        for entry in outcomes:
            self._outcome(entry, keys.get(entry.id))

    def _outcome(self, entry: Entry, key: str | None) -> None:
        self._stop_after(entry.event, key)
        self._outcomes.append(entry)
        self._latest.append(entry.event is not Event.REFUSED)
        if entry.event is Event.REFUSED:
            self._sent.refused += 1
            self._sent.first_refusal = self._sent.first_refusal or entry.detail
        else:
            self._sent.confirmed += 1

    def _note(self, intentions: list[Entry]) -> None:
        entries = [*self._outcomes, *intentions]
        if self._task.ledger is not None:
            self._task.ledger.write(self._part, self._attempt, self._notes, entries)
            self._notes += 1
        self._outcomes = []

    def _judge(self) -> None:
        """Stop the job if too few of the latest messages were confirmed. Earlier successes don't
        count, since a queue may have been deleted since then."""
        total = len(self._latest)
        confirmed = sum(self._latest)
        if (
            self._task.ledger is not None
            and total >= _ENOUGH_TO_JUDGE
            and confirmed < self._task.least_share * total
        ):
            self._task.ledger.stop(
                f"only {confirmed} of the last {total} messages were confirmed; the first error: "
                f"{self._sent.first_refusal}"
            )

    def _is_stopped(self) -> bool:
        if self._task.ledger is not None:
            self._sent.stopped = self._task.ledger.stopped()
        return self._sent.stopped is not None


def _in_words(error: RedriveError) -> str:
    if isinstance(error, PublishRefused):
        return " ".join(error.reason.split())
    return " ".join(getattr(error, "reason", str(error)).split())
