"""A broker that somebody else runs: tests may use it, but not control it."""

import os
import time
from pathlib import Path
from typing import NoReturn

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.testing.address import Address
from redrive.testing.broker import Broker, BrokerKind


class ExternalBroker(Broker):
    """An existing broker, whose virtual hosts are created and deleted through its management
    API."""

    def __init__(self, url: str, management_url: str | None = None) -> None:
        self._sought_management = management_url is None
        address = Address.parse(url)
        super().__init__(address, management_url or f"http://{address.host}:15672")

    @property
    def kind(self) -> BrokerKind:
        return "external"

    @property
    def origin(self) -> str:
        return f"external, {self._address.label}"

    @property
    def node_name(self) -> str:
        self._refuse("asked for the name of its node")

    def __enter__(self) -> "ExternalBroker":
        self.connect()
        return self

    def connect(self) -> None:
        """Check that the broker answers, and whether its management API does."""
        try:
            self._wait_until_ready(time.monotonic() + 5)
        except BrokerUnavailable:
            if self._version is None or not self._sought_management:
                raise
            # The API's address was only a guess. Whatever needs it will report that it is missing.
            self._management = None

    @property
    def version(self) -> str:
        if self._version is None:
            self.connect()
        return super().version

    def start(self) -> None:
        self._refuse("started")

    def stop(self) -> None:
        self._refuse("stopped")

    def kill(self) -> None:
        self._refuse("killed")

    def pause(self) -> None:
        self._refuse("paused")

    def resume(self) -> None:
        self._refuse("resumed")

    def control(self, *arguments: str) -> str:
        self._refuse(f"controlled with rabbitmqctl {' '.join(arguments)}")

    def log(self) -> str:
        return ""

    def save_data(self, file: Path) -> None:
        self._refuse("asked for its data")

    def close(self) -> None:
        """Do nothing: an external broker is not stopped."""

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigurationError(
            f"The broker at {self._address.label} is external, so it can't be {what}.",
            "Unset REDRIVE_URL to use a private broker.",
        )


def external_broker() -> ExternalBroker | None:
    """Return the broker that REDRIVE_URL names, or None if it is not set."""
    url = os.environ.get("REDRIVE_URL")
    return ExternalBroker(url, os.environ.get("REDRIVE_MANAGEMENT_URL")) if url else None
