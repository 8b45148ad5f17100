"""Prints what extras of this package require, a line each, so that they are installed without building it again.

python packaging/requirements.py dev site
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements_of(extra: str) -> list[str]:
    """Those of an extra, and of the extras of ours that it names. KeyError for one that there is not."""
    lines: list[str] = []
    for line in tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"][extra]:
        ours = re.fullmatch(r"samebits\[([\w,-]+)\]", line)
        lines += [inner for name in ours[1].split(",") for inner in requirements_of(name)] if ours else [line]
    return lines


if __name__ == "__main__":
    print(*(line for extra in sys.argv[1:] for line in requirements_of(extra)), sep="\n")
