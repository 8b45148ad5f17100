"""Compiled shaders by their text: each is compiled once per process, new ones of a step all at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import wgpu

from samebits.backends.webgpu.device import MAX_STORAGE_BUFFERS, Gpu, explained
from samebits.core.errors import Unsupported
from samebits.kernels.wgsl.lib.compose import shader_text, storage
from samebits.kernels.wgsl.lib.launch import Dispatch

KINDS = {"read": wgpu.BufferBindingType.read_only_storage, "write": wgpu.BufferBindingType.storage}


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
        self._made: dict[str, Pipeline] = {}

    def of(self, dispatches: Sequence[Dispatch]) -> list[Pipeline]:
        """The pipeline of every dispatch; those that are new are compiled in parallel."""
        texts = [shader_text(d) for d in dispatches]
        new = {text: d for text, d in zip(texts, dispatches, strict=True) if text not in self._made}
        if new:
            layouts = [self._layout(d) for d in new.values()]
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                made = pool.map(self._compiled, new.items(), layouts)
                self._made.update(zip(new, made, strict=True))
        return [self._made[text] for text in texts]

    def _layout(self, dispatch: Dispatch) -> Any:
        accesses = tuple(access for _, access in storage(dispatch)) + (("write",) if dispatch.faults else ())
        if len(accesses) > MAX_STORAGE_BUFFERS:
            raise Unsupported(f"wgsl/{dispatch.shader}: {len(accesses)} storage buffers; devices grant 8")
        if accesses not in self._layouts:
            kinds = [wgpu.BufferBindingType.uniform, *(KINDS[a] for a in accesses)]
            entries = [
                {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for n, kind in enumerate(kinds)
            ]
            self._layouts[accesses] = self._gpu.device.create_bind_group_layout(entries=entries)
        return self._layouts[accesses]

    def _compiled(self, new: tuple[str, Dispatch], layout: Any) -> Pipeline:
        text, dispatch = new
        device = self._gpu.device
        with explained(f"shader {dispatch.shader}"):
            module = device.create_shader_module(code=text, label=dispatch.shader)
            pipeline = device.create_compute_pipeline(
                layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
        return Pipeline(pipeline, layout)


@cache
def pipelines(gpu: Gpu) -> Pipelines:
    """The pipelines of a device."""
    return Pipelines(gpu)
