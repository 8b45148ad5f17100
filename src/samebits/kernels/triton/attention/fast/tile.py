"""What both kernels of the fast attention share: lengths, addresses of cached rows, and one tile's walk over a cache.

Rows of a tile are pairs (query, query head) of one KV head, query by query: row r is query r // GROUP and the head
r % GROUP of the group. Logits are in base 2: scaled by log2(e) once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.sequences import in_range
from samebits.kernels.triton.lib.elementary import LOG2E
from samebits.kernels.triton.lib.limits import NEG_INF
from samebits.kernels.triton.lib.rows import narrow, store_narrow, widen


@triton.jit
def batch_of(b, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE):
    """(first query row, queries, first table entry, tokens) of sequences b; a false index cannot leave the arrays."""
    live = b < num_sequences
    first = tl.load(qo_indptr + b, mask=live, other=0)
    count = tl.load(qo_indptr + b + 1, mask=live, other=0) - first
    last = tl.load(kv_last + b, mask=live, other=0)
    if HAS_TABLE:
        entry = tl.load(kv_indptr + b, mask=live, other=0)
        pages = tl.load(kv_indptr + b + 1, mask=live, other=0) - entry
        fits = (entry >= 0) & (pages > 0) & (entry + pages <= num_indices)
        length = tl.where(fits, (pages - 1) * PAGE + tl.minimum(tl.maximum(last, 0), PAGE), 0)
    else:
        entry = b
        length = tl.minimum(tl.maximum(last, 0), PAGE)
    fits = (first >= 0) & (count > 0) & (first + count <= num_tokens)
    return first, tl.where(fits, count, 0), entry, length


@triton.jit
def tiles_of_long(
    num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, most_rows,
    BLOCK_M: tl.constexpr, BATCH: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, PAGE: tl.constexpr,
    HAS_TABLE: tl.constexpr,
):  # fmt: skip
    """Of sequences of more than most_rows rows: (this program's tile, below 0 for none, tiles of all up to each).

    The last tiles, the longest, come first; programs of the KV heads of a tile lie side by side.
    """
    _, counts, _, _ = batch_of(
        tl.arange(0, BATCH), num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr, PAGE, HAS_TABLE
    )
    tiles = tl.where(counts * GROUP > most_rows, tl.cdiv(counts * GROUP, BLOCK_M), 0)
    ends = tl.cumsum(tiles, 0)
    return tl.sum(tiles, 0) - 1 - tl.program_id(0) // KV_HEADS, ends


@triton.jit
def sequence_at(
    number, ends, num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr,
    PAGE: tl.constexpr, HAS_TABLE: tl.constexpr,
):  # fmt: skip
    """(the number of a tile or unit in its sequence, the sequence as `batch_of` gives it); ends: theirs, of each."""
    passed = ends <= number
    first, count, entry, length = batch_of(
        tl.sum(passed.to(tl.int32), 0), num_sequences, num_tokens, num_indices, qo_indptr, kv_last, kv_indptr,
        PAGE, HAS_TABLE,
    )  # fmt: skip
    return number - tl.max(tl.where(passed, ends, 0), 0), first, count, entry, length


@triton.jit
def seen_by(
    tile, count, length, window, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Positions that a tile of rows sees: (the first, where blocks begin that need a mask, where they end)."""
    lowest = length - count + tile * BLOCK_M // GROUP
    highest = length - count + (tl.minimum((tile + 1) * BLOCK_M, count * GROUP) - 1) // GROUP
    begin = tl.zeros_like(length)
    clear = length // BLOCK_N * BLOCK_N
    stop = length
    if CAUSAL:
        clear = tl.maximum(lowest + 1, 0) // BLOCK_N * BLOCK_N
        stop = tl.minimum(highest + 1, length)
    if WINDOW:
        begin = tl.maximum(lowest - window, 0)
        clear = begin // BLOCK_N * BLOCK_N
    return begin, clear, stop


@triton.jit
def row_offsets(
    at, begin, length, entry, kv_indices, num_pages, page_stride, slot_stride,
    BLOCK_N: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """int64 [BLOCK_N]: where the rows of positions at .. at + BLOCK_N - 1 are; `at` is a multiple of BLOCK_N.

    A position that no row sees is read as one that is seen, so that all loads are plain and finite; a page that does
    not exist as the last one: `check_pages` tells of it.
    """
    i = tl.arange(0, BLOCK_N)
    if BLOCK_N % PAGE == 0 and not WINDOW:
        index = at // PAGE + i // PAGE
        inner = i % PAGE * slot_stride
        if MASKED:  # the first slot of the last page is seen
            index = tl.minimum(index, (length - 1) // PAGE)
            inner = tl.where(at + i < length, inner, 0)
    else:
        position = at + i
        if MASKED:
            position = tl.minimum(tl.maximum(position, begin), length - 1)
        index = position // PAGE
        inner = (position % PAGE).to(tl.int64) * slot_stride
    if HAS_TABLE:
        page = tl.load(kv_indices + entry + index)
        page = tl.minimum(page.to(tl.uint32), (num_pages - 1).to(tl.uint32))
    else:
        page = entry + index
    return page.to(tl.int64) * page_stride + inner


@triton.jit
def load_queries(
    q, row, num_rows, first, head, q_token, q_head, fault, code, D, BLOCK_D: tl.constexpr, GROUP, dtype: tl.constexpr
):
    """The tile's queries [rows, BLOCK_D] in the keys' type, zeros outside; one that this cannot be is a fault."""
    d = tl.arange(0, BLOCK_D)
    inside = (row < num_rows)[:, None] & (d < D)[None, :]
    start = (first + row // GROUP).to(tl.int64) * q_token + (head * GROUP + row % GROUP).to(tl.int64) * q_head
    x = tl.load(q + start[:, None] + d[None, :], mask=inside, other=0.0)
    operand = narrow(widen(x), dtype)
    good = in_range(widen(operand), "bf16" if dtype == tl.bfloat16 else "f16")
    tl.store(fault + tl.zeros_like(inside).to(tl.int32), code, mask=good == 0)
    return operand


@triton.jit
def dot(a, b, acc, EMULATE: tl.constexpr):
    """acc + a b in 16-bit operands; the interpreter multiplies bfloat16 as integers, so it gets float32."""
    if EMULATE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc)


@triton.jit
def step(
    acc, m, total, at, q, k, v, q_position, begin, length,
    entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr, EMULATE: tl.constexpr,
):  # fmt: skip
    """One block of positions from `at` on added to (acc, m, total); arguments as in `walk`."""
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
    p, alpha, m, total = weigh(
        s, m, total, position, q_position, length, scale, cap, window, CAUSAL, WINDOW, CAP, MASKED
    )
    acc = acc * alpha[:, None]
    values = tl.load(v + offset, mask=inside, other=zero)
    return dot(p.to(values.dtype), values, acc, EMULATE), m, total


@triton.jit
def weigh(
    s, m, total, position, q_position, length, scale, cap, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """From products s of a block to weights: (p, what sums so far are multiplied by, the maximum, the sum of p)."""
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
    p = tl.exp2(s * unit - shift[:, None])
    alpha = tl.exp2(m - shift)
    return p, alpha, m_new, total * alpha + tl.sum(p, 1)


@triton.jit
def walk(
    acc, m, total, q, k, v, q_position, begin, start, stop, length,
    entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, HAS_TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr, STAGES: tl.constexpr,
    EMULATE: tl.constexpr,
):  # fmt: skip
    """Positions start .. stop - 1 in blocks added to (acc, m, total); MASKED where a row may not see all of a block.

    k and v point at the KV head and have the same strides; begin is the first position that any row sees. scale
    includes log2(e); with a soft cap it is divided by the cap instead, and cap includes log2(e).
    """
    if EMULATE:  # the interpreter's `range` takes no bounds from memory
        at = start
        while at < stop:
            acc, m, total = step(
                acc, m, total, at, q, k, v, q_position, begin, length,
                entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
                D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, MASKED, EMULATE,
            )  # fmt: skip
            at += BLOCK_N
    else:
        for at in tl.range(start, stop, BLOCK_N, num_stages=STAGES):
            acc, m, total = step(
                acc, m, total, at, q, k, v, q_position, begin, length,
                entry, kv_indices, num_pages, page_stride, slot_stride, scale, cap, window,
                D, BLOCK_D, BLOCK_N, PAGE, HAS_TABLE, CAUSAL, WINDOW, CAP, MASKED, EMULATE,
            )  # fmt: skip
    return acc, m, total


@triton.jit
def store_rows(
    acc, m, total, row, num_rows, first, head, out, lse, sinks,
    D: tl.constexpr, BLOCK_D: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr,
    HAS_SINKS: tl.constexpr, HAS_LSE: tl.constexpr,
):  # fmt: skip
    """The tile's results: acc / total with the sink in total, zeros and -Inf where a row saw nothing."""
    d = tl.arange(0, BLOCK_D)
    inside = row < num_rows
    query_head = head * GROUP + row % GROUP
    if HAS_SINKS:
        sink = tl.load(sinks + query_head, mask=inside, other=0.0) * LOG2E
        m_new = tl.maximum(m, sink)
        shift = tl.where(m_new == NEG_INF, 0.0, m_new)
        alpha = tl.exp2(m - shift)
        total = total * alpha + tl.exp2(sink - shift)
        acc = acc * alpha[:, None]
        m = m_new
    any_seen = total > 0.0
    divisor = tl.where(any_seen, total, 1.0)
    at = (first + row // GROUP).to(tl.int64) * HEADS + query_head
    y = tl.where(any_seen[:, None], acc / divisor[:, None], 0.0)
    store_narrow(out + at[:, None] * D + d[None, :], y, inside[:, None] & (d < D)[None, :])
    if HAS_LSE:
        store_narrow(lse + at, tl.where(any_seen, m + tl.log2(divisor), NEG_INF), inside)
