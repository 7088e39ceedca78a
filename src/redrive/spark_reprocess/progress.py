"""How far a job is, while Spark works on it."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

logger = logging.getLogger("redrive")

OnProgress = Callable[[str, int, int], None]
"""Is called with the phase, how many messages are through it, of how many."""

_EVERY = 0.5


def tell_nobody(phase: str, done: int, total: int) -> None:
    """Keeps it to itself."""


@contextlib.contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` twice a second on a thread of its own, and once at the end."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY):
            _try(look)

    thread = threading.Thread(target=watch, name="redrive-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _try(look)


def _try(look: Callable[[], None]) -> None:
    try:
        look()
    except Exception as error:  # noqa: BLE001 — a job does not end because its progress can't be seen
        logger.debug("the progress can't be seen: %s", error)
