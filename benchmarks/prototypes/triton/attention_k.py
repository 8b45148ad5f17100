"""K pass of paged decode attention: scores in f32 [B, Hkv, ctx, G] and the maximum of every tile.

bf16 products are exact in f32, so tl.fma equals mul-then-add.
"""

import triton
import triton.language as tl
from orders import split8, sum16_in_order, tree_of_last

PAGE: tl.constexpr = tl.constexpr(16)


@triton.jit
def q_at(q, d, G: tl.constexpr):
    return tl.load(q + d * G + tl.arange(0, G))[None, :]


@triton.jit
def block_chain(row, q, acc, blk, G: tl.constexpr):
    """acc [T, G] continued over d = 8 blk .. 8 blk + 7."""
    d = blk * 8
    k = tl.load(row[:, None] + d + tl.arange(0, 8)[None, :]).to(tl.float32)
    k0, k1, k2, k3, k4, k5, k6, k7 = split8(k)
    acc = tl.fma(k0, q_at(q, d, G), acc)
    acc = tl.fma(k1, q_at(q, d + 1, G), acc)
    acc = tl.fma(k2, q_at(q, d + 2, G), acc)
    acc = tl.fma(k3, q_at(q, d + 3, G), acc)
    acc = tl.fma(k4, q_at(q, d + 4, G), acc)
    acc = tl.fma(k5, q_at(q, d + 5, G), acc)
    acc = tl.fma(k6, q_at(q, d + 6, G), acc)
    return tl.fma(k7, q_at(q, d + 7, G), acc)


@triton.jit
def block_sum(row, q, blk, TREE: tl.constexpr, G: tl.constexpr):
    zero = tl.zeros([row.shape[0], G], tl.float32)
    if not TREE:
        return block_chain(row, q, zero, blk, G)
    d = blk * 8
    k = tl.load(row[:, None] + d + tl.arange(0, 8)[None, :]).to(tl.float32)
    k0, k1, k2, k3, k4, k5, k6, k7 = split8(k)
    s01 = tl.fma(k1, q_at(q, d + 1, G), k0 * q_at(q, d, G))
    s23 = tl.fma(k3, q_at(q, d + 3, G), k2 * q_at(q, d + 2, G))
    s45 = tl.fma(k5, q_at(q, d + 5, G), k4 * q_at(q, d + 4, G))
    s67 = tl.fma(k7, q_at(q, d + 7, G), k6 * q_at(q, d + 6, G))
    return (s01 + s23) + (s45 + s67)


@triton.jit
def dot_by_token(row, q, ORDER: tl.constexpr, G: tl.constexpr, D: tl.constexpr):
    """A thread owns whole tokens: 16-byte pieces of a row in order, no exchange between threads."""
    acc = tl.zeros([row.shape[0], G], tl.float32)
    if ORDER == "QB":
        for start in tl.range(0, D // 8, 4):
            for i in tl.static_range(4):
                acc = block_chain(row, q, acc, start + i, G)
    elif ORDER == "QC":
        for start in tl.range(0, D // 8, 4):
            for i in tl.static_range(4):
                acc = acc + block_sum(row, q, start + i, False, G)
    else:
        # A real loop: unrolled, all loads are hoisted above the tree and spill. A binary counter:
        # a finished left subtree waits in s1, s2, s4 or s8.
        tl.static_assert(D == 128)
        s1, s2, s4, s8 = acc, acc, acc, acc
        for blk in tl.range(0, D // 8):
            acc = block_sum(row, q, blk, ORDER == "QA", G)
            if blk % 2 == 0:
                s1 = acc
            else:
                acc = s1 + acc
                if blk % 4 == 1:
                    s2 = acc
                else:
                    acc = s2 + acc
                    if blk % 8 == 3:
                        s4 = acc
                    else:
                        acc = s4 + acc
                        if blk == 7:
                            s8 = acc
                        else:
                            acc = s8 + acc
    return acc


@triton.jit
def scores_by_token(
    q_ptr,
    k_ptr,
    table_ptr,
    s_ptr,
    max_ptr,
    scale,
    ctx,
    HKV,
    ORDER: tl.constexpr,
    T: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    EMULATE: tl.constexpr,
):
    tile, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    pos = tile * T + tl.arange(0, T)
    page = tl.load(table_ptr + seq * (ctx // PAGE) + pos // PAGE)
    row = k_ptr + ((page * PAGE + pos % PAGE).to(tl.int64) * HKV + head) * D
    group = seq * HKV + head
    s = dot_by_token(row, q_ptr + group * (D * G), ORDER, G, D) * scale
    heads = tl.arange(0, G)
    tl.store(s_ptr + (group * ctx + pos)[:, None] * G + heads[None, :], s)
    tl.store(max_ptr + (group * G + heads) * tl.num_programs(0) + tile, tl.max(s, axis=0))


@triton.jit
def scores_by_row(
    q_ptr,
    k_ptr,
    table_ptr,
    s_ptr,
    max_ptr,
    scale,
    ctx,
    HKV,
    ORDER: tl.constexpr,
    T: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """Neighbouring threads share a token (coalesced rows), so block sums cross threads at the end."""
    tile, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    pos = tile * T + tl.arange(0, T)
    page = tl.load(table_ptr + seq * (ctx // PAGE) + pos // PAGE)
    row = k_ptr + ((page * PAGE + pos % PAGE).to(tl.int64) * HKV + head) * D
    tl.static_assert(D == 128)
    d = tl.arange(0, D)
    k = tl.load(row[:, None] + d[None, :]).to(tl.float32)
    group = seq * HKV + head
    for g in tl.static_range(G):
        q = tl.load(q_ptr + group * (D * G) + d * G + g)[None, :]
        if ORDER == "QA":
            s = tree_of_last(k * q, 7)
        else:
            k0, k1, k2, k3, k4, k5, k6, k7 = split8(k)
            q0, q1, q2, q3, q4, q5, q6, q7 = split8(q)
            part = tl.fma(k1, q1, tl.fma(k0, q0, 0.0))
            part = tl.fma(k3, q3, tl.fma(k2, q2, part))
            part = tl.fma(k5, q5, tl.fma(k4, q4, part))
            part = tl.fma(k7, q7, tl.fma(k6, q6, part))
            s = sum16_in_order(part) if ORDER == "QC" else tree_of_last(part, 4)
        s = s * scale
        tl.store(s_ptr + (group * ctx + pos) * G + g, s)
        tl.store(max_ptr + (group * G + g) * tl.num_programs(0) + tile, tl.max(s, axis=0))


SUM16_LANES: tl.constexpr = tl.constexpr("""{
    .reg .f32 t;
    shfl.sync.bfly.b32 t, $1, 1, 0x1f, 0xffffffff;
    add.rn.f32 $0, $1, t;
    shfl.sync.bfly.b32 t, $0, 2, 0x1f, 0xffffffff;
    add.rn.f32 $0, $0, t;
    shfl.sync.bfly.b32 t, $0, 4, 0x1f, 0xffffffff;
    add.rn.f32 $0, $0, t;
    shfl.sync.bfly.b32 t, $0, 8, 0x1f, 0xffffffff;
    add.rn.f32 $0, $0, t;
}""")


@triton.jit
def tree_over_lanes(x, EMULATE: tl.constexpr):
    """[T, 16] -> its adjacent-pair row sums in every column; needs the 16 columns in 16 neighbouring lanes."""
    if EMULATE:
        return tl.zeros([x.shape[0], 16], tl.float32) + tree_of_last(x, 4)[:, None]
    return tl.inline_asm_elementwise(SUM16_LANES, "=&f,f", [x], tl.float32, False, 1)


@triton.jit
def opaque(x, EMULATE: tl.constexpr):
    """x, with its divisibility hidden from the compiler."""
    return x if EMULATE else tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r", [x], tl.int32, True, 1)


@triton.jit
def eight_products(k, q, TREE: tl.constexpr):
    if TREE:
        low = tl.fma(k[1], q[1], k[0] * q[0]) + tl.fma(k[3], q[3], k[2] * q[2])
        return low + (tl.fma(k[5], q[5], k[4] * q[4]) + tl.fma(k[7], q[7], k[6] * q[6]))
    low = tl.fma(k[3], q[3], tl.fma(k[2], q[2], tl.fma(k[1], q[1], tl.fma(k[0], q[0], 0.0))))
    return tl.fma(k[7], q[7], tl.fma(k[6], q[6], tl.fma(k[5], q[5], tl.fma(k[4], q[4], low))))


@triton.jit
def scores_by_lane(
    q_ptr,
    k_ptr,
    table_ptr,
    s_ptr,
    max_ptr,
    scale,
    ctx,
    HKV,
    ORDER: tl.constexpr,
    T: tl.constexpr,
    STEP: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """QA, QCt: 16 lanes share a token, each sums 8 consecutive d; four butterfly shuffles are the tree."""
    tl.static_assert(D == 128 and G == 4)
    tile, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group = seq * HKV + head
    d = tl.arange(0, D)[None, :]
    lane = tl.arange(0, 16)[None, :]
    q = q_ptr + group * (G * D) + d
    q0 = split8(tl.load(q).to(tl.float32))
    q1 = split8(tl.load(q + D).to(tl.float32))
    q2 = split8(tl.load(q + 2 * D).to(tl.float32))
    q3 = split8(tl.load(q + 3 * D).to(tl.float32))
    largest = tl.full([STEP, 16], float("-inf"), tl.float32)
    for start in tl.range(0, T, STEP):
        pos = tile * T + start + tl.arange(0, STEP)
        page = tl.load(table_ptr + seq * (ctx // PAGE) + pos // PAGE)
        row = k_ptr + ((page * PAGE + pos % PAGE).to(tl.int64) * HKV + head) * D
        k = split8(tl.load(row[:, None] + d).to(tl.float32))
        s = tree_over_lanes(eight_products(k, q0, ORDER == "QA"), EMULATE)
        s = tl.where(lane == 1, tree_over_lanes(eight_products(k, q1, ORDER == "QA"), EMULATE), s)
        s = tl.where(lane == 2, tree_over_lanes(eight_products(k, q2, ORDER == "QA"), EMULATE), s)
        s = tl.where(lane == 3, tree_over_lanes(eight_products(k, q3, ORDER == "QA"), EMULATE), s)
        s = s * scale
        # A store that could be wider than one value a lane would pull the whole computation into its layout.
        tl.store(s_ptr + opaque((group * ctx + pos) * G, EMULATE)[:, None] + lane, s, mask=lane < G)
        largest = tl.maximum(largest, s)
    heads = tl.arange(0, 16)
    tl.store(max_ptr + (group * G + heads) * tl.num_programs(0) + tile, tl.max(largest, axis=0), mask=heads < G)


@triton.jit
def scores_by_slot(
    q_ptr,
    k_ptr,
    table_ptr,
    s_ptr,
    max_ptr,
    scale,
    ctx,
    HKV,
    ORDER: tl.constexpr,
    T: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """QD: a [T, 16] piece of the rows at a time, slot sums elementwise, slots added at the end."""
    tl.static_assert(G == 4)
    tile, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    pos = tile * T + tl.arange(0, T)
    page = tl.load(table_ptr + seq * (ctx // PAGE) + pos // PAGE)
    row = k_ptr + ((page * PAGE + pos % PAGE).to(tl.int64) * HKV + head) * D
    slot = tl.arange(0, 16)
    group = seq * HKV + head
    q = q_ptr + group * (D * G) + slot[None, :] * G
    a0 = tl.zeros([T, 16], tl.float32)
    a1, a2, a3 = a0, a0, a0
    for step in tl.static_range(D // 16):
        k = tl.load(row[:, None] + step * 16 + slot[None, :]).to(tl.float32)
        a0 = tl.fma(k, tl.load(q + step * 16 * G), a0)
        a1 = tl.fma(k, tl.load(q + step * 16 * G + 1), a1)
        a2 = tl.fma(k, tl.load(q + step * 16 * G + 2), a2)
        a3 = tl.fma(k, tl.load(q + step * 16 * G + 3), a3)
    store_slots(a0, s_ptr, max_ptr, scale, ctx, group, 0, pos, tile, G)
    store_slots(a1, s_ptr, max_ptr, scale, ctx, group, 1, pos, tile, G)
    store_slots(a2, s_ptr, max_ptr, scale, ctx, group, 2, pos, tile, G)
    store_slots(a3, s_ptr, max_ptr, scale, ctx, group, 3, pos, tile, G)


@triton.jit
def store_slots(acc, s_ptr, max_ptr, scale, ctx, group, g, pos, tile, G: tl.constexpr):
    s = sum16_in_order(acc) * scale
    tl.store(s_ptr + (group * ctx + pos) * G + g, s)
    tl.store(max_ptr + (group * G + g) * tl.num_programs(0) + tile, tl.max(s, axis=0))
