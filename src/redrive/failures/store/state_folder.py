"""The user's own folder, which by default holds the journal and the index."""

import errno
import os
import stat
import sys
from pathlib import Path

from redrive.errors import ConfigurationError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The disk is full, or the user's quota is used up."""
_OURS_ALONE = 0o700


def state_folder() -> Path:
    """Return the path of the folder."""
    from platformdirs import user_state_path

    return user_state_path("redrive", appauthor=False)


def check_state_folder() -> None:
    """Check that nobody else can put files into the folder, and remove others' permissions."""
    folder = state_folder()
    if sys.platform == "win32" or not folder.exists():
        return
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"the folder {str(folder)!r} belongs to another user, who could put another journal "
            "there",
            "Delete it, or set XDG_STATE_HOME to a folder of your own.",
        )
    if stat.S_IMODE(found.st_mode) & ~_OURS_ALONE:
        folder.chmod(_OURS_ALONE)


def to_disk(path: Path) -> None:
    """Return once a file, or the names in a folder, would survive a crash of this machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
