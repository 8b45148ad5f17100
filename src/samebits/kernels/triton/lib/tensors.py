"""Device tensors as kernels see them: a torch tensor, or a block format's bytes with their shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from samebits.core.format import BlockFormat

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "u32": torch.uint32,
    "i64": torch.int64,
    "u64": torch.uint64,
    "bool": torch.bool,
}


@dataclass(frozen=True)
class Blocks:
    """A tensor in a block format, as model files and caches store it: bytes of rows of blocks.

    data   uint8 [..., row bytes], on the device; may be a view with any strides but the last, which is 1
    scale  one float32 multiplier for all of it (NVFP4's; 1 elsewhere)
    """

    format: BlockFormat
    data: torch.Tensor
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.data.shape[:-1], self.data.shape[-1] // self.format.block_bytes * self.format.block_len)


@dataclass(frozen=True)
class Tiled:
    """A weight [N, K] (or [E, N, K]) in a block format, rearranged for these kernels; see lib/weights.py.

    data      uint8 [bytes], on the device, 16-byte aligned
    power     the power of two at the end of `data`: brings the largest scale or offset near a 16th of float16's end
    is_faint  whether a row's values are too far below the weight's largest for products in float16 that share a power
    """

    format: BlockFormat
    shape: tuple[int, ...]
    data: torch.Tensor
    scale: float = 1.0
    power: float = 1.0
    is_faint: bool = False


DeviceTensor = torch.Tensor | Blocks | Tiled
