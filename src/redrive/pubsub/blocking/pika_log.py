"""Keep pika's log records about redrive's own connections out of the process's log.

pika logs an error with a traceback for each failing step of a connection, and redrive reports the
same in one line. The program may use pika in the same process, so the logger itself is left
unchanged: only records that pika logs on a thread while redrive uses pika there are dropped. If the
logger `redrive` is at DEBUG, none are.

Source: pika 1.3.2 to 1.4.4, each module of which has a logger of its own name.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator

import pika  # noqa: F401 - its loggers exist once it is imported

logger = logging.getLogger("redrive")

_PIKA = "pika"


class _Ours(threading.local):
    """Number of current uses of pika by redrive on this thread."""

    uses = 0


_ours = _Ours()


def _is_wanted(_: logging.LogRecord) -> bool:
    return not _ours.uses or logger.isEnabledFor(logging.DEBUG)


@contextlib.contextmanager
def own_use() -> Iterator[None]:
    """Drop what pika logs on this thread during the block."""
    _ours.uses += 1
    try:
        yield
    finally:
        _ours.uses -= 1


# A logger's filter only sees records logged there, not those of child loggers, so each of them
# needs it.
for _name in [_PIKA, *logging.root.manager.loggerDict]:
    if _name == _PIKA or _name.startswith(f"{_PIKA}."):
        logging.getLogger(_name).addFilter(_is_wanted)
