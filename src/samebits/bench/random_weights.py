"""Random weights of any size in a moment: blocks drawn from a small pool that was packed once."""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.ops.cases import in_format

POOL_ELEMENTS = 1 << 20
DEVIATION = np.float32(0.02)  # what models are initialised with, so that activations neither vanish nor explode


@cache
def _pool(fmt: BlockFormat) -> Packed:
    """Blocks of bell-shaped values, a row each."""
    shape = POOL_ELEMENTS // fmt.block_len, fmt.block_len
    return fmt.pack(DEVIATION * np.random.default_rng(0).standard_normal(shape, np.float32))


def random_weight(name: str, shape: tuple[int, ...], seed: int) -> HostTensor:
    """A tensor in the named format whose values have mean 0 and deviation DEVIATION."""
    fmt, rng = FORMATS[name], np.random.default_rng(seed)
    if not isinstance(fmt, BlockFormat):
        return in_format(DEVIATION * rng.standard_normal(shape, np.float32), name)
    pool = _pool(fmt)
    num_blocks = prod(shape[:-1]) * fmt.row_bytes(shape[-1]) // fmt.block_bytes
    blocks = pool.data[rng.integers(len(pool.data), size=num_blocks)]
    return Packed(fmt, blocks.reshape(*shape[:-1], -1), pool.scale)
