"""A client in C, librabbitmq: what consuming costs without Python. It is compiled when it is first
needed; the peak of memory that is told of it is this process's, which waits for it."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.measure import Ledger, Place
from redrive.pubsub.url import BrokerURL

_SOURCE = Path(__file__).with_suffix(".c")
_HEADER = Path("/usr/include/amqp.h")
_PROGRAM = Path(tempfile.gettempdir()) / f"redrive-benchmark-c-client-{_SOURCE.stat().st_mtime_ns}"


def why_not() -> str | None:
    """Why it can't take part on this machine; None where it can."""
    if _PROGRAM.exists() or (shutil.which("cc") and _HEADER.exists()):
        return None
    return "it needs a C compiler and librabbitmq: apt-get install gcc libc6-dev librabbitmq-dev"


def consume(place: Place, ledger: Ledger) -> None:
    """`amqp_consume_message`, and `amqp_basic_ack` after each message."""
    if not _PROGRAM.exists():
        compiled = _PROGRAM.with_suffix(".new")
        subprocess.run(["cc", "-O2", "-o", compiled, _SOURCE, "-lrabbitmq"], check=True)
        compiled.replace(_PROGRAM)
    url = BrokerURL.parse(place.url)
    endpoint = url.endpoints[0]
    done = subprocess.run(
        [
            _PROGRAM,
            endpoint.host,
            str(endpoint.port),
            url.virtual_host,
            url.username,
            url.password,
            place.queue,
            str(place.prefetch or 0),
            str(ledger.expected),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    distinct, seconds, cpu_seconds = done.stdout.split()
    ledger.take_over(int(distinct), float(seconds), float(cpu_seconds))
