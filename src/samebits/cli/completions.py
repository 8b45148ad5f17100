"""`samebits completions`: prints the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from samebits.cli import flags
from samebits.cli.main import COMPLETE_VARIABLE
from samebits.core.errors import BadInput

SHELLS = ("bash", "zsh", "fish")


def completions(
    shell: str = flags.Argument(..., metavar="SHELL", help="The shell that is to complete: bash, zsh or fish."),
) -> None:
    """Print a script for your shell, which then completes commands and options.

    For bash: samebits completions bash > ~/.local/share/bash-completion/completions/samebits

    For zsh: samebits completions zsh > a folder of $fpath, as _samebits

    For fish: samebits completions fish > ~/.config/fish/completions/samebits.fish
    """
    found = get_completion_class(shell) if shell in SHELLS else None
    if found is None:
        raise BadInput("completions", "SHELL", repr(shell), f"one of {', '.join(SHELLS)}")
    flags.echo(found(click.Command("samebits"), {}, "samebits", COMPLETE_VARIABLE).source())
