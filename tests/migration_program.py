"""A program that migrates a subscription, and may kill itself on the way:
`migration_program.py FILE URL MANAGEMENT_URL [N]`."""

import os
import signal
import sys
from pathlib import Path

from redrive.cli.topology_drift import subscriptions_in
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.transfer.migration_run import Migration


def main(file: str, url: str, management_url: str, most: str = "0") -> None:
    """Migrates; ends itself with SIGKILL when it is told something for the N-th time, where N is
    given."""
    told = 0

    def tell(sentence: str) -> None:
        nonlocal told
        told += 1
        print(sentence, flush=True)
        if told == int(most):
            os.kill(os.getpid(), signal.SIGKILL)

    (subscription,) = subscriptions_in(Path(file))
    with ManagementAPI(url, management_url) as management:
        print(Migration(Connector(url, "migration"), management, subscription, tell).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
