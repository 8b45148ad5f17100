"""Options that measurements share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from samebits.cli import flags
from samebits.core.errors import BadInput
from samebits.core.files import write_json

BACKEND = flags.Option(
    None,
    "--backend",
    envvar="SAMEBITS_BACKEND",
    help="The backend, by name or as module:Class; the native CPU kernels if absent.",
)
NUMERICS = flags.Option(
    None,
    "--numerics",
    envvar="SAMEBITS_NUMERICS",
    help="The tier: fast, invariant or portable; the strongest if absent.",
)
THREADS = flags.Option(
    None,
    "--threads",
    envvar="SAMEBITS_THREADS",
    help="Host threads that kernels may use; all of them if absent.",
    min=1,
    max=1024,
)
JSON_FILE = flags.Option(None, "--json", help="Write all figures to this file; - is standard output.")
PLOT_FILE = flags.Option(None, "--plot", help="Write a page to look at to this file.")
STANDARD_OUTPUT = Path("-")


def check_files(json_file: Path | None, plot_file: Path | None) -> Console:
    """The console for people: standard error where standard output is for a program. BadInput for a bad target."""
    for name, file in (("--json", json_file), ("--plot", plot_file)):
        if file and file != STANDARD_OUTPUT and (file.is_dir() or not file.parent.is_dir()):
            raise BadInput("bench", name, file, "a file in a folder that exists")
    return Console(stderr=json_file == STANDARD_OUTPUT)


def write_figures(file: Path | None, content: dict[str, Any]) -> None:
    if file == STANDARD_OUTPUT:
        flags.echo(json.dumps(content, indent=1))
    elif file:
        write_json(file, content)
