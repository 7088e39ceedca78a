"""`redrive topology show`, `schema` and `init`: show a topology file in other forms, and write one
from a broker."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer, print_json
from redrive.cli.topology_drift import File, connector_for, subscriptions_in, wanted_by
from redrive.errors import ConfigurationError
from redrive.number_text import count_of
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.redaction import printable
from redrive.topology import file_schema
from redrive.topology.broker_import import file_of, recover
from redrive.topology.formats import definitions_of, json_of, mermaid_of, tree_of


class Drawing(StrEnum):
    """The form in which to show a topology."""

    TREE = "tree"
    MERMAID = "mermaid"
    JSON = "json"
    DEFINITIONS = "definitions"


def show(
    file: File,
    drawing: Annotated[
        Drawing,
        typer.Option(
            "--format",
            metavar="tree|mermaid|json|definitions",
            help="How to show it; definitions is what RabbitMQ itself can import.",
        ),
    ] = Drawing.TREE,
    virtual_host: Annotated[
        str | None,
        typer.Option(
            "--vhost",
            metavar="NAME",
            show_default=False,
            help="The virtual host in the definitions. rabbitmqctl import_definitions needs it; "
            "POST /api/definitions/VHOST does not.",
        ),
    ] = None,
) -> None:
    """Show what a file asks for.

    It needs no broker.

    \b
    Example:
      redrive topology show topology.yaml --format mermaid
    and for RabbitMQ itself, in the virtual host /:
      redrive topology show topology.yaml --format definitions --vhost / > definitions.json
      rabbitmqctl import_definitions definitions.json
    """
    if virtual_host is not None and drawing is not Drawing.DEFINITIONS:
        raise ConfigurationError(
            f"--format {drawing} has no virtual host",
            "Leave --vhost out, or give --format definitions.",
        )
    subscriptions = subscriptions_in(file)
    topology = wanted_by(subscriptions)
    match drawing:
        case Drawing.TREE:
            print(printable("\n".join(tree_of(subscriptions))))
        case Drawing.MERMAID:
            print(printable(mermaid_of(topology)))
        case Drawing.JSON:
            print_json(
                [json_of(what) for what in (*topology.objects, *topology.pointers)], indent=2
            )
        case Drawing.DEFINITIONS:
            print_json(definitions_of(topology, virtual_host), indent=2)


def schema() -> None:
    """Print the JSON Schema of topology files.

    Editors check and complete a file with it.

    \b
    Example:
      redrive topology schema > redrive.schema.json
    and in the file's first line:
      # yaml-language-server: $schema=redrive.schema.json
    """
    print(json.dumps(file_schema.schema(), indent=2))


@options.expanded
def init(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Where to write it. Default: standard output.",
            show_default=False,
        ),
    ] = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Write a topology file from what is on the broker.

    It finds each queue that has a retry or a failed queue, and says in comments what a file can't
    express. An existing file is never overwritten.

    \b
    Example:
      redrive topology init topology.yaml
    """
    printer = Printer(output)
    if file is not None and file.exists():
        raise ConfigurationError(
            f"{str(file)!r} already exists", "Give another name, or remove it first."
        )
    with ManagementAPI(
        connector_for(broker.url, "init", file or Path()).url, broker.management_url
    ) as management:
        recovered = recover(management.observe())
    text = file_of(recovered)
    if file is not None:
        _write(file, text)
    elif not printer.for_programs:
        print(printable(text), end="")
    printer.result(
        {
            "file": str(file) if file else None,
            "subscriptions": [s.queue for s in recovered.subscriptions],
            "notes": recovered.notes,
        }
    )
    printer.note(
        f"{count_of(len(recovered.subscriptions), 'subscription')} "
        f"found{f', written to {file}' if file else ''}."
    )
    for note in recovered.notes:
        printer.note(note)


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            file.unlink(missing_ok=True)  # half a file could be taken for a whole one
        raise ConfigurationError(
            f"{str(file)!r} can't be written: {error.strerror}", "Give another place."
        ) from error
