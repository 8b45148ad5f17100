"""The WebGPU backend's bars: `python benchmarks/webgpu_bars.py [--model smollm2] [--isa neon]`.

Decode and a prompt of 512 on webgpu against our own cpu backend, limited to one instruction set, in turn, round by
round. Then where a step's time goes: dispatches, microseconds by kernel on the device, what encoding takes on the host.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import wgpu
from hybrid_bars import show
from rich.console import Console
from rich.table import Table

from samebits.backends.cpu import ISA_VARIABLE
from samebits.backends.webgpu.executable import WebGpuExecutable
from samebits.backends.webgpu.schedule import Schedule
from samebits.bench.ceiling import usable_threads
from samebits.bench.ours import Ours, Settings, step_batch
from samebits.bench.results import Row
from samebits.engine.runner import Runner

ISAS = {"aarch64": "neon", "arm64": "neon", "x86_64": "avx2", "AMD64": "avx2"}
DECODE, PROMPT = Row("decode", 16, depth=16), Row("prefill", 512)
NEED = 0.15
MOST_TIMED = 2048  # a query set has 4,096 timestamps


class Cpu(Ours):
    """The native backend."""

    name = "cpu"


def step_of(runner: Runner, num_tokens: int, depth: int) -> Any:
    return step_batch(Row("prefill", num_tokens), runner.limits, runner.vocab_size, depth, num_tokens)


def device_microseconds(executable: WebGpuExecutable, schedule: Schedule) -> np.ndarray:
    """float64 [dispatches]: each in a pass of its own, between two timestamps."""
    starts = range(0, len(schedule.launches), MOST_TIMED)
    return np.concatenate([_timed(executable, schedule.launches[at : at + MOST_TIMED]) for at in starts])


def _timed(executable: WebGpuExecutable, launches: Sequence[Any]) -> np.ndarray:
    gpu, count = executable._gpu, 2 * len(launches)
    queries = gpu.device.create_query_set(type=wgpu.QueryType.timestamp, count=count)
    usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
    times = gpu.device.create_buffer(size=8 * count, usage=usage)
    encoder = gpu.device.create_command_encoder()
    for number, (pipeline, group, offsets, grid) in enumerate(launches):
        writes = {"query_set": queries, "beginning_of_pass_write_index": 2 * number}
        alone = encoder.begin_compute_pass(timestamp_writes={**writes, "end_of_pass_write_index": 2 * number + 1})
        alone.set_pipeline(pipeline)
        alone.set_bind_group(0, group, offsets)
        alone.dispatch_workgroups(*grid)
        alone.end()
    encoder.resolve_query_set(queries, 0, count, times, 0)
    gpu.queue.submit([encoder.finish()])
    ticks = np.frombuffer(gpu.queue.read_buffer(times), np.uint64).reshape(-1, 2)
    return (ticks[:, 1] - ticks[:, 0]).astype(np.float64) / 1e3


def encoding_seconds(executable: WebGpuExecutable, schedule: Schedule) -> float:
    """What the host takes to write all dispatches down; nothing is sent."""
    started = time.perf_counter()
    encoder = executable._gpu.device.create_command_encoder()
    schedule.encode(encoder)
    encoder.finish()
    return time.perf_counter() - started


def profile(runner: Runner, num_tokens: int, depth: int, repeats: int, console: Console) -> None:
    """Prints one table: kernels of a step, by time on the device."""
    executable = runner._executable
    if not isinstance(executable, WebGpuExecutable):
        raise SystemExit("the model does not run on WebGPU kernels alone")
    walls, encodings, by_dispatch = [], [], []
    for number in range(repeats + 1):
        started = time.perf_counter()
        runner.run(step_of(runner, num_tokens, depth)).wait()
        if number:  # the first compiles
            walls.append(time.perf_counter() - started)
        schedule = executable._schedule()
        encodings.append(encoding_seconds(executable, schedule))
        by_dispatch.append(device_microseconds(executable, schedule))
    micros = np.median(by_dispatch, axis=0)
    taken, calls = Counter[str](), Counter[str]()
    for dispatch, each in zip(schedule.dispatches, micros, strict=True):
        taken[dispatch.shader] += each
        calls[dispatch.shader] += 1
    wall, encoding = statistics.median(walls), statistics.median(encodings)
    table = Table(title=f"{num_tokens} tokens after {depth}: {len(micros)} dispatches, {1e3 * wall:,.1f} ms a step")
    for column in ("kernel", "dispatches", "µs each", "share of the device's time"):
        table.add_column(column)
    for name, total in taken.most_common():
        table.add_row(name, str(calls[name]), f"{total / calls[name]:,.1f}", f"{total / micros.sum():.1%}")
    console.print(table)
    line = f"device {micros.sum() / 1e3:,.1f} ms; encoding {1e3 * encoding:,.2f} ms, {encoding / wall:.1%} of the step"
    console.print(line, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--isa", default=ISAS.get(platform.machine(), "scalar"), help="of the cpu backend")
    parser.add_argument("--threads", type=int, default=usable_threads(), help="of the cpu backend")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile-only", action="store_true")
    asked = parser.parse_args()
    os.environ[ISA_VARIABLE] = asked.isa
    rows = (DECODE, PROMPT)
    ours = Settings(asked.model, "webgpu", asked.threads, "portable")
    side = Ours(ours, ours.open(), rows)
    console = Console()
    device = side.found.caps.device if side.found.caps else ""
    if not asked.profile_only:
        cpu = Settings(asked.model, "cpu", asked.threads, "portable")
        title = f"{asked.model} on {device}, against cpu limited to {asked.isa}, {asked.threads} threads"
        bars = {(Cpu.name, row): NEED for row in rows}
        show(title, rows, side, [Cpu(cpu, cpu.open(), rows)], bars, asked.repeats)
    for num_tokens, depth in ((1, DECODE.depth), (PROMPT.num_tokens, 0)):
        profile(side.runner, num_tokens, depth, max(1, asked.repeats // 2), console)


if __name__ == "__main__":
    main()
