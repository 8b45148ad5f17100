"""Steps at some sizes, ready to be sent: pipelines, bind groups and grids, and the words of all parameters.

The parameters of a schedule are written to the device when it follows another one. Bind groups know nothing of sizes,
so schedules share them: a dispatch says by an offset where its parameters begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import wgpu

from samebits.backends.webgpu.device import Gpu
from samebits.backends.webgpu.errors import explained
from samebits.backends.webgpu.pipelines import Pipeline, pipelines
from samebits.kernels.wgsl.lib.compose import memories
from samebits.kernels.wgsl.lib.launch import Dispatch
from samebits.kernels.wgsl.lib.params import MAX_PARAM_BYTES, packed_params

MOST_SCHEDULES = 64  # kept, the ones used last
ENCODING = ThreadPoolExecutor(1, "samebits-encoding")


class Schedule:
    """Dispatches with their memory bound. It holds the buffers it uses."""

    def __init__(self, dispatches: Sequence[Dispatch], launches: list[tuple[Any, Any, list[int], Any]]) -> None:
        self.dispatches = dispatches
        self.launches = launches
        self.params = np.zeros((len(dispatches), MAX_PARAM_BYTES), np.uint8)
        for row, dispatch in zip(self.params, dispatches, strict=True):
            words = packed_params(dispatch)
            row[: len(words)] = np.frombuffer(words, np.uint8)
        self._ahead: Future[Any] | None = None

    def commands(self, gpu: Gpu) -> Any:
        """A command buffer of all dispatches, to be submitted once: one that was encoded ahead, where there is one."""
        ahead, self._ahead = self._ahead, None
        return self._encoded(gpu) if ahead is None else ahead.result()

    def encode_ahead(self, gpu: Gpu) -> None:
        """Begins with the commands of the next run, on a thread, while the device is busy with this one's."""
        self._ahead = ENCODING.submit(self._encoded, gpu)

    def _encoded(self, gpu: Gpu) -> Any:
        encoder = gpu.device.create_command_encoder()
        self.encode(encoder)
        return encoder.finish()

    def encode(self, encoder: Any) -> None:
        """Adds all dispatches to a command encoder, in one pass."""
        run = encoder.begin_compute_pass()
        set_pipeline, set_group, dispatch = run.set_pipeline, run.set_bind_group, run.dispatch_workgroups
        current = None
        for pipeline, group, offsets, grid in self.launches:
            if pipeline is not current:
                set_pipeline(pipeline)
                current = pipeline
            set_group(0, group, offsets)
            dispatch(*grid)
        run.end()


class Schedules:
    """Those of one executable, by sizes."""

    def __init__(self, gpu: Gpu, faults: Any) -> None:
        self._gpu, self._faults = gpu, faults
        self._kept: dict[tuple[int, ...], Schedule] = {}
        self._groups: dict[tuple[int, ...], Any] = {}
        self._held: dict[tuple[int, ...], list[Any]] = {}  # buffers of the groups, so that their ids stay theirs
        self._uniforms = self._uniform_buffer(1)
        self._sent: Schedule | None = None

    def clear(self) -> None:
        """Forgets them all, and what they held."""
        self._kept, self._groups, self._held, self._sent = {}, {}, {}, None

    def get(self, sizes: tuple[int, ...], make: Callable[[], list[Dispatch]]) -> Schedule:
        """The schedule of these sizes, its parameters on their way; `make` says what it consists of."""
        found = self._kept.pop(sizes, None)
        if found is None:
            found = self._made([d for d in make() if all(d.grid)])
            if len(self._kept) >= MOST_SCHEDULES:
                self._kept.pop(next(iter(self._kept)))
        self._kept[sizes] = found  # the newest last
        if self._sent is not found and found.dispatches:
            self._gpu.write(self._uniforms, found.params)
            self._sent = found
        return found

    def _made(self, dispatches: list[Dispatch]) -> Schedule:
        compiled = pipelines(self._gpu).of(dispatches)
        needed = len(dispatches) * MAX_PARAM_BYTES
        if needed > self._uniforms.size:
            self.clear()
            self._uniforms = self._uniform_buffer(2 * len(dispatches))
        with explained("a step's bindings"):
            launches = [
                (pipeline.pipeline, self._group(dispatch, pipeline), [number * MAX_PARAM_BYTES], dispatch.grid)
                for number, (dispatch, pipeline) in enumerate(zip(dispatches, compiled, strict=True))
            ]
        return Schedule(dispatches, launches)

    def _group(self, dispatch: Dispatch, pipeline: Pipeline) -> Any:
        bound = memories(dispatch)
        if dispatch.faults:
            bound.append((self._faults, "write", 0))
        key = (id(pipeline.groups_layout), *(word for memory, _, size in bound for word in (id(memory), size)))
        if key not in self._groups:
            entries: list[dict[str, Any]] = [
                {"binding": 0, "resource": {"buffer": self._uniforms, "offset": 0, "size": MAX_PARAM_BYTES}},
                *({"binding": n, "resource": _resource(*given)} for n, given in enumerate(bound, 1)),
            ]
            self._groups[key] = self._gpu.device.create_bind_group(layout=pipeline.groups_layout, entries=entries)
            self._held[key] = [memory for memory, _, _ in bound]
        return self._groups[key]

    def _uniform_buffer(self, num_dispatches: int) -> Any:
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        return self._gpu.buffer(num_dispatches * MAX_PARAM_BYTES, usage)


def _resource(memory: Any, access: str, num_bytes: int) -> Any:
    """A binding's memory as wgpu takes it."""
    if access in ("texture", "stored"):
        return memory
    return {"buffer": memory, "offset": 0, "size": num_bytes} if num_bytes else {"buffer": memory}
