"""The operating system's errors for a full disk."""

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The disk is full, or the user's quota is used up."""
