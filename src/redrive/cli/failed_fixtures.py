"""`redrive failed fixtures`: writes failed messages as test cases."""

from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import message_options, options
from redrive.cli.failed_try import chosen_messages
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.message.mask import Mask
from redrive.failures.rehearsal.fixtures import sample, write_fixtures
from redrive.number_text import count_of


@options.expanded
def fixtures(
    queue: options.FailedQueueName,
    handler: Annotated[
        str,
        typer.Option(
            "--handler",
            metavar="MODULE:NAME",
            help="The app that handles them, or a function: shop.service:app.",
        ),
    ],
    folder: Annotated[
        Path,
        typer.Option("-o", "--folder", metavar="FOLDER", help="Where the tests are written."),
    ],
    where: message_options.Where = None,
    groups: message_options.Group = None,
    archive: message_options.Archive = None,
    most: Annotated[
        int,
        typer.Option(
            "--sample",
            metavar="N",
            min=1,
            help="How many messages at most, with bodies of different shapes.",
        ),
    ] = 5,
    masks: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="JSONPATH",
            help="Hide what is at this path of the bodies, such as '$.card.number'. Can be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    *,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Write failed messages as tests for pytest.

    For each cause there is a test, with a file of cases beside it: the first message of each shape
    of body. Each case runs on a broker in memory, so that it fails on the old handler and passes on
    the mended one. Secrets are hidden, and what --mask names. The messages stay in the queue.

    \b
    Example:
      redrive failed fixtures ucenter@user --group 3f2a9c1e5b7d --handler shop.service:app -o tests
    """
    printer = Printer(output)
    mask = Mask.of(masks or ())
    chosen, name = chosen_messages(
        printer,
        queue,
        broker,
        message_options.filter_of(where, groups),
        archive,
        lambda found: (sample(found, most), sum(1 for _ in found)),
    )
    files = write_fixtures(folder, chosen.messages, handler, mask) if chosen.messages else []
    printer.result({"messages": len(chosen.messages), "files": [str(path) for path in files]})
    if not files:
        printer.say(f"No message of {name} matches: nothing is written.")
        return
    printer.say(f"{count_of(len(chosen.messages), 'message')} of {name}, in these files:")
    for path in files:
        printer.say(f"  {path}")
