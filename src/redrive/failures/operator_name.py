"""Who does something, as a journal and an index have it."""

import getpass
import os
import socket


def whoami() -> str:
    """The user of this process, and its host."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container may have a user that has no name
        name = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"
