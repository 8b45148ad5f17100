"""Seconds until something happens: `python benchmarks/startup.py [--rounds 9] [--against PYTHON] [--output F]`.

Prints, for each way to start, the least wall time and the least processor time of all rounds. With --against, another
environment's interpreter takes turns with this one, round by round, and the ratio of the two is printed: on a machine
that is busy, only that means something.

With --backend, only the first token of `samebits chat` is timed, on that backend, and the end of the process; with
--empty, once without any compiled kernel before all others, in a folder that is made for it and removed. Python's
bytecode is kept between the runs, as in any installed package.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from samebits.core.files import write_json

MAIN = ("-c", "from samebits.cli.main import main; main()")
WAYS = {
    "python itself": ("-c", "pass"),
    "import numpy": ("-c", "import numpy"),
    "samebits --version": (*MAIN, "--version"),
    "import samebits; samebits.LLM": ("-c", "import samebits; samebits.LLM"),
    "samebits chat --help": (*MAIN, "chat", "--help"),
    "first token of samebits chat": (*MAIN, "chat", "Hello", "--max-tokens", "1"),
}
BARS = {"samebits --version": 0.15, "import samebits; samebits.LLM": 0.25, "first token of samebits chat": 1.0}
CHAT = "first token of samebits chat"
EMPTY_BAR, FILLED_BAR = 15.0, 3.0  # seconds to the first token on a GPU, of 16 cores and an H200


def seconds(python: str, arguments: tuple[str, ...]) -> tuple[float, float]:
    """(wall time, processor time) of one run."""
    before, start = _processor_seconds(), time.perf_counter()
    done = subprocess.run([python, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"{' '.join(arguments)} ended with {done.returncode}")
    return time.perf_counter() - start, _processor_seconds() - before


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_seconds(arguments: tuple[str, ...]) -> tuple[float, float]:
    """(seconds to the first byte on standard output, seconds to the end) of one run."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    command = [sys.executable, "-u", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        if process.stdout is None or process.stderr is None or not process.stdout.read(1):
            raise SystemExit(process.communicate()[1].decode().strip() or f"{' '.join(arguments)} wrote nothing")
        first = time.perf_counter() - start
        process.communicate()
    return first, time.perf_counter() - start


def on_backend(backend: str, numerics: str, is_empty: bool, rounds: int, output: Path | None) -> None:
    """The first token on a backend: of the first run, without compiled kernels if asked for, and of the best other."""
    arguments = (*WAYS[CHAT], "--backend", backend, "--numerics", numerics)
    with tempfile.TemporaryDirectory() as folder:
        if is_empty:
            os.environ["TRITON_CACHE_DIR"] = folder
        first, *others = [first_seconds(arguments) for _ in range(rounds + 1)]
    least = min(others)
    figures = {"first": first, "least_of_others": least}
    print(f"{'':32} {'first token s':>14} {'end s':>8} {'bar s':>6}")
    print(f"{'no kernel compiled' if is_empty else 'the first run':32} {first[0]:14.3f} {first[1]:8.3f} {EMPTY_BAR:>6}")
    print(f"{'kernels found':32} {least[0]:14.3f} {least[1]:8.3f} {FILLED_BAR:>6}")
    if output:
        write_json(output, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--against", help="another environment's interpreter, to take turns with")
    parser.add_argument("--output", type=Path, help="write the figures here")
    parser.add_argument("--backend", help="time the first token on this backend alone")
    parser.add_argument("--numerics", default="portable", help="with --backend: the tier")
    parser.add_argument("--empty", action="store_true", help="with --backend: begin without any compiled kernel")
    given = parser.parse_args()
    if given.backend:
        on_backend(given.backend, given.numerics, given.empty, given.rounds, given.output)
        return
    pythons = [sys.executable, *([given.against] if given.against else [])]
    figures = {}
    print(
        f"{'':32} {'wall s':>8} {'CPU s':>8} {'bar s':>6}"
        + (f" {'other CPU s':>12} {'ratio':>6}" if given.against else "")
    )
    for way, arguments in WAYS.items():
        runs = [[seconds(python, arguments) for python in pythons] for _ in range(given.rounds + 1)][1:]
        least = [tuple(min(turn[i][k] for turn in runs) for k in (0, 1)) for i in range(len(pythons))]
        figures[way] = {"wall_seconds": least[0][0], "cpu_seconds": least[0][1], "others": least[1:]}
        line = f"{way:32} {least[0][0]:8.3f} {least[0][1]:8.3f} {BARS.get(way, ''):>6}"
        print(line + (f" {least[1][1]:12.3f} {least[0][1] / least[1][1]:6.2f}" if given.against else ""), flush=True)
    if given.output:
        write_json(given.output, figures)


if __name__ == "__main__":
    main()
