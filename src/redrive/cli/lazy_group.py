"""Command groups that import a command's module only when it is called: listing commands,
completing a word or running another command costs nothing."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click.core import Command


class CommandEntry(NamedTuple):
    """A command or a group, as it is listed.

    Args:
        place: its location, as `module:name`; a function, or the `typer.Typer` of a group.
        summary: the line in the list, which is the first sentence of the command's own help.
    """

    place: str
    summary: str

    def load(self) -> object:
        """Import its module and return the command."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)


class LazyGroup(TyperGroup):
    """A group that knows only the names and summaries of its commands until one is called."""

    listed: ClassVar[Mapping[str, CommandEntry]] = {}

    def __init__(self, **settings: object) -> None:
        super().__init__(**cast("dict[str, Any]", settings))
        for name, one in self.listed.items():
            self.add_command(TyperCommand(name, callback=None, short_help=one.summary))

    def resolve_command(
        self, ctx: object, args: list[str]
    ) -> "tuple[str | None, Command | None, list[str]]":
        """Find the command that the arguments name, and import it."""
        name, command, rest = super().resolve_command(cast("Any", ctx), args)
        if name is None or command is None:
            return name, command, rest
        return name, _command_of(name, self.listed[name].load()), rest


def lazy_group(help_text: str, commands: Mapping[str, CommandEntry]) -> typer.Typer:
    """Return a group of these commands, which prints its help when it is called without a
    command."""

    class _Group(LazyGroup):
        listed = commands

    group = typer.Typer(
        cls=_Group,
        help=help_text,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback(invoke_without_command=True)(_show_help)
    return group


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _command_of(name: str, found: object) -> "Command":
    """Return the click command of a function or a group."""
    # In a host app: a group by itself would get typer's options to install completion.
    host = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    host.callback()(_nothing)
    if isinstance(found, typer.Typer):
        host.add_typer(found, name=name)
    else:
        host.command(name)(cast("Any", found))
    return cast(TyperGroup, typer.main.get_command(host)).commands[name]


def _nothing() -> None:
    pass
