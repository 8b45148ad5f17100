"""No room, a lost device, shaders that do not compile: one line each, and what can go on does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from samebits.backends.interface import Backend
from samebits.core.errors import OutOfMemory, SamebitsError, Unavailable
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.wgsl.lib.launch import Binding, Dispatch, Operand
from samebits.ops.build import OpBuilder

WIDTH = 64

NO_ROOM = """
import resource
import numpy as np
from samebits.backends.webgpu.backend import WebGpuBackend
from samebits.core.errors import OutOfMemory
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.wgsl.lib.packing import PackedWeight
from samebits.ops.build import OpBuilder

backend = WebGpuBackend()
b = OpBuilder()
graph = b.finish(b.scale(b.input("x", TensorSpec((4, 8), "f32")), factor=2.0))
executable = backend.compile(graph, Tier.PORTABLE)
executable.bind("x", backend.adopt(np.ones((4, 8), np.float32)))
executable.run()
backend.sync()
texels = np.zeros((384, 8192, 4), np.uint32)
used_bytes = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit_bytes = used_bytes + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
kept = []
for ask in (
    lambda: backend.alloc(TensorSpec((96 << 18,), "f32")),
    lambda: backend.adopt_packed(lambda host: PackedWeight("f32", (1, 1), ((0, 1, texels),)), np.zeros((1, 1), "f4")),
):
    try:
        while len(kept) < 20:
            kept.append(ask())
        raise SystemExit("there was room for everything")
    except OutOfMemory as error:
        print(error)
    kept.clear()
executable.run()
backend.sync()
print(np.array_equal(backend.copy_out(executable.output(0)), np.full((4, 8), 2, np.float32)))
"""


def scaled(num_rows: int) -> Graph:
    b = OpBuilder()
    return b.finish(b.scale(b.input("x", TensorSpec((Sym("T", num_rows), WIDTH), "f32")), factor=2.0))


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("XDG_RUNTIME_DIR", "NODEVICE_SELECT")}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=120)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space, as Linux lets one")
@pytest.mark.usefixtures("webgpu")
def test_no_room_at_alloc_and_at_upload() -> None:
    """In a process that may have little memory; what ran before runs again afterwards."""
    finished = run_python("-c", NO_ROOM)
    alloc, upload, *rest = finished.stdout.splitlines()
    assert alloc.startswith("webgpu: 96.0 MiB of memory on ")
    assert upload.startswith("webgpu: 48.0 MiB of weights on ")
    assert alloc.endswith("no room is left")
    assert rest == ["True"]
    assert finished.returncode == 0
    assert finished.stderr == ""


def test_a_tensor_that_no_shader_sees(webgpu: Backend) -> None:
    with pytest.raises(OutOfMemory, match=r"f32\[1099511627776\] takes 4,194,304 MiB; a shader sees \d+ at most"):
        webgpu.alloc(TensorSpec((1 << 40,), "f32"))
    assert webgpu.copy_out(webgpu.adopt(np.ones(3, np.float32))).tolist() == [1, 1, 1]


def test_a_step_that_is_too_large_is_refused_and_the_next_one_runs(webgpu: Backend) -> None:
    num_rows = 2 * webgpu.gpu.max_binding_bytes // (4 * WIDTH)
    b = OpBuilder()
    table, ids = (
        b.input("table", TensorSpec((2, WIDTH), "f32")),
        b.input("ids", TensorSpec((Sym("T", num_rows),), "i32")),
    )
    executable = webgpu.compile(b.finish(b.embedding(table, ids)), Tier.PORTABLE)
    rows = np.stack([np.ones(WIDTH, np.float32), np.full(WIDTH, 2, np.float32)])
    executable.bind("table", webgpu.adopt(rows))
    executable.bind("ids", webgpu.adopt(np.arange(num_rows, dtype=np.int32) % 2))
    executable.prepare({"T": num_rows})
    with pytest.raises(OutOfMemory, match=r"embedding.0 takes \d+ MiB in this step; a shader sees \d+ at most"):
        executable.run()
    executable.prepare({"T": 2})
    executable.run()
    assert np.array_equal(webgpu.copy_out(executable.output(0)), rows)


def test_a_lost_device_is_said_in_one_line(webgpu: Backend) -> None:
    """By everything that asks it for something; other devices of the process go on."""
    from samebits.backends.webgpu.backend import WebGpuBackend
    from samebits.backends.webgpu.device import open_device

    backend = WebGpuBackend()
    backend.__dict__["gpu"] = open_device()
    host = np.ones((2, WIDTH), np.float32)
    buffer, executable = backend.adopt(host), backend.compile(scaled(2), Tier.PORTABLE)
    executable.bind("x", buffer)
    executable.prepare({"T": 2})
    executable.run()
    backend.gpu.device.destroy()
    asks: list[Callable[[], object]] = [
        backend.sync,
        lambda: backend.alloc(TensorSpec((4,), "f32")),
        lambda: backend.copy_in(buffer, host),
        lambda: backend.copy_out(buffer),
        executable.run,
        lambda: backend.compile(scaled(2), Tier.PORTABLE),
    ]
    for ask in asks:
        with pytest.raises(Unavailable, match="the device was lost; needs a new process") as caught:
            ask()
        assert "\n" not in str(caught.value)
    webgpu.sync()
    assert np.array_equal(webgpu.copy_out(webgpu.adopt(host)), host)


def test_a_shader_that_does_not_compile_names_its_file_and_its_mistake(webgpu: Backend) -> None:
    from samebits.backends.webgpu.pipelines import pipelines

    memory = webgpu.alloc(TensorSpec((16,), "f32")).memory
    broken = Dispatch("rows/quantize", (Binding("x", Operand("f32", (16,), memory)),), (1, 1, 1))
    with pytest.raises(SamebitsError, match=r"^webgpu: shader rows/quantize: .*no definition in scope") as caught:
        pipelines(webgpu.gpu).of([broken])
    assert "\n" not in str(caught.value)
    assert "│" not in str(caught.value)


def test_a_grid_that_no_device_takes(webgpu: Backend) -> None:
    from samebits.backends.webgpu.errors import explained
    from samebits.backends.webgpu.schedule import Schedules
    from samebits.kernels.wgsl.lib.launch import Call
    from samebits.kernels.wgsl.table import wgsl_kernels

    def run(num_groups: int) -> None:
        """A scale on a grid of its own."""
        x, y = (Operand("f32", (4, WIDTH), webgpu.alloc(TensorSpec((4, WIDTH), "f32")).memory) for _ in range(2))
        (kernel,) = (k for k in wgsl_kernels() if k.op.name == "scale")
        (stated,) = kernel.run(Call({"x": x}, (y,), {"factor": 1.0}, lambda n: x))
        schedule = Schedules(webgpu.gpu, None).get((1,), lambda: [replace(stated, grid=(num_groups, 1, 1))])
        with explained("a step"):
            encoder = webgpu.gpu.device.create_command_encoder()
            schedule.encode(encoder)
            webgpu.gpu.queue.submit([encoder.finish()])

    with pytest.raises(SamebitsError, match=r"^webgpu: a step: .*65535") as caught:
        run(70000)
    assert "\n" not in str(caught.value)
    run(1)
    webgpu.sync()


def test_what_wgpu_only_logs_is_raised_by_the_next_wait(webgpu: Backend) -> None:
    webgpu.sync()
    logging.getLogger("wgpu").error("Validation Error\n\nCaused by:\n  In wgpuQueueSubmit\n    the queue is not well")
    with pytest.raises(SamebitsError, match=r"^webgpu: the device: the queue is not well$"):
        webgpu.sync()
    webgpu.sync()


@pytest.mark.usefixtures("webgpu")
def test_nothing_is_printed_but_what_was_asked_for() -> None:
    finished = run_python("-m", "samebits", "devices")
    assert finished.returncode == 0
    assert "webgpu" in finished.stdout
    assert finished.stderr == ""


def test_a_machine_without_a_driver_is_told_in_plain_words() -> None:
    nowhere = dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), "/nonexistent.json")
    command = [sys.executable, "-c", "from samebits.backends.webgpu.device import open_device; open_device()"]
    done = subprocess.run(command, env={**os.environ, **nowhere}, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert "no WebGPU device: no driver for Vulkan, Metal or D3D12 was found" in last
