"""One tile's walk over a cache in the tier invariant: blocks at absolute positions, joined in splits.

The sum of a row's weights is made as the products with values are: a product with ones, in the same instructions. A sum
over a tile's registers would have the order of their layout, which is another one in every kernel. Nothing here is
contracted but where `tl.fma` says so.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.fast.tile import row_offsets
from samebits.kernels.triton.lib.elementary import LOG2E
from samebits.kernels.triton.lib.limits import NEG_INF
from samebits.kernels.triton.lib.rows import narrow, widen

SPLIT = tl.constexpr(256)  # positions whose softmax is one chain


@triton.jit
def dot(a, b, acc, EMULATE: tl.constexpr):
    """acc + a b in 16-bit operands. The interpreter sums in float64, where numpy's order has no effect on float32."""
    if EMULATE:
        a, b, acc = widen(a).to(tl.float64), widen(b).to(tl.float64), acc.to(tl.float64)
        return tl.dot(a, b, acc, out_dtype=tl.float64).to(tl.float32)
    return tl.dot(a, b, acc)


@triton.jit
def factor(m, m_new):
    """What sums that were made with the maximum m are multiplied by; 0 where nothing was seen."""
    return tl.exp2(m - tl.where(m_new == NEG_INF, 0.0, m_new))


@triton.jit
def join(acc, sums, m, part, part_sums, part_m):
    """(acc, sums, m) and a later part of the same rows; one that saw nothing leaves the other as it is."""
    m_new = tl.maximum(m, part_m)
    before, after = factor(m, m_new)[:, None], factor(part_m, m_new)[:, None]
    return tl.fma(acc, before, part * after), tl.fma(sums, before, part_sums * after), m_new


@triton.jit
def weigh(
    s, m, position, q_position, length, scale, cap, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """From products s of a block to (weights, what sums so far are multiplied by, the maximum)."""
    if CAP:
        # tanh(x) = 1 - 2 / (1 + e^2x): both ends saturate without NaN
        s = cap - 2.0 * cap / (1.0 + tl.exp2(s * (scale * (2.0 * LOG2E))))
        unit = 1.0
    else:
        unit = scale
    if MASKED:
        keep = position[None, :] <= (q_position[:, None] if CAUSAL else length - 1)
        if WINDOW:
            keep = keep & (position[None, :] >= q_position[:, None] - window)
        s = tl.where(keep, s, NEG_INF)
    m_new = tl.maximum(m, tl.max(s, 1) * unit)
    shift = tl.where(m_new == NEG_INF, 0.0, m_new)  # so far all is masked, or scores are -Inf
    return tl.exp2(tl.fma(s, unit, -shift[:, None])), tl.exp2(m - shift), m_new


@triton.jit
def step(
    acc, sums, m, at, q, k, v, q_position, begin, length,
    entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    """One block of positions from `at` on added to (acc, sums, m); arguments as in `walk`."""
    d = tl.arange(0, BLOCK_D)
    position = at + tl.arange(0, BLOCK_N)
    offset = row_offsets(
        at, begin, length, entry, kv_indices, num_pages, page_stride, slot_stride,
        BLOCK_N, PAGE, HAS_TABLE, WINDOW, MASKED,
    )[:, None] + d[None, :]  # fmt: skip
    inside = None if BLOCK_D == D else tl.broadcast_to((d < D)[None, :], [BLOCK_N, BLOCK_D])
    zero = None if BLOCK_D == D else 0.0
    keys = tl.load(k + offset, mask=inside, other=zero)
    s = dot(q, tl.trans(keys), tl.zeros([q.shape[0], BLOCK_N], tl.float32), EMULATE)
    p, alpha, m = weigh(s, m, position, q_position, length, scale, cap, window, CAUSAL, WINDOW, CAP, MASKED)
    values = tl.load(v + offset, mask=inside, other=zero)
    weights = narrow(p, values.dtype)
    acc = dot(weights, values, acc * alpha[:, None], EMULATE)
    ones = narrow(tl.full([BLOCK_N, sums.shape[1]], 1.0, tl.float32), values.dtype)
    return acc, dot(weights, ones, sums * alpha[:, None], EMULATE), m


@triton.jit
def step_and_join(
    total, total_sums, total_m, acc, sums, m, at, q, k, v, q_position, begin, length,
    entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    """A block added to the split (acc, sums, m), and after the split's last block the split to the total."""
    acc, sums, m = step(
        acc, sums, m, at, q, k, v, q_position, begin, length,
        entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
        D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, MASKED, EMULATE,
    )  # fmt: skip
    if (at + BLOCK_N) % SPLIT == 0:
        total, total_sums, total_m = join(total, total_sums, total_m, acc, sums, m)
        acc, sums, m = tl.zeros_like(acc), tl.zeros_like(sums), tl.full([acc.shape[0]], NEG_INF, tl.float32)
    return total, total_sums, total_m, acc, sums, m


@triton.jit
def walk(
    total, total_sums, total_m, acc, sums, m, q, k, v, q_position, begin, start, stop, length,
    entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr, STAGES: tl.constexpr,
    EMULATE: tl.constexpr,
):  # fmt: skip
    """Positions start .. stop - 1 in blocks; MASKED where a row may not see all of a block.

    `total` are whole splits, `acc` is the one under way. k and v point at the KV head and have the same strides; begin
    is the first position that any row sees. scale includes log2(e); with a soft cap it is divided by the cap instead,
    and cap includes log2(e).
    """
    if EMULATE:  # the interpreter's `range` takes no bounds from memory
        at = start
        while at < stop:
            total, total_sums, total_m, acc, sums, m = step_and_join(
                total, total_sums, total_m, acc, sums, m, at, q, k, v, q_position, begin, length,
                entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
                D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, MASKED, EMULATE,
            )  # fmt: skip
            at += BLOCK_N
    else:
        for at in tl.range(start, stop, BLOCK_N, num_stages=STAGES):
            total, total_sums, total_m, acc, sums, m = step_and_join(
                total, total_sums, total_m, acc, sums, m, at, q, k, v, q_position, begin, length,
                entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
                D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, MASKED, EMULATE,
            )  # fmt: skip
    return total, total_sums, total_m, acc, sums, m


@triton.jit
def nothing_seen(BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, SUMS: tl.constexpr):
    """(acc, sums, m) of rows that have seen no position; all SUMS columns of `sums` are alike."""
    acc, sums = tl.zeros([BLOCK_M, BLOCK_D], tl.float32), tl.zeros([BLOCK_M, SUMS], tl.float32)
    return acc, sums, tl.full([BLOCK_M], NEG_INF, tl.float32)
