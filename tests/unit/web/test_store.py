"""What a console does with its store."""

import errno
import logging
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.web.store import Store, StoreWork


def ended(folder: Path, error: Exception) -> StoreWork:
    """Work that has ended with an error."""

    def act(_: StoreWork) -> str:
        raise error

    store = Store(folder)
    store.do("copying q@failed", act)
    store.close()
    assert store.work is not None
    assert store.work.has_ended
    return store.work


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ConfigurationError("no queue", "Name one."), "no queue\nName one."),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "failed: [Errno 28] No space left on device",
        ),
    ],
)
def test_why_work_could_not_be_done_is_said(tmp_path: Path, error: Exception, problem: str) -> None:
    assert ended(tmp_path, error).problem == problem


def test_a_defect_is_said_and_its_traceback_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "redrive"):
        assert "a bug in redrive" in ended(tmp_path, KeyError("x")).problem
    assert [one.exc_info and one.exc_info[0] for one in caplog.records] == [KeyError]
