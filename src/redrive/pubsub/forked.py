"""A process that a handler has forked, and that comes back from the handler as if it were the
service."""

import os
import sys
import traceback
from typing import NoReturn


def end_child(error: BaseException | None) -> NoReturn:
    """End this process as Python ends one that has raised this, or nothing: it is a copy, which
    must neither settle the message nor take others.

    What the service has for its own end does not run, as in a child of `multiprocessing`.
    """
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF)
