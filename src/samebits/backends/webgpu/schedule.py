"""A step at some sizes, ready to be sent: pipelines, bind groups and grids, parameters in one uniform buffer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import wgpu

from samebits.backends.webgpu.device import Gpu
from samebits.backends.webgpu.pipelines import pipelines
from samebits.kernels.wgsl.lib.compose import params_of, storage
from samebits.kernels.wgsl.lib.launch import Dispatch


def packed_params(dispatch: Dispatch) -> bytes:
    """The words of a dispatch's uniform struct, the 0 of the rounding barrier first; a multiple of 16 bytes."""
    words = b"".join(struct.pack("<f" if isinstance(v, float) else "<I", v) for _, v in params_of(dispatch))
    data = struct.pack("<I", 0) + words
    return data + bytes(-len(data) % 16)


class Schedule:
    """Dispatches with their memory bound. It holds the buffers it uses."""

    def __init__(self, gpu: Gpu, dispatches: Sequence[Dispatch], faults: Any) -> None:
        live = [d for d in dispatches if all(d.grid)]
        compiled = pipelines(gpu).of(live)
        data = bytearray()
        spans = []
        for dispatch in live:
            params = packed_params(dispatch)
            spans.append((len(data), len(params)))
            data += params + bytes(-len(params) % gpu.uniform_alignment)
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        uniforms = gpu.buffer(len(data), usage)
        if data:
            gpu.queue.write_buffer(uniforms, 0, data)
        self.dispatches = live
        self._launches = []
        for dispatch, pipeline, (offset, size) in zip(live, compiled, spans, strict=True):
            memories = [memory for memory, _ in storage(dispatch)] + ([faults] if dispatch.faults else [])
            entries: list[dict[str, Any]] = [
                {"binding": 0, "resource": {"buffer": uniforms, "offset": offset, "size": size}},
                *({"binding": n, "resource": {"buffer": m}} for n, m in enumerate(memories, 1)),
            ]
            group = gpu.device.create_bind_group(layout=pipeline.groups_layout, entries=entries)
            self._launches.append((pipeline.pipeline, group, dispatch.grid))

    def encode(self, encoder: Any) -> None:
        """Adds all dispatches to a command encoder, in one pass."""
        run = encoder.begin_compute_pass()
        current = None
        for pipeline, group, grid in self._launches:
            if pipeline is not current:
                run.set_pipeline(pipeline)
                current = pipeline
            run.set_bind_group(0, group)
            run.dispatch_workgroups(*grid)
        run.end()
