"""`redrive failed groups`: groups failed messages by what they have in common."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Annotated

import typer

from redrive.cli import cause_options, completion, index_options, message_options, messages, options
from redrive.cli.look_output import LookOutput
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.message.cause import Cause
from redrive.failures.message.groups import Group, Groups, Key
from redrive.failures.message.readable_values import value_of
from redrive.failures.queue.message_source import column_named
from redrive.failures.store.filter import OpenFilter
from redrive.failures.store.look import Look
from redrive.failures.store.overview import Overview, SharedGroup
from redrive.number_text import count_of
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.topology.names import FAILED_SUFFIX

GroupsOf = Callable[[message_options.Source], tuple[Groups, Look]]
_MOST_QUEUES = 5


class AllQueues:
    """The failed queues of a virtual host, and what was found in them."""

    def __init__(self, printer: Printer, broker: options.SourceOptions) -> None:
        self._printer = printer
        self._broker = broker
        self.overview = Overview()
        self.facts: list[dict[str, object]] = []
        """The queues that were read, as JSON values."""
        self.unread: dict[str, str] = {}
        """The reason why each of the other queues could not be read."""

    def look(self, groups_of: GroupsOf, limit: int) -> None:
        """Look at each queue that has messages."""
        for name, literal in self._listed().items():
            try:
                self._look_at(name, literal=literal, groups_of=groups_of, limit=limit)
            except RedriveError as error:
                reason = str(error).partition("\n")[0].rstrip(".")
                self.unread[name] = reason
                self._printer.note(f"{in_one_line(name)} can't be read: {reason}.")

    def end(self) -> None:
        """Exit with 1 if a queue could not be read."""
        if self.unread:
            raise typer.Exit(1)

    def as_json(self, shown: list[dict[str, object]], count: int) -> dict[str, object]:
        """Return the result as JSON values."""
        return {
            "virtual_host": BrokerURL.parse(self._broker.url).virtual_host,
            "messages": self.overview.total,
            "group_count": count,
            "groups": shown,
            "queues": self.facts,
            "unread": [{"queue": name, "reason": why} for name, why in self.unread.items()],
        }

    def summary(self, count: int, more: str) -> str:
        """Return the last line of the output."""
        found = self.overview
        if not found.queues:
            # Queues that could not be read may have messages.
            other = "other " if self.unread else ""
            return f"No {other}failed queue of this virtual host has a message."
        return (
            f"{count_of(found.total, 'message')} of {count_of(len(found.queues), 'queue')} in "
            f"{count_of(count, 'group')}{more}."
        )

    def _listed(self) -> dict[str, bool]:
        """Return the queues by name, and whether each is taken literally because redrive did not
        make it."""
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
    """Return the queues of a group as text, with the number of its messages in each."""
    more = len(shared.queues) - _MOST_QUEUES
    named = ", ".join(
        f"{in_one_line(queue)} {count:,}"
        for queue, count in shared.queues.most_common(_MOST_QUEUES)
    )
    return named + (f" and {more} more" if more > 0 else "")


_BINS = 12
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = ".:-=+*#@"
_FEW_KEYS = 3
_SOON_EVERY = 0.5
"""Seconds between updates of the partial result."""
_SOON_SHOWN = 8


@options.expanded
@index_options.answered
def groups(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="QUEUE",
            help="The main queue's name, such as ucenter@user, any dead-letter queue's, or a file "
            "that a snapshot wrote: .parquet, .jsonl or .duckdb. Default: all failed queues of the "
            "virtual host.",
            autocompletion=completion.queues,
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="The column to group by; `redrive failed columns` lists all.",
        ),
    ] = "group_id",
    where: message_options.Where = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="How many groups to show.")
    ] = 20,
    look_at: message_options.LookAt = None,
    *,
    index: index_options.IndexOptions,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Group failed messages by cause.

    It prints how often each cause occurred and when. A cause is the error's type, its message
    without numbers, ids and quoted values, and the innermost frame of the service's own code. The
    messages stay in the queue. At a terminal, a look that takes longer shows the largest causes so
    far.

    Without QUEUE it looks at all failed queues of the virtual host, and at the dead-letter queues
    that redrive did not make, as the management API lists them. A cause found in several queues is
    shown once, with those queues; the most recent comes first. It exits with 1 if a queue can't be
    read.

    \b
    Examples:
      redrive failed groups
      redrive failed groups ucenter@user --where "redrive_count = 0"
    """
    printer = Printer(output)
    column = column_named(by)
    with OpenFilter(message_options.filter_of(where, None)) as open_filter:
        # Read once the first queue was found: nobody waits twice for a broker that is down.
        book = cache(lambda: cause_options.book_at(broker.url))

        def groups_of(opened: message_options.Source) -> tuple[Groups, Look]:
            soon = PartialGroups()
            return opened.ask(
                lambda look: (
                    # Messages in a file have left the broker, so its remarks don't apply to them.
                    look.groups(column, open_filter, soon)
                    if opened.is_file or by != "group_id"
                    else book().groups_of(look, open_filter, soon)
                ),
                look_at,
                by_time=open_filter.is_by_time,
                index=index,
                on_shown=soon.show_in,
            )

        if source is None:
            everywhere = AllQueues(printer, broker)
            everywhere.look(groups_of, limit)
            _tell_overview(printer, everywhere, by, limit)
            return
        opened = message_options.Source(printer, source, broker)
        found, look = groups_of(opened)
    shown = found.largest_first
    if not opened.is_file:
        completion.remember_groups(broker.url, source, shown[:limit])
    printer.result(
        {
            "source": opened.name,
            **look.as_json(),
            "messages": found.total,
            "group_count": len(shown),
            "groups": [_json_of(by, group) for group in shown[:limit]],
        }
    )
    if not printer.for_programs:
        _tell(printer, shown[:limit])
        more = f"; --limit {len(shown)} shows all" if len(shown) > limit else ""
        printer.say(
            f"{count_of(found.total, 'message')} of {opened.name} in "
            f"{count_of(len(shown), 'group')}{more}."
            f"{message_options.not_looked_at(look)}"
        )
    if found.other:
        printer.note(f"{count_of(found.other, 'message')} in groups beyond those counted.")


def _tell_overview(printer: Printer, everywhere: AllQueues, by: str, limit: int) -> None:
    """Print the groups of all queues, and exit with 1 if a queue could not be read."""
    groups = everywhere.overview.latest_first
    printer.result(
        everywhere.as_json(
            [
                {
                    **_json_of(by, one.group),
                    "example_queue": one.queue,
                    "queues": dict(one.queues.most_common()),
                }
                for one in groups[:limit]
            ],
            len(groups),
        )
    )
    if not printer.for_programs:
        for one in groups[:limit]:
            _tell(printer, [one.group], f" in {in_one_line(one.queue)}")
            printer.say(f"{'':8}  queues: {queues_in_words(one)}")
        more = f"; --limit {len(groups)} shows all" if len(groups) > limit else ""
        printer.say(everywhere.summary(len(groups), more))
    if everywhere.overview.other:
        other = count_of(everywhere.overview.other, "message")
        printer.note(f"{other} in groups beyond those counted.")
    everywhere.end()


class PartialGroups:
    """A live display of the largest groups so far, while a look is running."""

    def __init__(self) -> None:
        self._output: LookOutput | None = None
        self._next = 0.0

    def show_in(self, output: LookOutput) -> None:
        """Show the groups in this output from now on."""
        self._output = output

    def __call__(self, groups: Groups) -> None:
        now = time.monotonic()
        if self._output is None or not self._output.is_seen or now < self._next:
            return
        self._next = now + _SOON_EVERY
        largest = groups.largest_first
        lines = [_first_line_of(group) for group in largest[:_SOON_SHOWN]]
        more = len(largest) - len(lines)
        self._output.show_lines([*lines, *([f"{'':8}  and {more:,} more so far"] if more else [])])


def _first_line_of(group: Group) -> str:
    id_ = f"{group.key.group_id}  " if isinstance(group.key, Cause) else ""
    return f"{group.count:>8,}  {id_}{in_one_line(_words_of(group.key))}"


def _tell(printer: Printer, shown: list[Group], place: str = "") -> None:
    """Print three lines for each group: its cause, its times and routing keys, and an example with
    its queue."""
    for group in shown:
        printer.say(_first_line_of(group), "bold", cut=True)
        printer.say(
            f"{'':8}  "
            f"{'  '.join(part for part in (_bars(group), _times(group), _keys(group)) if part)}",
            cut=True,
        )
        printer.say(f"{'':8}  example: {group.first_id}{place}")


def _times(group: Group) -> str:
    if group.first is None or group.last is None:
        return "time not recorded"
    first, last = messages.moment_of(group.first), messages.moment_of(group.last)
    day, time_of_day = last.split(" ")
    return f"{first} – {time_of_day if first.startswith(day) else last} UTC"


def _keys(group: Group) -> str:
    more = len(group.routing_keys) - _FEW_KEYS
    named = ", ".join(in_one_line(key) for key, _ in group.routing_keys.most_common(_FEW_KEYS))
    return named + (f" and {more} more" if more > 0 else "")


def _words_of(key: Key) -> str:
    return key.in_words if isinstance(key, Cause) else "–" if key is None else str(value_of(key))


def _bars(group: Group) -> str:
    """Return a bar chart of when the messages failed; an ellipsis at an end stands for a few that
    failed long before or after."""
    if group.first is None:
        return ""
    try:
        _BARS.encode(sys.stdout.encoding or "ascii")
        bars, mark = _BARS, "…"
    except UnicodeEncodeError:
        bars, mark = _PLAIN_BARS, "~"
    counts, before, after = group.histogram(_BINS)
    most = max(counts)
    drawn = "".join(
        bars[(count * (len(bars) - 1) + most - 1) // most] if count else " " for count in counts
    )
    return f"{mark if before else ' '}{drawn}{mark if after else ' '}"


def _json_of(by: str, group: Group) -> dict[str, object]:
    about: dict[str, object] = {by: value_of(group.key)}
    if isinstance(group.key, Cause):
        cause = group.key
        about = {
            "group_id": cause.group_id,
            "error_type": cause.error_type or None,
            "message": cause.message or None,
            "frame": cause.frame or None,
        }
    return {
        **about,
        "count": group.count,
        "first": None if group.first is None else group.first.isoformat(),
        "last": None if group.last is None else group.last.isoformat(),
        "routing_keys": dict(group.routing_keys.most_common()),
        "example": group.first_id,
    }
