"""`redrive failed groups` without a queue: the causes in all failed queues of a virtual host."""

from collections.abc import Callable
from dataclasses import replace

import typer

from redrive.cli import completion, message_options, options
from redrive.cli.output import Printer, count_of
from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.groups import Groups
from redrive.failures.look import Look
from redrive.failures.overview import Overview, SharedGroup
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.topology.names import FAILED_SUFFIX

GroupsOf = Callable[[message_options.Source], tuple[Groups, Look]]
_MOST_QUEUES = 5


class AllQueues:
    """The failed queues of a virtual host, and what was found in them.

    Args:
        printer: where it is shown what is read.
        broker: where they are.
    """

    def __init__(self, printer: Printer, broker: options.SourceOptions) -> None:
        self._printer = printer
        self._broker = broker
        self.overview = Overview()
        self.facts: list[dict[str, object]] = []
        """Which queues were read, as JSON values."""
        self.unread: dict[str, str] = {}
        """Why which queue could not be read."""

    def look(self, groups_of: GroupsOf, limit: int) -> None:
        """Look at each of them that has a message.

        Args:
            groups_of: looks at one.
            limit: how many groups of each the completion knows from then on.

        Raises:
            ConfigurationError: the queues can't be found.
        """
        for name, literal in self._listed().items():
            try:
                self._look_at(name, literal=literal, groups_of=groups_of, limit=limit)
            except RedriveError as error:
                reason = str(error).partition("\n")[0].rstrip(".")
                self.unread[name] = reason
                self._printer.note(f"{in_one_line(name)} can't be read: {reason}.")

    def end(self) -> None:
        """Exit with 1 where a queue could not be read."""
        if self.unread:
            raise typer.Exit(1)

    def as_json(self, shown: list[dict[str, object]], count: int) -> dict[str, object]:
        """Return the answer as JSON values.

        Args:
            shown: the groups that are shown.
            count: how many there are.
        """
        return {
            "virtual_host": BrokerURL.parse(self._broker.url).virtual_host,
            "messages": self.overview.total,
            "group_count": count,
            "groups": shown,
            "queues": self.facts,
            "unread": [{"queue": name, "reason": why} for name, why in self.unread.items()],
        }

    def summary(self, count: int, more: str) -> str:
        """Return the last line for people."""
        found = self.overview
        if not found.queues:
            # Where some could not be read, nobody knows.
            other = "other " if self.unread else ""
            return f"No {other}failed queue of this virtual host has a message."
        return (
            f"{count_of(found.total, 'message')} of {count_of(len(found.queues), 'queue')} in "
            f"{count_of(count, 'group')}{more}."
        )

    def _listed(self) -> dict[str, bool]:
        """Return the queues by name, and whether each is taken literally: redrive did not make it.

        Raises:
            ConfigurationError: the management API does not tell.
        """
        url = BrokerURL.parse(self._broker.url)
        try:
            with ManagementAPI(url, self._broker.management_url) as management:
                names = management.queue_names()
                others = dead_letter_survey.over_management(management)
        except RedriveError as error:
            problem, _, remedy = str(error).partition("\n")
            raise ConfigurationError(
                f"can't find the failed queues: {problem.rstrip('.')}",
                f"Name one: redrive failed groups QUEUE. Or: {remedy}",
            ) from error
        ours = {
            name: False
            for name in sorted(names)
            if name.endswith(FAILED_SUFFIX) and name != FAILED_SUFFIX
        }
        return {**ours, **{one.queue.name: True for one in others}}

    def _look_at(self, name: str, *, literal: bool, groups_of: GroupsOf, limit: int) -> None:
        broker = replace(self._broker, literal=literal)
        main = name if literal else name.removesuffix(FAILED_SUFFIX)
        source = message_options.Source(self._printer, main, broker, is_queue=True)
        if source.is_empty:
            return
        groups, look = groups_of(source)
        completion.remember_groups(broker.url, main, groups.largest_first[:limit])
        self.facts.append({"queue": source.name, "messages": groups.total, **look.as_json()})
        if groups.total:
            self.overview.take(source.name, groups)


def queues_in_words(shared: SharedGroup) -> str:
    """Return which queues a group is in, and how many of it are in each."""
    more = len(shared.queues) - _MOST_QUEUES
    named = ", ".join(
        f"{in_one_line(queue)} {count:,}"
        for queue, count in shared.queues.most_common(_MOST_QUEUES)
    )
    return named + (f" and {more} more" if more > 0 else "")
