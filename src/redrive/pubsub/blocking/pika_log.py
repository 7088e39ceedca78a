"""Keeps what pika logs of redrive's own connections out of the process's log, and of no other
connection.

pika logs an error with a traceback for each step of a connection that fails, and redrive says the
same in one line of its own. Both run in one process with the program's own use of pika, so the
logger is left as it is: what is dropped is what pika logs on a thread while redrive uses pika
there. Where the logger `redrive` is at DEBUG, nothing is.

Source: pika 1.3.2 to 1.4.4, each module of which has a logger of its own name.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator

import pika  # noqa: F401 - its loggers are there once it is imported

logger = logging.getLogger("redrive")

_PIKA = "pika"


class _Ours(threading.local):
    """How many uses of pika by redrive are under way on this thread."""

    uses = 0


_ours = _Ours()


def _is_wanted(_: logging.LogRecord) -> bool:
    return not _ours.uses or logger.isEnabledFor(logging.DEBUG)


@contextlib.contextmanager
def own_use() -> Iterator[None]:
    """What pika logs on this thread, while the block runs, goes nowhere."""
    _ours.uses += 1
    try:
        yield
    finally:
        _ours.uses -= 1


# A filter of a logger is asked for what is logged there, and not for what its children log: each
# needs it.
for _name in [_PIKA, *logging.root.manager.loggerDict]:
    if _name == _PIKA or _name.startswith(f"{_PIKA}."):
        logging.getLogger(_name).addFilter(_is_wanted)
