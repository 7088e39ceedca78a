import os
import signal

from redrive.pubsub.signals import until_signalled


def test_a_signal_that_comes_while_it_starts_stops_it_once_it_has_started() -> None:
    did: list[str] = []

    def start() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        did.append("started")

    until_signalled(
        lambda: "stopped" in did,
        stop=lambda: did.append("stopped"),
        abort=lambda: did.append("aborted"),
        start=start,
    )
    assert did == ["started", "stopped"]
