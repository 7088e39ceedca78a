"""`redrive topology`: the commands that work on a topology file."""

import typer

from redrive.cli import destroying, drawing, migrating, planning

app = typer.Typer(
    help="Keep the topology of a team in a file: see what it would change on the broker, change it, and check that it stays so.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _topology(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("plan", short_help="Show what a file would change on the broker.")(planning.plan)
app.command("apply", short_help="Make what a file asks for.")(planning.apply)
app.command("check", short_help="Exit with 1 where the broker is not as a file says.")(planning.check)
app.command("migrate", short_help="Give live queues other arguments.")(migrating.migrate)
app.command("show", short_help="Show a file as a tree, a diagram, JSON or definitions.")(drawing.show)
app.command("init", short_help="Write a file from what is on the broker.")(drawing.init)
app.command("destroy", short_help="Delete what a file describes.")(destroying.destroy)
app.command("schema", short_help="Print the JSON Schema of topology files.")(drawing.schema)
