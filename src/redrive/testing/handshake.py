"""Opening an AMQP connection: the only proof that a broker answers.

A port that accepts proves nothing: an engine's proxy accepts for a container that is still
starting.
"""

import time
from dataclasses import replace

from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.url import BrokerURL
from redrive.testing.address import Address


def open_once(address: Address, timeout: float) -> str:
    """Open a connection to the virtual host and close it again. Return the broker's version, such
    as `4.3.6`.

    Args:
        address: whom to ask.
        timeout: seconds that connecting may take, and that opening may.

    Raises:
        BrokerUnavailable: nobody answered, or not in time, or not in AMQP.
        PermissionDenied: the broker refused the user or the virtual host.
    """
    url = replace(BrokerURL.parse(address.url), connection_timeout=timeout)
    with declaring(Connector(url, "redrive testing")) as declarer:
        return str(declarer.version)


def wait_until_open(address: Address, deadline: float) -> str:
    """Try until a connection can be opened. Return the broker's version.

    Args:
        address: whom to ask.
        deadline: until when, as `time.monotonic()` counts.

    Raises:
        BrokerUnavailable: no connection could be opened in time.
    """
    while True:
        try:
            return open_once(address, timeout=2)
        except RedriveError as error:
            # A broker that boots listens before its virtual host is there, and refuses for a
            # moment.
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(
                    address.label, f"no connection could be opened ({error})"
                ) from error
        time.sleep(0.05)
