"""`samebits help`: the help of a command, as `samebits COMMAND --help` prints it."""

from __future__ import annotations

import click

from samebits.cli import flags


def show_help(
    context: click.Context,
    command: list[str] = flags.Argument((), metavar="[COMMAND]...", help="The command, such as bench serve."),
) -> None:
    """Show the help of a command, or the list of all commands."""
    found, at = context.find_root().command, context.find_root()
    for word in command:
        _, child, _ = found.resolve_command(at, [word]) if isinstance(found, click.Group) else (None, None, None)
        if child is None:
            raise click.UsageError(f"{at.command_path} has no command {word!r}", at)
        found, at = child, click.Context(child, info_name=word, parent=at, **child.context_settings)
    flags.echo(found.get_help(at))
