"""A topology file and the broker that it is for, as the tests of `redrive topology` use them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cli_support import Outcome, redrive
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, declaring
from redrive.topology.diff import Observed
from waiting import wait_until


class Team(NamedTuple):
    """A team's file, its virtual host, and the management API beside it."""

    file: Path
    url: str
    management_url: str

    def run(self, command: str, *arguments: str) -> Outcome:
        """Runs a command on the file."""
        return redrive(
            "topology",
            command,
            str(self.file),
            "--management-url",
            self.management_url,
            *arguments,
            url=self.url,
        )

    def with_file(self, text: str) -> "Team":
        """Another file beside this one, for the same virtual host."""
        file = self.file.with_name("another.yaml")
        file.write_text(text)
        return self._replace(file=file)

    def observe(self) -> Observed:
        """What is on the broker."""
        with ManagementAPI(self.url, self.management_url) as management:
            found = management.observe()
        ours = {
            name: kind
            for name, kind in found.exchanges.items()
            if name and not name.startswith("amq.")
        }
        # The pauses of a family outlive what one file declares.
        queues = {name: one for name, one in found.queues.items() if not name.endswith(".control")}
        return Observed(ours, queues, found.bindings)

    def wait_until_nothing_is_left(self) -> None:
        """Waits until the management API lists nothing: it lists what was deleted a moment ago."""
        wait_until(lambda: self.observe() == Observed({}, {}, frozenset()), "nothing is left")

    def change(self, change: Callable[[Declarer], object]) -> None:
        """Does something to the broker behind the file's back."""
        with declaring(Connector(self.url, "test")) as declarer:
            change(declarer)
