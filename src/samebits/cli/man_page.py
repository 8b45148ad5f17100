"""Writes docs/samebits.1 from the help texts (`make man`); a test fails when it is stale."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from samebits import __version__
from samebits.cli.commands import HELP, whole_command_line
from samebits.cli.flags import ShownArgument

TAIL = """.SH ENVIRONMENT
An option that names a variable, such as $SAMEBITS_MODEL, takes its value from there unless it is given.
.TP
.B SAMEBITS_CACHE
The folder of fetched models; samebits/models in the user's cache folder if absent.
.SH FILES
.TP
.I ~/.local/state/samebits/chat_history
What was typed in conversations, for the user alone; under $XDG_STATE_HOME where that is set.
.SH EXIT STATUS
0 for success, 2 for a mistake in the call or something that the machine cannot do, with one line on standard error, and
130 after Ctrl-C. Commands that compare or prove end with 1 where something differs or fails.
"""


def _text(text: str) -> str:
    """Text for roff: its own characters escaped, nothing at a line's start that it would obey."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


def _entry(name: str, text: str) -> Iterator[str]:
    yield from (".TP", f".B {_text(name)}", _text(text))


def _command(command: click.Command, path: str) -> Iterator[str]:
    """The section of a command, and those of the commands in it."""
    context = click.Context(command, info_name=path, **command.context_settings)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{_text(f"{path} {usage}".strip())}"'
    for paragraph in (command.help or "").split("\n\n"):
        yield from (_text(" ".join(paragraph.split())), ".PP")
    for parameter in command.params:
        if isinstance(parameter, ShownArgument):
            yield from _entry(parameter.make_metavar(context), parameter.text)
        elif record := parameter.get_help_record(context):
            if "--version" not in parameter.opts:
                yield from _entry(*record)
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(child, f"{path} {name}")


def man_page() -> str:
    """The whole page, in roff's man macros."""
    app = whole_command_line()
    lines = [
        f'.TH SAMEBITS 1 "" "samebits {__version__}"',
        ".SH NAME",
        f"samebits \\- {_text(HELP[0] + HELP[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B samebits",
        "COMMAND [OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        "Every command takes",
        '.BR \\-h " and"',
        ".BR \\-V .",
        "Where a command has",
        ".BR \\-\\-json ,",
        "that is printed on standard output and nothing else is there;",
        ".B \\-\\-output",
        "writes it to a file.",
        ".SH COMMANDS",
    ]
    for name, command in app.commands.items():
        lines += _command(command, f"samebits {name}")
    return "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(man_page(), encoding="utf-8")
