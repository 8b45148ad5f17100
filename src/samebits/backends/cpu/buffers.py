"""Host memory of the native backend: aligned bytes with a spec, a layout and, for NVFP4, a scale."""

from __future__ import annotations

import numpy as np

from samebits.backends.interface import Buffer, View
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.core.shapes import TensorSpec, upper

ALIGNMENT = 64
ROW_MAJOR = "row-major"


def aligned_bytes(count: int) -> np.ndarray:
    """uint8 [count] at a multiple of a cache line; pages are touched only when written."""
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count]


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
        shape = tuple(upper(d) for d in self.spec.shape)
        fmt = FORMATS[self.spec.format]
        if isinstance(fmt, BlockFormat):
            return Packed(fmt, self.memory.reshape(*shape[:-1], fmt.row_bytes(shape[-1])), self.scale)
        if fmt.dtype is None:
            raise BadInput("cpu", "format", fmt.name, "a plain or a block format")
        return self.memory.view(fmt.dtype).reshape(shape)


def resolved(buffer: Buffer | View) -> tuple[CpuBuffer, HostTensor]:
    """(the buffer of this backend, the host tensor a row-major view of it stands for)."""
    base = buffer.base if isinstance(buffer, View) else buffer
    if not isinstance(base, CpuBuffer):
        raise BadInput("cpu", "buffer", type(base).__name__, "a buffer of this backend")
    return base, buffer.resolve(base.tensor) if isinstance(buffer, View) else base.tensor


def storage(tensor: HostTensor) -> np.ndarray:
    """The array under a host tensor."""
    return tensor.data if isinstance(tensor, Packed) else tensor
