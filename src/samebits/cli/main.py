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
from typing import TYPE_CHECKING, Any, NoReturn

from samebits import NUMERICS_VERSION, __version__
from samebits.core.collector import collector_paused
from samebits.core.errors import SamebitsError

if TYPE_CHECKING:
    import click

# command -> its module and function there; a function named "app" holds commands of its own
COMMANDS = {
    "chat": ("chat.command", "chat"),
    "generate": ("generate", "generate"),
    "score": ("score", "score"),
    "replay": ("replay", "replay"),
    "audit": ("audit", "audit"),
    "devices": ("devices", "devices"),
    "support": ("support", "support"),
    "compare": ("compare", "compare"),
    "serve": ("serve", "serve"),
    "warm": ("warm", "warm"),
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
    "completions": ("completions", "completions"),
}
COMPLETE_VARIABLE = "_SAMEBITS_COMPLETE"  # in which a shell asks for completions, with its line in COMP_WORDS


HELP = "LLM inference with the same bits under any load."


def version_line() -> str:
    return f"samebits {__version__}, numerics version {NUMERICS_VERSION}"


def build_app(names: Iterable[str]) -> click.Group:
    """The command line with these commands."""
    from samebits.cli.flags import Group, make_command

    app = Group("samebits", help=HELP)
    for name in names:
        module_name, function_name = COMMANDS[name]
        module = import_module(f"samebits.cli.{module_name}")
        found = getattr(module, function_name)
        is_group = function_name == "app"
        app.add_command(
            found if is_group else make_command(found, name, getattr(module, "CONTEXT_SETTINGS", None)), name
        )
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
        mark = "\x1b[1;31merror:\x1b[0m" if sys.stderr.isatty() else "error:"
        print(f"{mark} {line}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # it cannot be written, and the interpreter would complain of it again at its end
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    """Runs the command line; its exit status. A mistake in it is one line, with the command whose help would help."""
    import click

    is_completing = COMPLETE_VARIABLE in os.environ
    words = os.environ.get("COMP_WORDS", "").split()[1:] if is_completing else arguments
    called = words[0] if words else ""
    with collector_paused():  # imports drop nothing
        app = build_app([called] if called in COMMANDS else () if is_completing else COMMANDS)
        for name in COMMANDS if is_completing else ():  # their names are all that is asked for
            app.add_command(app.commands.get(name) or click.Command(name), name)
    try:
        return int(app.main(arguments, prog_name="samebits", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help())
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "samebits"
        text = " ".join(error.format_message().split()).rstrip(".")
        _leave(f"{text[:1].lower()}{text[1:]}; see {command} --help", error.exit_code)
    except click.Abort:
        _leave("interrupted", 130)


def main() -> None:
    """Runs the command line; what a user or the machine did wrong is one line on standard error and exit status 2."""
    arguments = sys.argv[1:]
    if arguments in (["-V"], ["--version"]):  # ahead of all imports
        print(version_line())
        return
    try:
        status = _run(arguments)
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except Exception as error:
        line = fault_line(error)
        if line is None:
            raise
    else:
        sys.exit(status)
    _leave(line, 2)  # here, because what the error held has been freed


if __name__ == "__main__":
    main()
