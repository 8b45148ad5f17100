"""--json and --output, which mean the same in every command that has them.

With --json, standard output holds JSON and nothing else; what is for people goes to standard error. --output writes the
same JSON to a file, whole or not at all, whether it is printed or not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from samebits.cli import flags
from samebits.core.files import check_target, write_json

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, flags.Option("--json", help="Print JSON for programs, and nothing else, on standard output.")]
Output = Annotated[Path | None, flags.Option("--output", help="Write the JSON to this file.")]


def console_for(where: str, as_json: bool, **files: Path | None) -> Console:
    """The console for people; BadInput for a file, by the name of its option, that could not be written later."""
    from rich.console import Console

    for name, file in files.items():
        check_target(where, f"--{name}", file)
    return Console(stderr=as_json)


def emit(content: Any, as_json: bool, output: Path | None, indent: int | None = 1) -> None:
    """Prints the content where --json asks for it, and writes it where --output does."""
    if output is not None:
        write_json(output, content)
    if as_json:
        click.echo(_shown(json.dumps(content, ensure_ascii=False, indent=indent)))


def _shown(text: str) -> str:
    """Return JSON with everything escaped that a terminal would act on, or that has no form in UTF-8."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)
