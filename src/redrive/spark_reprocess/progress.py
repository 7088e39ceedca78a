"""Report the progress of a job while Spark works on it."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

logger = logging.getLogger("redrive")

OnProgress = Callable[[str, int, int], None]
"""Called with the phase, the number of messages done, and the total."""

_EVERY = 0.5


def tell_nobody(phase: str, done: int, total: int) -> None:
    """Report progress to nobody."""


@contextlib.contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` twice a second on a separate thread, and once at the end."""
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
    except Exception as error:  # noqa: BLE001 — a job goes on even if its progress is unknown
        logger.debug("can't determine the progress: %s", error)
