"""Services on the frameworks of several languages, each with a dead-letter queue of its own making,
as the tests run them."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from effort import effort
from interop.peer import SECONDS, SOURCES, NotInstalled, java_command, login, php_command
from prerequisites import not_set_up

MANY = effort(150, nightly=1000)
QUEUE = "orders"
CAUSES = ("item", "amount", "bank")
"""The order's cause of failure: of each third message the next."""

_PYTHON = Path(__file__).resolve().parents[2] / ".cache" / "peers" / "bin" / "python"
_NODE_MODULES = SOURCES / "node" / "node_modules"
_LEAST_NODE = 20

Command = Callable[[Path], tuple[str, ...]]


@dataclass(frozen=True)
class Framework:
    """A framework, and what it leaves of a message that its service has failed for good.

    Args:
        name: what it is called.
        command: what runs its service, given an empty folder.
        dialect: what redrive says that its messages are in.
        errors: the error's type by the order's cause; empty where it leaves none.
        order: where the order is in the body, in DuckDB's words.
        queue: the queue that it consumes.
        dead_letters: the queue that failed messages are in.
        first_way: the exchange and the key that the messages were first published with.
    """

    name: str
    command: Command
    dialect: str = "unknown"
    errors: Mapping[str, str] = field(default_factory=dict)
    order: str = "$"
    queue: str = QUEUE
    dead_letters: str = f"{QUEUE}.dlq"
    first_way: tuple[str, str] = ("", QUEUE)

    def filter_of(self, cause: str) -> str:
        """The filter that chooses the messages of a cause: by their error if it is known, else by
        what is in them."""
        if self.errors:
            return f"error_type = '{self.errors[cause]}'"
        return f"body->>'{self.order}.cause' = '{cause}'"

    def fail(self, url: str, folder: Path, count: int) -> None:
        """Publishes so many orders, and fails each of them for good."""
        self._run("fail", url, folder, count)

    def succeed(self, url: str, folder: Path, count: int) -> list[str]:
        """Handles so many messages; the orders' ids."""
        said = self._run("succeed", url, folder, count).splitlines()
        # Some frameworks have more to say.
        return [line for line in said if line.startswith("order-")]

    def _run(self, mode: str, url: str, folder: Path, count: int) -> str:
        done = subprocess.run(
            [*self.command(folder), mode],
            env={
                **login(url),
                "PEER_QUEUE": self.queue,
                "PEER_DEAD_LETTERS": self.dead_letters,
                "PEER_COUNT": str(count),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{self.name} failed:\n{done.stdout[-2000:]}{done.stderr}"
        return done.stdout


def _python(name: str) -> Command:
    def command(_: Path) -> tuple[str, ...]:
        if not _PYTHON.exists():
            not_set_up("the frameworks of Python in .cache/peers")
        return str(_PYTHON), str(SOURCES / "python" / f"{name}_peer.py")

    return command


def _node(name: str) -> Command:
    def command(_: Path) -> tuple[str, ...]:
        node = shutil.which("node")
        if node is None:
            raise NotInstalled("nodejs", "npm")
        if not _NODE_MODULES.exists():
            not_set_up("the frameworks of Node in tests/interop/peers/node")
        return node, str(SOURCES / "node" / f"{name}_peer.mjs")

    return command


_OF_PYTHON = {"item": "LookupError", "amount": "ValueError", "bank": "TimeoutError"}

FRAMEWORKS = (
    Framework("pika", _python("pika")),
    Framework("aio-pika", _python("aio_pika")),
    Framework("kombu", _python("kombu"), first_way=("kombu.orders", "placed")),
    Framework("celery", _python("celery"), "celery", order="$[0][0]"),
    Framework(
        "dramatiq",
        _python("dramatiq"),
        "dramatiq",
        _OF_PYTHON,
        "$.args[0]",
        dead_letters=f"{QUEUE}.XQ",
    ),
    Framework(
        "taskiq", _python("taskiq"), "taskiq", order="$.args[0]", first_way=("taskiq", QUEUE)
    ),
    Framework("faststream", _python("faststream")),
    Framework(
        "rascal",
        _node("rascal"),
        "rascal",
        {"item": "NOITEM", "amount": "EAMOUNT", "bank": "ETIMEDOUT"},
        first_way=("shop", "order.placed"),
    ),
    Framework("nestjs", _node("nestjs"), "nestjs", order="$.data"),
    Framework(
        "moleculer",
        _node("moleculer/moleculer"),
        "moleculer",
        queue="shop.orders",
        dead_letters="FAILED_MESSAGES",
        first_way=("orders", ""),
    ),
    Framework(
        "php-amqplib",
        lambda _: php_command("dead_letters.php"),
        first_way=("php.orders", "order.placed"),
    ),
    Framework(
        "java",
        lambda folder: java_command(folder, "DeadLetters"),
        first_way=("java.orders", "order.placed"),
    ),
)
