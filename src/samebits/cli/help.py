"""`samebits help`: the help of a command, as `samebits COMMAND --help` prints it."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from samebits.cli import flags


def _child(found: click.Command, at: click.Context, word: str) -> click.Command | None:
    """Return the command of this name in a group of commands, or None."""
    return found.get_command(at, word) if isinstance(found, click.Group) else None


def _commands(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the commands that may follow the words that are typed already."""
    found = context.find_root().command
    for word in context.params.get("command") or ():
        child = _child(found, context, word)
        if child is None:
            return []
        found = child
    at = click.Context(found, parent=context)
    return found.shell_complete(at, incomplete) if isinstance(found, click.Group) else []


def show_help(
    context: click.Context,
    command: list[str] = flags.Argument(
        (), metavar="[COMMAND]...", help="The command, such as bench serve.", complete=_commands
    ),
) -> None:
    """Show the help of a command, or the list of all commands."""
    found, at = context.find_root().command, context.find_root()
    for word in command:
        _, child, _ = found.resolve_command(at, [word]) if isinstance(found, click.Group) else (None, None, None)
        if child is None:
            raise click.UsageError(f"{at.command_path} has no command {word!r}", at)
        found, at = child, click.Context(child, info_name=word, parent=at, **child.context_settings)
    flags.echo(found.get_help(at))
