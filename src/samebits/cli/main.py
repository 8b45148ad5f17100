"""`samebits`: the entry point, and the one place where an error becomes a line and an exit status."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from samebits import NUMERICS_VERSION, __version__
from samebits.core.collector import collector_paused
from samebits.core.errors import SamebitsError
from samebits.core.systems import use_utf8

COMPLETE_VARIABLE = "_SAMEBITS_COMPLETE"  # in which a shell asks for completions, with its line in COMP_WORDS


def version_line() -> str:
    return f"samebits {__version__}, numerics version {NUMERICS_VERSION}"


def __getattr__(name: str) -> Any:
    if name == "app":
        from samebits.cli.commands import CommandLine

        return CommandLine()
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

    with collector_paused():  # imports drop nothing
        from samebits.cli.commands import CommandLine

    try:
        return int(CommandLine().main(arguments, prog_name="samebits", standalone_mode=False) or 0)
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
    use_utf8()
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
