"""Products of many rows with tensor cores: tiles copied by descriptors, programs that walk over tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from samebits.kernels.triton.lib.devices import ON_AMD, multiprocessors
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.rows import settled_narrow
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv

LARGEST_COPY = 64 << 10  # bytes of a result's tile in shared memory beside the pipeline
GROUP = 16
ALIGN = 16  # bytes: what a descriptor asks of its base and of the distance of rows


@triton.jit
def tile_of(tile, tiles_t, tiles_n, GROUP: tl.constexpr):
    """The place of a tile, in an order that walks GROUP tiles of tokens before the next rows of the weight."""
    group = tile // (GROUP * tiles_n)
    first = group * GROUP
    height = min(tiles_t - first, GROUP)
    inside = tile - group * GROUP * tiles_n
    return first + inside % height, inside // height


@triton.jit
def _many(
    x_desc,
    w_desc,
    y_desc,
    bias_ptr,
    scale_ptr,
    scale,
    num_tokens,
    N,
    K: tl.constexpr,
    BT: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
    FLATTEN: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """y = (x @ w^T) * (scale_ptr[token] * scale) + bias; without scale_ptr nothing is scaled."""
    tiles_t = tl.cdiv(num_tokens, BT)
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_t * tiles_n, tl.num_programs(0), flatten=FLATTEN):
        t, n = tile_of(tile, tiles_t, tiles_n, GROUP)
        acc = tl.zeros([BT, BN], tl.float32)
        for step in tl.range(0, tl.cdiv(K, BK), num_stages=STAGES):
            x = x_desc.load([t * BT, step * BK])
            w = w_desc.load([n * BN, step * BK])
            acc = tl.dot(x, w.T, acc)
        if scale_ptr is not None:
            token = t * BT + tl.arange(0, BT)
            acc *= (tl.load(scale_ptr + token, mask=token < num_tokens, other=0.0) * scale)[:, None]
        if bias_ptr is not None:
            row = n * BN + tl.arange(0, BN)
            # Settling also keeps Triton from starting the sum with the bias where K fits one step.
            acc = settle(acc) + tl.load(bias_ptr + row, mask=row < N, other=0.0).to(tl.float32)[None, :]
        if WHOLE:
            y_desc.store([t * BT, n * BN], settled_narrow(acc, y_desc.dtype))
        else:
            # In halves the copy through shared memory leaves room for the pipeline.
            left, right = tl.split(tl.permute(tl.reshape(acc, [BT, 2, BN // 2]), [0, 2, 1]))
            y_desc.store([t * BT, n * BN], settled_narrow(left, y_desc.dtype))
            y_desc.store([t * BT, n * BN + BN // 2], settled_narrow(right, y_desc.dtype))


@dataclass(frozen=True)
class Many:
    """Tiles of the kernel for many tokens; `cost` is the time of a tile, that of the largest being 1."""

    tokens: int
    rows: int
    k: int
    stages: int
    warps: int
    cost: float


LARGEST = Many(128, 256, 64, 3, 8, 1.0)
SHAPES = (
    LARGEST,
    Many(128, 128, 64, 4, 8, 0.59),
    Many(128, 64, 128, 4, 4, 0.41),
    Many(64, 128, 64, 5, 4, 0.51),
    Many(64, 64, 128, 5, 4, 0.34),
    Many(64, 32, 128, 6, 4, 0.26),
)
SHAPES_AMD = (Many(128, 128, 64, 2, 8, 1.0), Many(64, 64, 64, 2, 4, 0.4))  # 64 KB of shared memory hold them


def aligned(x: torch.Tensor) -> torch.Tensor:
    """x [rows, K], or a copy where a descriptor could not read it."""
    fits = x.data_ptr() % ALIGN == 0 and x.stride(0) * x.element_size() % ALIGN == 0 and x.stride(1) == 1
    return x if fits else x.clone(memory_format=torch.contiguous_format)


@cache
def shape_for(num_tokens: int, num_rows: int, programs: int) -> Many:
    """The tiles that take least time, in rounds of `programs` at once."""

    def time(shape: Many) -> float:
        tiles = cdiv(num_tokens, shape.tokens) * cdiv(num_rows, shape.rows)
        return cdiv(tiles, programs) * shape.cost

    shapes = SHAPES_AMD if ON_AMD else SHAPES
    return min((shape for shape in shapes if shape.tokens <= 64 or num_tokens > 64), key=time)


def many(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    row_scale: torch.Tensor | None = None,
    scale: float = 1.0,
) -> None:
    """y [T, N] from T or more rows of x [., K] and a weight [N, K] of one 16-bit type.

    Rows of y lie a multiple of 16 bytes apart, K is a multiple of 16, no dimension is 0.
    """
    num_tokens, n = y.shape
    programs = multiprocessors(x.device)
    shape = shape_for(num_tokens, n, programs)
    tiles = cdiv(num_tokens, shape.tokens) * cdiv(n, shape.rows)
    whole = shape.tokens * shape.rows * y.element_size() <= LARGEST_COPY
    _many[(min(programs, tiles) if shape is LARGEST else tiles,)](
        TensorDescriptor.from_tensor(aligned(x), [shape.tokens, shape.k]),
        TensorDescriptor.from_tensor(aligned(weight), [shape.rows, shape.k]),
        TensorDescriptor.from_tensor(y, [shape.tokens, shape.rows if whole else shape.rows // 2]),
        bias,
        row_scale,
        scale,
        num_tokens,
        n,
        K=weight.shape[1],
        BT=shape.tokens,
        BN=shape.rows,
        BK=shape.k,
        GROUP=GROUP,
        STAGES=shape.stages,
        FLATTEN=shape is LARGEST,
        WHOLE=whole,
        num_warps=shape.warps,
        **UNFUSED,
    )
