"""What an operating system says where there is no room on a disk."""

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk, and of a user who may have no more of it."""
