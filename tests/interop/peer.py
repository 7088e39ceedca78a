"""Services of other languages without redrive, as the tests run them."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from redrive.pubsub.codec import Codec
from redrive.testing.address import Address
from redrive.topology.names import ExchangeFamily

SOURCES = Path(__file__).parent / "peers"
JAVA_LIBRARIES = Path("/usr/share/java")
SECONDS = 120

PHP_NAMES = ExchangeFamily()
JAVA_NAMES = ExchangeFamily(retry_suffix="@retry", failed_suffix="@failed")


class NotInstalled(Exception):
    """What runs a peer is not there.

    Args:
        packages: the Debian packages that have it.
    """

    def __init__(self, *packages: str) -> None:
        super().__init__(*packages)
        self.packages = packages


class Seen(NamedTuple):
    """One attempt of a peer's consumer.

    Args:
        body: the body as the peer reads it: what is in PHP's envelope, or the JSON in Java's text.
        routing_key: the key that the message was first published with, as the peer knows it.
        retries: the retries before this attempt, as the peer counts them.
        then: what it did: `done`, `retry` or `failed`.
    """

    body: object
    routing_key: str
    retries: int
    then: str


@dataclass(frozen=True)
class Peer:
    """A service of another language that follows the pattern of the interop topology.

    Args:
        name: its language.
        command: what runs it.
        url: the broker's address.
        exchanges: what it calls its exchanges.
        ttl_ms: how long its retry queue keeps a message; the pattern's own is 30 s.
    """

    name: str
    command: tuple[str, ...]
    url: str
    exchanges: ExchangeFamily
    ttl_ms: int = 200

    @property
    def delay(self) -> timedelta:
        """How long its retry queue keeps a message."""
        return timedelta(milliseconds=self.ttl_ms)

    @property
    def codec(self) -> Codec:
        """How redrive writes bodies for it."""
        return "php-envelope" if self.name == "php" else "json"

    def with_ttl(self, ttl_ms: int) -> "Peer":
        """The same with another delay."""
        return replace(self, ttl_ms=ttl_ms)

    def declare(self, queue: str, pattern: str) -> None:
        """Declares a subscription. A 406 is a CalledProcessError."""
        self._run("declare", queue, pattern, "--ttl", str(self.ttl_ms))

    def publish(self, routing_key: str, body: object) -> None:
        """Publishes a JSON value, confirmed."""
        self._run("publish", routing_key, json.dumps(body))

    def consume(
        self, queue: str, pattern: str, attempts: int, *, fails: bool = False, max_retries: int = 3
    ) -> list[Seen]:
        """Handles so many attempts, and returns what it saw."""
        return _seen(self._run(*self._consuming(queue, pattern, attempts, fails, max_retries)))

    @contextlib.contextmanager
    def consuming(
        self, queue: str, pattern: str, attempts: int, *, fails: bool = False, max_retries: int = 3
    ) -> Iterator[list[Seen]]:
        """The same beside the block; the list is filled at its end, where the peer must have had
        all of its attempts or is ended."""
        seen: list[Seen] = []
        command = self._consuming(queue, pattern, attempts, fails, max_retries)
        with subprocess.Popen(
            [*self.command, *command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                process.stdout.readline()  # it has declared
                yield seen
            finally:
                process.terminate()
                seen += _seen([json.loads(line) for line in process.stdout])

    def requeue(self, queue: str, pattern: str, count: int) -> None:
        """Sends so many failed messages back, whoever set them aside."""
        self._run("requeue", queue, pattern, "--count", str(count), "--ttl", str(self.ttl_ms))

    def _consuming(
        self, queue: str, pattern: str, attempts: int, fails: bool, max_retries: int
    ) -> tuple[str, ...]:
        numbers = (
            "--attempts",
            str(attempts),
            "--max-retries",
            str(max_retries),
            "--ttl",
            str(self.ttl_ms),
            "--seconds",
            str(SECONDS),
        )
        return ("consume", queue, pattern, *numbers, *(["--fail"] if fails else []))

    def _run(self, *arguments: str) -> list[Mapping[str, Any]]:
        done = subprocess.run(
            [*self.command, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"the peer failed:\n{done.stdout}{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    @property
    def _environment(self) -> dict[str, str]:
        return {
            **login(self.url),
            "PEER_EXCHANGE": self.exchanges.main,
            "PEER_RETRY_SUFFIX": self.exchanges.retry_suffix,
            "PEER_FAILED_SUFFIX": self.exchanges.failed_suffix,
        }


def login(url: str) -> dict[str, str]:
    """The environment that tells a peer where the broker is."""
    address = Address.parse(url)
    return {
        **os.environ,
        "PEER_URL": url,
        "PEER_HOST": address.host,
        "PEER_PORT": str(address.port),
        "PEER_USER": address.user,
        "PEER_PASSWORD": address.password,
        "PEER_VHOST": address.virtual_host,
    }


def php_command(source: str = "peer.php") -> tuple[str, ...]:
    """What runs a PHP peer.

    Raises:
        NotInstalled: PHP or its library is not installed.
    """
    if shutil.which("php") is None or not Path("/usr/share/php/PhpAmqpLib/autoload.php").exists():
        raise NotInstalled("php-cli", "php-amqplib")
    return ("php", "-d", "display_errors=stderr", str(SOURCES / source))


def java_command(classes: Path, name: str = "Peer") -> tuple[str, ...]:
    """Compiles a Java peer into a folder; what runs it then.

    Raises:
        NotInstalled: Java or its library is not installed.
    """
    library = JAVA_LIBRARIES / "amqp-client.jar"
    if shutil.which("javac") is None or not library.exists():
        raise NotInstalled("default-jdk-headless", "librabbitmq-client-java")
    path = os.pathsep.join(
        str(JAVA_LIBRARIES / name) for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")
    )
    subprocess.run(
        ["javac", "-nowarn", "-cp", path, "-d", str(classes), str(SOURCES / f"{name}.java")],
        check=True,
        capture_output=True,
    )
    # It lives for a second: no time for an optimising compiler to pay off.
    return (
        "java",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        os.pathsep.join((str(classes), path)),
        name,
    )


def _seen(said: list[Mapping[str, Any]]) -> list[Seen]:
    return [
        Seen(_value_of(one["body"]), one["routing_key"], one["retries"], one["then"])
        for one in said
        if "then" in one
    ]


def _value_of(body: object) -> object:
    """What Java says is the text of the body."""
    return json.loads(body) if isinstance(body, str) else body
