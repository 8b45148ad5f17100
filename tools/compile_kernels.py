"""Compiles the GPU kernels for GPUs that are not here: `python tools/compile_kernels.py --targets sm_90,gfx942`.

Every distinct launch that kernel_launches.py finds is compiled once for each target. A kernel that does not compile,
or that takes more shared memory than a target has, fails.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
from kernel_launches import TARGETS, Launch, launches_of
from triton import knobs

from samebits.kernels.cuda.nvrtc import CudaBuild
from samebits.ops import OPS, Op

SHARED_BYTES = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448, "gfx942": 65536, "gfx1100": 65536}  # of a block


@dataclass(frozen=True)
class Outcome:
    """What compiling a launch gave; `error` is empty where it worked."""

    seconds: float
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    error: str = ""


def compile_launch(launch: Launch) -> Outcome:
    """Compiles it, or finds it in the cache; nothing is thrown."""
    started = time.perf_counter()
    try:
        if isinstance(launch.build, CudaBuild):  # shapes.py chooses its shared memory, so that it fits
            code = launch.build.code()
            return Outcome(time.perf_counter() - started, *resources_of_cubin(code))
        compiled = launch.build.compiled()
    except Exception as error:  # whatever the compiler raises is the finding
        lines = str(error).strip().splitlines() or [""]
        return Outcome(time.perf_counter() - started, error=f"{type(error).__name__}: {lines[-1].strip()}")
    seconds, shared = time.perf_counter() - started, compiled.metadata.shared
    most = SHARED_BYTES[launch.target]
    error = f"takes {shared} bytes of shared memory; a block has {most}" if shared > most else ""
    return Outcome(seconds, *resources(compiled), shared, error)


def resources(compiled: Any) -> tuple[int | None, int | None]:
    """(registers of a thread, bytes of a thread that are in memory instead), where the compiled code tells."""
    if "amdgcn" in compiled.asm:
        found = [re.search(rf"\.{key}:\s+(\d+)", compiled.asm["amdgcn"]) for key in ("vgpr_count", "vgpr_spill_count")]
        registers, spilled = (int(m.group(1)) if m else None for m in found)
        return registers, None if spilled is None else 4 * spilled
    return resources_of_cubin(compiled.asm["cubin"])


def resources_of_cubin(code: bytes) -> tuple[int | None, int | None]:
    """The same, of machine code for NVIDIA's GPUs."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    match = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else (None, None)


def distinct(launches: Iterable[Launch]) -> list[Launch]:
    """Without those that several ops make alike."""
    return list({(x.target, x.build.key): x for x in launches}.values())


def one_per_function(launches: Iterable[Launch]) -> list[Launch]:
    """The last launch of each kernel function and target: later cases have a model's sizes."""
    return list({(launch.function, launch.target): launch for launch in launches}.values())


_work: list[Launch] = []  # of the processes of compile_all


def _compile_number(number: int) -> tuple[int, Outcome]:
    return number, compile_launch(_work[number])


def compile_all(launches: list[Launch], jobs: int) -> Iterator[tuple[Launch, Outcome]]:
    """Launches and outcomes as they come, from so many processes."""
    _work[:] = launches
    # forked, since a launch holds functions that cannot be sent
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for number, outcome in pool.imap_unordered(_compile_number, range(len(launches))):
            yield launches[number], outcome


def compile_ops(ops: list[Op], targets: list[str], full: bool, brief: bool, jobs: int) -> list[str]:
    """Prints a table; returns a line for everything that failed."""
    launches: list[Launch] = []
    failures: list[str] = []
    for op, target in itertools.product(ops, targets):
        found, failed = launches_of(op, target, full)
        launches += found
        failures += failed
    if not launches:
        failures.append("no kernel was launched")
    launches = one_per_function(launches) if brief else distinct(launches)
    print(f"{len(launches)} launches to compile with Triton {triton.__version__}")
    print(f"{'op':22} {'kernel':52} {'target':8} {'regs':>5} {'spill':>6} {'shared':>7} {'s':>5}")
    for launch, outcome in compile_all(launches, jobs):
        numbers = (outcome.registers, outcome.spilled_bytes, outcome.shared_bytes)
        registers, spilled, shared = ("-" if n is None else n for n in numbers)
        line = f"{launch.op:22} {launch.function:52} {launch.target:8} {registers:>5} {spilled:>6} {shared:>7}"
        print(f"{line} {outcome.seconds:5.1f} {outcome.error}", flush=True)
        if outcome.error:
            failures.append(f"{launch.function} of {launch.op} for {launch.target}: {outcome.error}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", default=",".join(TARGETS), help="default: %(default)s")
    parser.add_argument("--ops", help="default: all that have a kernel")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--full", action="store_true", help="the large cases too")
    parser.add_argument("--brief", action="store_true", help="one launch of each kernel function and target")
    options = parser.parse_args()
    targets = options.targets.split(",")
    makers = {TARGETS[name].backend for name in targets}
    if len(makers) > 1:  # kernel files ask torch once, when imported, whose GPU it is: a process for each maker
        alone = [[name for name in targets if TARGETS[name].backend == maker] for maker in sorted(makers)]
        return max(subprocess.call([sys.executable, *sys.argv, "--targets", ",".join(names)]) for names in alone)
    torch.version.hip = "none here" if makers == {"hip"} else None
    ops = [OPS[name] for name in options.ops.split(",")] if options.ops else list(OPS)
    failures = compile_ops(ops, targets, options.full, options.brief, options.jobs)
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
