"""`samebits`: the commands, and the one place where an error becomes a line and an exit status."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from samebits import NUMERICS_VERSION, __version__
from samebits.cli import (
    bench,
    compare,
    devices,
    diff,
    explain,
    generate,
    golden,
    inspect,
    pull,
    score,
    support,
    tour,
    trace,
    verify,
)
from samebits.core.errors import SamebitsError

app = typer.Typer(help="LLM inference with the same bits under any load.", no_args_is_help=True, add_completion=False)
app.command("chat")(generate.chat)
app.command("generate")(generate.generate)
app.command("score")(score.score)
app.command("devices")(devices.devices)
app.command("support")(support.support)
app.command("compare")(compare.compare)
app.add_typer(bench.app, name="bench")
app.add_typer(golden.app, name="golden")
app.command("pull")(pull.pull)
app.command("inspect")(inspect.inspect)
app.command("tour")(tour.tour)
app.command("explain")(explain.explain)
app.command("trace")(trace.trace)
app.command("diff")(diff.diff)
app.command("verify", context_settings=verify.SIZES_ALLOWED)(verify.verify)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"samebits {__version__}, numerics version {NUMERICS_VERSION}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """LLM inference with the same bits under any load."""


def main() -> None:
    """Runs the command line; a user's mistake is one line on standard error and exit status 2."""
    try:
        app()
    except SamebitsError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"[bold red]error:[/] {escape(str(error))}", highlight=False, emoji=False
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
