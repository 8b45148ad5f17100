"""Compiled shaders by their text: each is compiled once per process, on threads of their own, ahead where it can be."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import wgpu

from samebits.backends.webgpu.device import GRANTED, Gpu
from samebits.backends.webgpu.errors import explained
from samebits.core.errors import Unsupported
from samebits.kernels.wgsl.lib.compose import memories, shader_text, signature
from samebits.kernels.wgsl.lib.launch import Dispatch

KINDS: dict[str, dict[str, Any]] = {
    "read": {"buffer": {"type": wgpu.BufferBindingType.read_only_storage}},
    "write": {"buffer": {"type": wgpu.BufferBindingType.storage}},
    "uniform": {"buffer": {"type": wgpu.BufferBindingType.uniform}},
    "texture": {"texture": {"sample_type": wgpu.TextureSampleType.uint, "view_dimension": "2d"}},
    "stored": {"storage_texture": {"access": wgpu.StorageTextureAccess.read_only, "format": "rgba32uint"}},
}
PARAMS = {"buffer": {"type": wgpu.BufferBindingType.uniform, "has_dynamic_offset": True}}
MAX_STORAGE_BUFFERS = GRANTED["max-storage-buffers-per-shader-stage"]


@dataclass(frozen=True)
class Pipeline:
    """A shader on the device. `groups_layout` says what a bind group must hold."""

    pipeline: Any
    groups_layout: Any


class Pipelines:
    """All of a device's."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._layouts: dict[tuple[str, ...], Any] = {}
        self._made: dict[Hashable, Future[Pipeline]] = {}
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "samebits-webgpu")

    def start(self, dispatches: Sequence[Dispatch]) -> list[Hashable]:
        """Begins to compile what is new of them and returns their signatures. Does not wait; errors are `of`'s."""
        keys = [signature(d) for d in dispatches]
        for key, dispatch in zip(keys, dispatches, strict=True):
            if key not in self._made:
                self._made[key] = self._threads.submit(self._compiled, dispatch, self._layout(dispatch))
        return keys

    def of(self, dispatches: Sequence[Dispatch]) -> list[Pipeline]:
        """The pipeline of every dispatch; those that are new are compiled in parallel."""
        return [self._finished(key) for key in self.start(dispatches)]

    def _finished(self, key: Hashable) -> Pipeline:
        try:
            return self._made[key].result()
        except BaseException:
            self._made.pop(key, None)  # there may be room another time
            raise

    def _layout(self, dispatch: Dispatch) -> Any:
        accesses = tuple(access for _, access, _ in memories(dispatch)) + (("write",) if dispatch.faults else ())
        num_storage = accesses.count("read") + accesses.count("write")
        if num_storage > MAX_STORAGE_BUFFERS:
            given = f"{num_storage} storage buffers; devices grant {MAX_STORAGE_BUFFERS}"
            raise Unsupported(f"wgsl/{dispatch.shader}: {given}")
        if accesses not in self._layouts:
            kinds = [PARAMS, *(KINDS[a] for a in accesses)]
            entries = [{"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, **kind} for n, kind in enumerate(kinds)]
            with explained("a layout of bindings"):
                self._layouts[accesses] = self._gpu.device.create_bind_group_layout(entries=entries)
        return self._layouts[accesses]

    def _compiled(self, dispatch: Dispatch, layout: Any) -> Pipeline:
        device = self._gpu.device
        with explained(f"shader {dispatch.shader}"):
            module = device.create_shader_module(code=shader_text(dispatch), label=dispatch.shader)
            pipeline = device.create_compute_pipeline(
                layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
        return Pipeline(pipeline, layout)


@cache
def pipelines(gpu: Gpu) -> Pipelines:
    """The pipelines of a device."""
    return Pipelines(gpu)
