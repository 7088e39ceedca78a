"""What every private RabbitMQ can do, whatever it runs on."""

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
    """Try until a connection can be opened. Return the broker's version."""
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


BrokerKind = Literal["process", "container", "external"]

PLUGINS = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
# No busy waiting: on a machine with few cores an idle broker would take one from the tests. And one
# thread for files, in place of ten that wake each other: a start takes a fifth less.
ERLANG_ARGUMENTS = "+sbwt none +sbwtdcpu none +sbwtdio none +SDcpu 1:1 +SDio 1"
CONFIG = {
    "loopback_users.guest": "false",
    # Each connection is several lines, which cost as much as the connection; why a start fails is
    # an error.
    "log.console.level": "warning",
    "log.file.level": "warning",
}
START_SECONDS = 180.0
STOP_SECONDS = 30.0


class Broker(ABC):
    """A RabbitMQ of the test's own: it can be stopped, killed and paused, and nobody else notices.

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
        """What it runs on."""

    @property
    @abstractmethod
    def origin(self) -> str:
        """Where it comes from, in a few words: `container rabbitmq:4.3-management`."""

    @property
    @abstractmethod
    def node_name(self) -> str:
        """The name of its Erlang node, as `rabbit@host`."""

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._address

    @property
    def url(self) -> str:
        """The AMQP URL of the virtual host `/`. It stays the same over stop, kill and start."""
        return self._address.url

    @property
    def management_url(self) -> str | None:
        """The URL of the management HTTP API; None where an external broker has none."""
        return self._management.url if self._management else None

    @property
    def version(self) -> str:
        """The version that the broker says it has, such as `4.3.6`."""
        if self._version is None:
            raise ConfigurationError(
                "This broker was never started, so its version is not known.", "Call start() first."
            )
        return self._version

    @abstractmethod
    def start(self) -> None:
        """Start the broker, or let it go on if it is paused; nothing happens to one that runs.

        Returns when AMQP and the management API answer, after about 5 s.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker as an administrator does, and wait for it. Its data stays."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the whole broker as a power cut does (SIGKILL), and wait for its end. What it wrote
        to disk stays."""

    @abstractmethod
    def pause(self) -> None:
        """Freeze the broker: connections stay open and nothing comes through them."""

    @abstractmethod
    def resume(self) -> None:
        """Let a paused broker go on."""

    @abstractmethod
    def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` with these arguments and return what it printed."""

    @abstractmethod
    def log(self) -> str:
        """What the broker has written to its log, warnings and errors; nothing of an external one,
        or of one that has not been started."""

    @abstractmethod
    def save_data(self, file: Path) -> None:
        """Write all that a stopped or killed broker has on disk, messages included, to a tar file:
        for whoever has to find out where a message went."""

    @abstractmethod
    def close(self) -> None:
        """End the broker and delete its data. Closing twice is fine."""

    def restart(self) -> None:
        """Stop the broker cleanly and start it again."""
        self.stop()
        self.start()

    def create_virtual_host(self, name: str) -> str:
        """Create a virtual host, or find it there, and return its AMQP URL. It takes about 0.1
        s."""
        self._managed().put_virtual_host(name)
        address = self._address.on(name)
        # The virtual host is there once somebody can open it: a broker starts its processes a
        # moment later.
        wait_until_open(address, time.monotonic() + STOP_SECONDS)
        return address.url

    def management(self, path: str, timeout: float = 60) -> object:
        """What the management API answers for a path below `/api/`, such as `queues/%2F/name`,
        within so many seconds."""
        return self._managed().get(path, timeout)

    def delete_virtual_host(self, name: str) -> None:
        """Delete a virtual host with all queues, exchanges and connections in it; one that does not
        exist is no error."""
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
                f"The management API of {self._address.label} does not answer, and virtual hosts "
                "are made through it.",
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
        # A forked child inherits the registration, and must not end its parent's broker.
        if os.getpid() == self._owner:
            self.close()


def rendered_config(lines: dict[str, str]) -> str:
    """The text of a `rabbitmq.conf` with these settings."""
    return "".join(f"{key} = {value}\n" for key, value in lines.items())


def log_tail(log: str, lines: int = 15) -> str:
    """The end of a broker's log as one reason for an error."""
    return "its log ends with:\n" + "\n".join(log.splitlines()[-lines:])


def still_runs() -> ConfigurationError:
    """What is asked of a broker needs one that does not run."""
    return ConfigurationError("This broker runs.", "Call stop() or kill() first.")


def not_ready(address: Address, log: str) -> BrokerUnavailable:
    """The error for a broker of ours that did not come up."""
    return BrokerUnavailable(
        address.label,
        f"it did not come up within {START_SECONDS:g} s; {log_tail(log)}",
        "Look for the first error in this log.",
    )
