"""The guide's Python blocks, run as it says, give the output it shows; numbers apart, since cases come and go."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from samebits.ops import OPS
from samebits.verify.select import find_case

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/write-a-backend.md").read_text()
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"fail|unsupported|error|\d+ pass| +replay:")


def shown(text: str) -> list[str]:
    """The lines that matter: no tables, no numbers, no list of methods (each Python writes it in its own way)."""
    lines = [line.strip() for line in text.splitlines() if LINE.match(line)]
    lines = [re.sub(r"(abstract class \w+).*", r"\1", line) for line in lines]
    return [re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e-?\d+)?", "#", line) for line in lines]


def steps(block: str) -> list[tuple[list[str], str]]:
    """(command, output) pairs of a console block, without the shell's own commands."""
    parts = [part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(shlex.split(command)[1:], output) for command, _, output in parts if command.startswith("samebits ")]


def write_file(folder: Path, block: str) -> None:
    """A block names its file in its first line; ", at the end" adds to it."""
    name, _, how = block.partition("\n")[0].removeprefix("# ").partition(", ")
    path = folder / name
    path.write_text((path.read_text() if how == "at the end" else "") + block)


def test_the_guide_shows_what_happens(tmp_path: Path) -> None:
    search = os.pathsep.join([str(tmp_path), str(ROOT / "examples/toy-accelerator/src")])
    environment = {**os.environ, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"}
    count = 0
    for kind, block in FENCE.findall(GUIDE):
        if kind == "python":
            write_file(tmp_path, block)
            continue
        for command, expected in steps(block):
            done = subprocess.run(
                [sys.executable, "-m", "samebits.cli.main", *command, "-j", "1"],
                capture_output=True,
                text=True,
                env=environment,
                timeout=120,
                check=False,
            )
            assert shown(done.stdout + done.stderr) == shown(expected), " ".join(command)
            count += 1
    assert count >= 6


def test_what_the_guide_names_is_there() -> None:
    named = set(re.findall(r"`((?:src|examples|docs)/[\w./-]+)`", GUIDE))
    assert named
    named |= {f"docs/{link}" for link in re.findall(r"\]\(([\w./-]+\.md)\)", GUIDE)}
    assert [name for name in named if not (ROOT / name).exists()] == []
    sources = "\n".join(p.read_text() for p in (ROOT / "examples/toy-accelerator/src/samebits_toy").glob("*.py"))
    for op, case in re.findall(r"`(\w+)/([\w-]+)`", GUIDE):
        assert op not in OPS or find_case(OPS[op], case), f"{op}/{case}"
    for name in ("refuted_tiers", "_roots", "operand", "stream", "row_sum", "quantized_tile", "head", "rows"):
        assert re.search(rf"(def |self\.){name}\b", sources), name
