"""Host memory of the native backend: aligned bytes with a spec, a layout and, for NVFP4, a scale."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed, spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.kernels.cpp import native

ROW_MAJOR = "row-major"
CACHE_LAYOUTS = {"k_cache": "k_lanes", "v_cache": "v_rows"}  # by the argument of an op on a cache


class CpuBuffer(Buffer):
    """`memory` uint8 [bytes]; in any layout but row-major only native kernels know what lies where."""

    def __init__(self, spec: TensorSpec, memory: np.ndarray, layout: str = ROW_MAJOR) -> None:
        self.spec, self.memory, self.layout = spec, memory, layout
        self.scale = np.float32(1)

    @property
    def tensor(self) -> HostTensor:
        """The memory as a host tensor, without a copy."""
        if self.layout != ROW_MAJOR:
            raise BadInput("cpu", "buffer", f"layout {self.layout}", "row-major memory")
        shape, fmt = self.spec.upper_shape, FORMATS[self.spec.format]
        if isinstance(fmt, BlockFormat):
            return Packed(fmt, self.memory.reshape(*shape[:-1], fmt.row_bytes(shape[-1])), self.scale)
        return self.memory.view(fmt.dtype or np.uint8).reshape(shape)

    @cached_property
    def plain(self) -> np.ndarray | None:
        """The tensor of row-major memory in a plain format; None for any other. Asked in every step."""
        is_plain = self.layout == ROW_MAJOR and not FORMATS[self.spec.format].is_block
        return storage(self.tensor) if is_plain else None

    def read(self) -> HostTensor:
        """The contents as a host tensor: the memory itself, or a copy where the layout is private."""
        if self.layout not in CACHE_LAYOUTS.values():
            return self.tensor
        rows = CpuBuffer(self.spec, np.empty(spec_bytes(self.spec), np.uint8))
        native().from_layout(*self._described, self.memory, rows.memory)
        return rows.tensor

    def write(self, host: HostTensor) -> None:
        """Fills the memory with a host tensor of the same spec."""
        if isinstance(host, Packed):
            self.scale = host.scale
        if self.layout not in CACHE_LAYOUTS.values():
            storage(self.tensor)[...] = storage(host)
            return
        rows = np.ascontiguousarray(storage(host)).reshape(-1).view(np.uint8)
        native().to_layout(*self._described, rows, self.memory)

    @property
    def _described(self) -> tuple[str, list[int], str]:
        return self.spec.format, list(self.spec.upper_shape), self.layout


def resolved(buffer: Buffer | View) -> tuple[CpuBuffer, HostTensor]:
    """(the buffer of this backend, the host tensor that it or a view of it stands for)."""
    base = buffer.base if isinstance(buffer, View) else buffer
    if not isinstance(base, CpuBuffer):
        raise BadInput("cpu", "buffer", type(base).__name__, "a buffer of this backend")
    return base, buffer.resolve(base.read()) if isinstance(buffer, View) else base.read()


def storage(tensor: HostTensor) -> np.ndarray:
    """The array under a host tensor."""
    return tensor.data if isinstance(tensor, Packed) else tensor
