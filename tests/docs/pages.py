"""Fenced blocks of the pages that people read, and the commands in them."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMEBITS = [sys.executable, "-c", "from samebits.cli.main import main; main()"]  # the command, of this tree
SERVE = ["serve", "--receipts", "600"]  # how docs/prove-determinism.md starts a server
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "tests/fuzz/README.md",
    "examples/toy-accelerator/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+#.*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its first line, its language, its text."""

    page: str
    line: int
    language: str
    text: str


def blocks(*languages: str, pages: tuple[str, ...] = PAGES) -> list[Block]:
    """Return the blocks of some languages, or of all, in the order of the pages."""
    found = []
    for page in pages:
        text = (ROOT / page).read_text()
        for match in FENCE.finditer(text):
            block = Block(page, text[: match.start()].count("\n") + 2, match[1], match[2])
            if not languages or block.language in languages:
                found.append(block)
    return found


def commands(block: Block) -> list[str]:
    """Return the commands of a block of shell lines, or those behind "$ " in a block that shows output as well."""
    text = block.text.replace("\\\n", " ")
    lines = text.splitlines()
    if block.language != "sh":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    stripped = (COMMENT.sub("", line).strip() for line in lines)
    return [line for line in stripped if line]


def words(command: str) -> list[str]:
    """Return the words of a command, without variables that are set for it and without what comes behind a pipe."""
    split = shlex.split(command)
    while split and re.match(r"[A-Z_]+=", split[0]):
        split = split[1:]
    return split[: split.index("|")] if "|" in split else split
