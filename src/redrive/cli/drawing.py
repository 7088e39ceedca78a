"""`redrive topology show`, `schema` and `init`: a topology file in other forms, and a file from a broker."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.drift import File, connector_for, subscriptions_in, wanted_by
from redrive.cli.output import Form, Printer, count_of, print_json
from redrive.errors import ConfigurationError
from redrive.pubsub.management import Management
from redrive.redaction import printable
from redrive.topology import spec
from redrive.topology.drawing import definitions_of, json_of, mermaid_of, tree_of
from redrive.topology.recovery import file_of, recover


class Drawing(StrEnum):
    """How a topology is shown."""

    TREE = "tree"
    MERMAID = "mermaid"
    JSON = "json"
    DEFINITIONS = "definitions"


def show(
    file: File,
    drawing: Annotated[
        Drawing,
        typer.Option("--format", metavar="tree|mermaid|json|definitions", help="definitions is what RabbitMQ itself can import."),
    ] = Drawing.TREE,
    virtual_host: Annotated[
        str | None,
        typer.Option(
            "--vhost",
            metavar="NAME",
            show_default=False,
            help="The virtual host that definitions name. rabbitmqctl import_definitions needs it; POST /api/definitions/VHOST does not.",
        ),
    ] = None,
) -> None:
    """Show what the file asks for. No broker is asked.

    \b
    Example:
      redrive topology show topology.yaml --format mermaid
    and for RabbitMQ itself, in the virtual host /:
      redrive topology show topology.yaml --format definitions --vhost / > definitions.json
      rabbitmqctl import_definitions definitions.json
    """
    if virtual_host is not None and drawing is not Drawing.DEFINITIONS:
        raise ConfigurationError(f"--vhost is given, and --format {drawing} names none", "Leave it out, or give --format definitions.")
    subscriptions = subscriptions_in(file)
    topology = wanted_by(subscriptions)
    match drawing:
        case Drawing.TREE:
            print(printable("\n".join(tree_of(subscriptions))))
        case Drawing.MERMAID:
            print(printable(mermaid_of(topology)))
        case Drawing.JSON:
            print_json([json_of(what) for what in (*topology.objects, *topology.pointers)], indent=2)
        case Drawing.DEFINITIONS:
            print_json(definitions_of(topology, virtual_host), indent=2)


def schema() -> None:
    """Print the JSON Schema of topology files, for editors.

    \b
    Example:
      redrive topology schema > redrive.schema.json
    and in the file's first line:
      # yaml-language-server: $schema=redrive.schema.json
    """
    print(json.dumps(spec.schema(), indent=2))


def init(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to write it; without one, to standard output.", show_default=False)
    ] = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Write a topology file from what is on the broker. A file that is there is never overwritten.

    Found is each queue that has a retry or a failed queue beside it; what can't be written down is said in a comment.

    \b
    Example:
      redrive topology init topology.yaml
    """
    printer = Printer(output)
    if file is not None and file.exists():
        raise ConfigurationError(f"{str(file)!r} is there already", "Give another name, or remove it first.")
    with Management(connector_for(url, "init", file or Path()).url, management_url) as management:
        recovered = recover(management.observe())
    text = file_of(recovered)
    if file is not None:
        _write(file, text)
    elif not printer.as_json:
        print(printable(text), end="")
    printer.result(
        {"file": str(file) if file else None, "subscriptions": [s.queue for s in recovered.subscriptions], "notes": recovered.notes}
    )
    printer.note(f"{count_of(len(recovered.subscriptions), 'subscription')} found{f', written to {file}' if file else ''}.")
    for note in recovered.notes:
        printer.note(note)


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            file.unlink(missing_ok=True)  # half a file would be read as a whole one
        raise ConfigurationError(f"{str(file)!r} can't be written: {error.strerror}", "Give another place.") from error
