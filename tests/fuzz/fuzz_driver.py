"""What every fuzz target shares: inputs until the time is over, in a process of their own whose death is a finding.

A target is a script `fuzz_NAME.py` beside this file that ends in `main(Target(...))`:

    python tests/fuzz/fuzz_NAME.py --seconds 60 [--seed N] [--replay FILE]

Half of the time inputs are drawn by hypothesis; where atheris is installed, the other half is guided by coverage.
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import coverage_hook  # noqa: F401  (it acts on imports after it)
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from samebits.core.errors import SamebitsError

MAX_INPUT_BYTES = 4 << 20
ROUND = 200  # examples of one hypothesis run: it remembers all of a run, which takes memory
HEAD = struct.Struct("<QQ")  # inputs so far, bytes of the one under way
FINDINGS = Path("fuzz-findings")
FOUND = 70  # a child's exit status after a finding
GAVE_UP = 1  # atheris's own, where a target runs too little of our code to be guided by


class Finding(Exception):
    """What a target raises, beside whatever else escapes it."""


@dataclass(frozen=True)
class Target:
    """run: one input; it returns, or lets escape what is a finding. inputs: how to draw them. seeds: good ones.

    An input may take max_cpu_seconds of this process and raise its peak memory by max_bytes.
    """

    name: str
    run: Callable[[bytes], None]
    inputs: SearchStrategy[bytes]
    seeds: Callable[[], list[bytes]]
    max_cpu_seconds: float = 5.0
    max_bytes: int = 512 << 20


@contextmanager
def only_own_errors() -> Iterator[None]:
    """Lets a SamebitsError pass if it is one printable line."""
    try:
        yield
    except SamebitsError as error:
        if not str(error).isprintable():
            raise Finding(f"a message that is not one printable line: {str(error)!r}") from error


class Board:
    """A mapped file in which a child notes the input it is about to run, so that it outlives the child."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as stream:
            stream.truncate(HEAD.size + MAX_INPUT_BYTES)
            self._map = mmap.mmap(stream.fileno(), HEAD.size + MAX_INPUT_BYTES)

    def note(self, data: bytes) -> None:
        self._map[HEAD.size : HEAD.size + len(data)] = data
        self._map[: HEAD.size] = HEAD.pack(self.num_inputs + 1, len(data))

    @property
    def num_inputs(self) -> int:
        return int(HEAD.unpack(self._map[: HEAD.size])[0])

    def last(self) -> bytes:
        num_bytes = HEAD.unpack(self._map[: HEAD.size])[1]
        return bytes(self._map[HEAD.size : HEAD.size + num_bytes])


def main(target: Target) -> None:
    """The script's command line."""
    parser = argparse.ArgumentParser(description=f"Fuzzes {target.name} for some time; a finding is exit status 1.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=Path, help="run one saved input in this process")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)  # engine and board
    args = parser.parse_args()
    if args.replay:
        _run_bounded(target, args.replay.read_bytes())
    elif args.child:
        engine, board = args.child
        ENGINES[engine](target, Board(Path(board)), args.seconds, args.seed)
    else:
        sys.exit(_supervise(target, args.seconds, args.seed))


def _supervise(target: Target, seconds: float, first_seed: int) -> int:
    """Runs the engines one after another, each in a child, up to the first finding; 1 after that."""
    engines = [name for name in ENGINES if name == "hypothesis" or find_spec(name)]
    num_inputs = num_findings = 0
    for engine in engines:
        with tempfile.NamedTemporaryFile(prefix=target.name) as file:
            board = Board(Path(file.name))
            options = ["--seconds", str(seconds / len(engines)), "--seed", str(first_seed)]
            command = [sys.executable, sys.argv[0], *options, "--child", engine, file.name]
            reason = _watch(subprocess.Popen(command), board, target, engine)
            num_inputs += board.num_inputs
            print(f"{target.name}: {board.num_inputs} inputs by {engine}", flush=True)
            if reason:
                num_findings += 1
                _save(target, board.last(), reason)
                break
    print(f"{target.name}: {num_inputs} inputs, {num_findings} findings")
    return 1 if num_findings else 0


def _watch(child: subprocess.Popen[bytes], board: Board, target: Target, engine: str) -> str:
    """Waits for the child's end; what is wrong with it, or nothing."""
    seen, since = 0, time.monotonic()
    patience = 60 + 10 * target.max_cpu_seconds  # of wall time: the machine may be busy
    while child.poll() is None:
        time.sleep(0.05)
        if board.num_inputs != seen:
            seen, since = board.num_inputs, time.monotonic()
        elif time.monotonic() - since > patience:
            child.kill()
            child.wait()
            return f"no end after {patience:g} s"
    if engine == "atheris" and child.returncode == GAVE_UP:
        print(f"{target.name}: atheris sees no coverage to be guided by", flush=True)
        return ""
    return "" if child.returncode == 0 else f"the process ended with status {child.returncode}"


def _save(target: Target, data: bytes, reason: str) -> None:
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    print(f"{target.name}: FINDING: {reason}; input of {len(data)} bytes saved as {path}: {data[:200]!r}")


def _run_bounded(target: Target, data: bytes) -> None:
    """Runs an input; Finding when it costs too much."""
    cpu_before, peak_before = time.process_time(), _peak_bytes()
    target.run(data)
    cpu_seconds, grown = time.process_time() - cpu_before, _peak_bytes() - peak_before
    exceeded = []  # both, where both are: memory that is touched for the first time takes time, too
    if cpu_seconds > target.max_cpu_seconds:
        exceeded.append(f"{cpu_seconds:.1f} s of CPU, more than {target.max_cpu_seconds:g}")
    if grown > target.max_bytes:
        exceeded.append(f"{grown >> 20} MiB, more than {target.max_bytes >> 20}")
    if exceeded:
        raise Finding("; ".join(exceeded))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _run_noted(target: Target, board: Board, data: bytes) -> None:
    """Runs an input whose finding ends the process at once, before any engine could hide it."""
    if len(data) > MAX_INPUT_BYTES:
        return
    board.note(data)
    try:
        _run_bounded(target, data)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(FOUND)


def _by_hypothesis(target: Target, board: Board, seconds: float, first_seed: int) -> None:
    deadline, number = time.monotonic() + seconds, first_seed
    for data in target.seeds():
        _run_noted(target, board, data)
    while time.monotonic() < deadline:

        @seed(number)
        @settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(target.inputs)
        def run_round(data: bytes) -> None:
            if time.monotonic() < deadline:
                _run_noted(target, board, data)

        run_round()
        number += 1


def _by_atheris(target: Target, board: Board, seconds: float, first_seed: int) -> None:
    atheris: Any = __import__("atheris")
    with tempfile.TemporaryDirectory() as corpus:
        for i, data in enumerate(target.seeds()):
            (Path(corpus) / str(i)).write_bytes(data)
        longest = 2 * max(map(len, target.seeds()))
        options = [f"-max_total_time={max(int(seconds), 1)}", f"-seed={first_seed + 1}", f"-max_len={longest}"]
        # atheris takes a timeout of 0 for one of its own, which a machine that pauses for a second exceeds
        quiet = ["-timeout=3600", "-rss_limit_mb=0", "-verbosity=0", "-print_final_stats=0"]  # we watch these ourselves
        atheris.Setup([sys.argv[0], *options, *quiet, corpus], lambda data: _run_noted(target, board, data))
        atheris.Fuzz()


ENGINES = {"hypothesis": _by_hypothesis, "atheris": _by_atheris}
