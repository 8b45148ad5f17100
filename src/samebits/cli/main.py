"""`samebits`: the commands, and the one place where an error becomes a line and an exit status.

A command's module is imported when it is called: the first token should not wait for other commands' imports.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from samebits import NUMERICS_VERSION, __version__
from samebits.core.collector import collector_paused
from samebits.core.errors import SamebitsError

# command -> its module and function there; a function named "app" holds commands of its own
COMMANDS = {
    "chat": ("generate", "chat"),
    "generate": ("generate", "generate"),
    "score": ("score", "score"),
    "devices": ("devices", "devices"),
    "support": ("support", "support"),
    "compare": ("compare", "compare"),
    "serve": ("serve", "serve"),
    "bench": ("bench", "app"),
    "golden": ("golden", "app"),
    "pull": ("pull", "pull"),
    "list": ("pull", "list_models"),
    "remove": ("pull", "remove"),
    "inspect": ("inspect", "inspect"),
    "convert": ("convert", "convert"),
    "quantize": ("convert", "quantize"),
    "tour": ("tour", "tour"),
    "explain": ("explain", "explain"),
    "trace": ("trace", "trace"),
    "shader": ("shader", "shader"),
    "diff": ("diff", "diff"),
    "verify": ("verify", "verify"),
}


def _version(value: bool) -> None:
    if value:
        typer.echo(f"samebits {__version__}, numerics version {NUMERICS_VERSION}")
        raise typer.Exit


def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """LLM inference with the same bits under any load."""


def build_app(names: Iterable[str]) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(help=root.__doc__, no_args_is_help=True, add_completion=False)
    app.callback()(root)
    for name in names:
        module_name, function_name = COMMANDS[name]
        module = import_module(f"samebits.cli.{module_name}")
        function = getattr(module, function_name)
        if function_name == "app":
            app.add_typer(function, name=name)
        else:
            app.command(name, context_settings=getattr(module, "CONTEXT_SETTINGS", None))(function)
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return build_app(COMMANDS)
    raise AttributeError(name)


def fault_line(error: BaseException) -> str | None:
    """What a user did wrong or the machine could not do, in one line; None for our own faults, shown in full."""
    text = " ".join(str(error).split())
    if isinstance(error, SamebitsError):
        return text
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and "failed to map segment" in text):
        return f"out of memory: {text or 'there is no more'}; needs a smaller model, --context-len or --num-pages"
    if isinstance(error, RecursionError):
        return f"nested too deeply: {text}; needs plainer input"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror or text}"
    if isinstance(error, RuntimeError) and text in ("can't start new thread", os.strerror(errno.EAGAIN)):
        return f"{text}; needs room for more threads, or fewer --threads"
    return None


def _leave(line: str, status: int) -> NoReturn:
    """Ends the process with one line on standard error and no traceback."""
    with suppress(OSError, ValueError):
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(line)}", highlight=False, emoji=False)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # it cannot be written, and the interpreter would complain of it again at its end
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def main() -> None:
    """Runs the command line; what a user or the machine did wrong is one line on standard error and exit status 2."""
    called = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        with collector_paused():  # imports drop nothing
            app = build_app([called] if called in COMMANDS else COMMANDS)
        app()
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except Exception as error:
        line = fault_line(error)
        if line is None:
            raise
    else:
        return
    _leave(line, 2)  # here, because what the error held has been freed


if __name__ == "__main__":
    main()
