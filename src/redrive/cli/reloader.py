"""A worker that is started anew whenever its program's files change, for whoever writes it."""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redrive.cli.worker_group import WorkerProcess
from redrive.errors import ConfigurationError
from redrive.pubsub.blocking.signals import until_signalled

logger = logging.getLogger("redrive")

_MOMENT = 0.1


class Reloader:
    """Runs one worker, and another in its place once Python files below the current directory have
    changed. One that ends by itself is waited for until they do.

    Args:
        words: what `redrive` is told.

    Raises:
        ConfigurationError: watchfiles is not installed.
    """

    def __init__(self, words: Sequence[str]) -> None:
        try:
            import watchfiles  # noqa: F401 - is it there?
        except ImportError as error:
            raise ConfigurationError(
                "--reload needs watchfiles, which is not installed", "pip install 'redrive[reload]'"
            ) from error
        self._words = words
        self._worker: WorkerProcess | None = None
        self._changed = threading.Event()
        self._changed.set()
        self._is_ending = False

    def run(self) -> None:
        """Runs until SIGTERM or Ctrl-C."""
        with self._watching():
            try:
                until_signalled(self._is_done, stop=self._stop, abort=self._leave)
            finally:
                if self._worker is not None:
                    self._worker.kill()

    def _is_done(self) -> bool:
        if self._worker is not None and (code := self._worker.code) is not None:
            self._worker.stop()
            self._worker = None
            if not self._is_ending and not self._changed.is_set():
                logger.warning("it has ended with code %d; waiting for a change", code)
        if self._worker is None:
            if self._is_ending:
                return True
            if self._changed.is_set():
                self._changed.clear()
                self._worker = WorkerProcess(self._words, "the program")
        elif self._changed.is_set():
            self._worker.stop()
        time.sleep(_MOMENT)
        return False

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Watches the files for as long as the block."""
        import watchfiles

        over = threading.Event()

        def watch() -> None:
            python_files = watchfiles.PythonFilter()
            for changes in watchfiles.watch(
                os.getcwd(), watch_filter=python_files, stop_event=over, raise_interrupt=False
            ):
                paths = sorted({os.path.relpath(path) for _, path in changes})
                logger.info("%s changed: starting over", _listed(paths))
                self._changed.set()

        thread = threading.Thread(target=watch, name="redrive-reload", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _stop(self) -> None:
        self._is_ending = True
        if self._worker is not None:
            self._worker.stop()

    def _leave(self) -> None:
        if self._worker is not None:
            self._worker.leave()


def _listed(paths: Sequence[str]) -> str:
    shown = [Path(path).as_posix() for path in paths[:3]]
    return ", ".join(shown) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
