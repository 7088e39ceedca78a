"""The interface of all private brokers, whatever they run on."""

import atexit
import os
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.url import BrokerURL
from redrive.testing.address import Address
from redrive.testing.management_client import ManagementClient


def open_once(address: Address, timeout: float) -> str:
    """Open a connection to the virtual host and close it again. Return the broker's version, such
    as `4.3.6`."""
    url = replace(BrokerURL.parse(address.url), connection_timeout=timeout)
    with declaring(Connector(url, "redrive testing")) as declarer:
        return str(declarer.version)


def wait_until_open(address: Address, deadline: float) -> str:
    """Retry until a connection can be opened. Return the broker's version."""
    while True:
        try:
            return open_once(address, timeout=2)
        except RedriveError as error:
            # A starting broker listens before its virtual host is ready, and refuses connections
            # for a moment.
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(
                    address.label, f"no connection could be opened ({error})"
                ) from error
        time.sleep(0.05)


BrokerKind = Literal["process", "container", "external"]

PLUGINS = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
# No busy waiting: on a machine with few cores an idle broker would take one of them from the tests.
# And one thread for file I/O instead of ten that wake each other, which cuts a fifth off the start.
ERLANG_ARGUMENTS = "+sbwt none +sbwtdcpu none +sbwtdio none +SDcpu 1:1 +SDio 1"
CONFIG = {
    "loopback_users.guest": "false",
    # Each connection logs several lines, which cost as much as the connection itself. Why a start
    # fails is logged as an error.
    "log.console.level": "warning",
    "log.file.level": "warning",
}
START_SECONDS = 180.0
STOP_SECONDS = 30.0


class Broker(ABC):
    """A RabbitMQ for one test run: it can be stopped, killed and paused without affecting anybody
    else.

    Ports and data stay the same from the first `start()` to `close()`. Use it as a context manager:

        with private_broker() as broker:
            connect(broker.url)
            broker.kill()
            broker.start()
    """

    def __init__(self, address: Address, management_url: str | None) -> None:
        self._address = address
        self._management = (
            ManagementClient(management_url, address.user, address.password)
            if management_url
            else None
        )
        self._version: str | None = None
        self._owner = os.getpid()

    @property
    @abstractmethod
    def kind(self) -> BrokerKind:
        """Whether it runs as a process, in a container, or is external."""

    @property
    @abstractmethod
    def origin(self) -> str:
        """A short description of its origin, such as `container rabbitmq:4.3-management`."""

    @property
    @abstractmethod
    def node_name(self) -> str:
        """The name of its Erlang node, such as `rabbit@host`."""

    @property
    def address(self) -> Address:
        """The address that it listens on."""
        return self._address

    @property
    def url(self) -> str:
        """The AMQP URL of the virtual host `/`. It survives stop, kill and start."""
        return self._address.url

    @property
    def management_url(self) -> str | None:
        """The URL of the management HTTP API; None for an external broker without one."""
        return self._management.url if self._management else None

    @property
    def version(self) -> str:
        """The version that the broker reports, such as `4.3.6`."""
        if self._version is None:
            raise ConfigurationError(
                "This broker was never started, so its version is not known.", "Call start() first."
            )
        return self._version

    @abstractmethod
    def start(self) -> None:
        """Start the broker, or resume it if it is paused. Does nothing if it is running.

        Returns when AMQP and the management API answer, after about 5 s.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker cleanly and wait for it. Its data is kept."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the broker as a power cut would (SIGKILL), and wait until it has ended. Data written
        to disk is kept."""

    @abstractmethod
    def pause(self) -> None:
        """Freeze the broker: connections stay open, but it does not respond."""

    @abstractmethod
    def resume(self) -> None:
        """Resume a paused broker."""

    @abstractmethod
    def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` with these arguments and return its output."""

    @abstractmethod
    def log(self) -> str:
        """Return the broker's log (warnings and errors); empty for an external broker, or one that
        was not started."""

    @abstractmethod
    def save_data(self, file: Path) -> None:
        """Write all data of a stopped or killed broker, including messages, to a tar file, for
        finding out where a message went."""

    @abstractmethod
    def close(self) -> None:
        """Stop the broker and delete its data. Closing twice is fine."""

    def restart(self) -> None:
        """Stop the broker cleanly and start it again."""
        self.stop()
        self.start()

    def create_virtual_host(self, name: str) -> str:
        """Create a virtual host unless it exists, and return its AMQP URL. This takes about 0.1
        s."""
        self._managed().put_virtual_host(name)
        address = self._address.on(name)
        # The virtual host is ready once it can be opened: the broker starts its processes a moment
        # later.
        wait_until_open(address, time.monotonic() + STOP_SECONDS)
        return address.url

    def management(self, path: str, timeout: float = 60) -> object:
        """Return the management API's answer for a path below `/api/`, such as `queues/%2F/name`.
        `timeout` is in seconds."""
        return self._managed().get(path, timeout)

    def delete_virtual_host(self, name: str) -> None:
        """Delete a virtual host with all its queues, exchanges and connections, if it exists."""
        self._managed().delete_virtual_host(name)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        version = f" {self._version}" if self._version else ""
        return f"RabbitMQ{version} ({self.origin})"

    def _managed(self) -> ManagementClient:
        if self._management is None:
            raise ConfigurationError(
                f"The management API of {self._address.label} does not answer, but creating "
                "virtual hosts needs it.",
                "Enable the plugin rabbitmq_management, or set REDRIVE_MANAGEMENT_URL to where it "
                "listens.",
            )
        return self._management

    def _wait_until_ready(self, deadline: float) -> None:
        self._version = wait_until_open(self._address, deadline)
        if self._management is not None:
            self._management.wait_until_it_answers(deadline)

    def _close_at_exit(self) -> None:
        atexit.register(self._close_in_owner)

    def _forget_exit(self) -> None:
        atexit.unregister(self._close_in_owner)

    def _close_in_owner(self) -> None:
        # A forked child inherits the registration, and must not stop its parent's broker.
        if os.getpid() == self._owner:
            self.close()


def rendered_config(lines: dict[str, str]) -> str:
    """Return the text of a `rabbitmq.conf` with these settings."""
    return "".join(f"{key} = {value}\n" for key, value in lines.items())


def log_tail(log: str, lines: int = 15) -> str:
    """Return the end of a broker's log as part of an error message."""
    return "its log ends with:\n" + "\n".join(log.splitlines()[-lines:])


def still_runs() -> ConfigurationError:
    """Return the error for an operation that needs the broker to be stopped."""
    return ConfigurationError("This broker is running.", "Call stop() or kill() first.")


def not_ready(address: Address, log: str) -> BrokerUnavailable:
    """Return the error for a private broker that did not start in time."""
    return BrokerUnavailable(
        address.label,
        f"it did not start within {START_SECONDS:g} s; {log_tail(log)}",
        "Look for the first error in this log.",
    )
