"""The command `redrive`, which waits for an answer of the management API for an hour:
`python patient_program.py ARGUMENTS…`."""

import sys
from datetime import timedelta
from functools import partialmethod

from redrive.cli.__main__ import main
from redrive.pubsub.admin.management_api import ManagementAPI

if __name__ == "__main__":
    patient = partialmethod(ManagementAPI.__init__, timeout=timedelta(hours=1))
    ManagementAPI.__init__ = patient  # type: ignore[method-assign,assignment]
    sys.exit(main())
