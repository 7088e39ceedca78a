"""The log of parked keys is read from its beginning up to a worker's own fence."""

from redrive.errors import RedriveError
from redrive.pubsub.parked_log import ParkedLog
from unit.pubsub.fake_wire import FakeWire


class Reading:
    """A log that is being read; its fence is `fence`."""

    def __init__(self) -> None:
        self.wire = FakeWire()
        self.read: list[bytes] = []
        self.ends = 0
        self.errors: list[RedriveError] = []
        ParkedLog(self.wire, "q@parked", self._read, self._done, self.errors.append)
        self.wire.answer_all()

    def _read(self, body: bytes) -> bool:
        self.read.append(body)
        return body == b"fence"

    def _done(self) -> None:
        self.ends += 1


def test_it_ends_once_the_fence_was_read_and_its_channel_is_closed() -> None:
    reading = Reading()
    reading.wire.channel.deliver_entry(b"entry")
    reading.wire.channel.deliver_entry(b"fence")
    reading.wire.channel.deliver_entry(b"later")
    assert (reading.read, reading.ends) == ([b"entry", b"fence"], 0)
    reading.wire.answer_all()
    assert reading.ends == 1
    assert reading.wire.channel.closed_by_client


def test_a_long_log_is_acked_so_that_the_rest_of_it_comes() -> None:
    reading = Reading()
    for number in range(1000):
        reading.wire.channel.deliver_entry(str(number).encode())
    assert len(reading.read) == 1000


def test_a_log_that_is_gone_or_may_not_be_read_is_an_error() -> None:
    gone, refused = Reading(), Reading()
    gone.wire.channel.cancel_by_broker()
    refused.wire.channel.close_by_broker(403, "ACCESS_REFUSED - access to queue 'q@parked' refused")
    assert len(gone.errors) == len(refused.errors) == 1
    assert "q@parked" in str(refused.errors[0])
    assert gone.ends == refused.ends == 0
