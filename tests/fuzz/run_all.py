"""Runs every fuzz target of this folder for some time, two at once, and prints a table.

    python tests/fuzz/run_all.py --seconds 60 [--seed N] [--jobs 2]

The exit status is 1 when any of them found something.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
NOT_TARGETS = ("fuzz_driver",)
LAST_LINE = re.compile(r"^(\w+): (\d+) inputs, (\d+) findings$")


def run(script: Path, seconds: float, seed: int) -> tuple[str, str, str]:
    """A target's name, inputs and findings; what it printed beside these is printed when it is over."""
    command = [sys.executable, str(script), "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = done.stdout.splitlines() or [""]
    found = LAST_LINE.match(lines[-1])
    if found and done.returncode == 0:
        return script.stem, found[2], found[3]
    print(done.stdout)
    return script.stem, found[2] if found else "?", found[3] if found else f"it ended with status {done.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs every fuzz target.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="targets at once")
    args = parser.parse_args()
    scripts = sorted(path for path in HERE.glob("fuzz_*.py") if path.stem not in NOT_TARGETS)
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda script: run(script, args.seconds, args.seed), scripts))
    table = Table(title=f"{args.seconds:g} s each, seed {args.seed}")
    table.add_column("target")
    for column in ("inputs", "findings"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    sys.exit(any(findings != "0" for _, _, findings in rows))


if __name__ == "__main__":
    main()
