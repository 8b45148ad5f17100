"""Paged decode attention in Triton: one kernel per pass, the reduction order a constexpr.

Two launches because the exact row maximum comes first: the K pass writes scores and tile maxima,
the V pass forms p = bf16(exp(s - max)) and one partial output per cut of 256 positions; a third,
small launch adds the cuts in order. bf16 products are exact in f32, so tl.fma equals mul-then-add.
"""

import triton
import triton.language as tl

PAGE: tl.constexpr = tl.constexpr(16)
CUT: tl.constexpr = tl.constexpr(256)
LOG2E: tl.constexpr = tl.constexpr(1.4426950216293335)
LN2_HI: tl.constexpr = tl.constexpr(0.693145751953125)
LN2_LO: tl.constexpr = tl.constexpr(1.428606765330187e-06)
MAGIC: tl.constexpr = tl.constexpr(12582912.0)


@triton.jit
def exp_nonpositive(x):
    """2^n * poly(r) for x <= 0; +0 below -87."""
    shifted = x * LOG2E + MAGIC
    n = shifted - MAGIC
    r = (x - n * LN2_HI) - n * LN2_LO
    y = r * 0.0013888889225199819 + 0.008333333767950535
    y = y * r + 0.0416666679084301
    y = y * r + 0.1666666716337204
    y = y * r + 0.5
    y = y * r + 1.0
    y = y * r + 1.0
    exponent = shifted.to(tl.int32, bitcast=True) - 0x4B400000 + 127
    return tl.where(x < -87.0, 0.0, y * (exponent << 23).to(tl.float32, bitcast=True))


@triton.jit
def round_to_bf16(x):
    """Nearest even, for finite x; in integers because the interpreter's conversion truncates."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def split8(x):
    """[R, C * 8] -> eight [R, C], in the order of the 8 consecutive columns."""
    rows: tl.constexpr = x.shape[0]
    cols: tl.constexpr = x.shape[1] // 8
    even, odd = tl.split(tl.reshape(x, [rows, cols * 4, 2]))
    e0, e1 = tl.split(tl.reshape(even, [rows, cols * 2, 2]))
    o0, o1 = tl.split(tl.reshape(odd, [rows, cols * 2, 2]))
    x0, x4 = tl.split(tl.reshape(e0, [rows, cols, 2]))
    x2, x6 = tl.split(tl.reshape(e1, [rows, cols, 2]))
    x1, x5 = tl.split(tl.reshape(o0, [rows, cols, 2]))
    x3, x7 = tl.split(tl.reshape(o1, [rows, cols, 2]))
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def sum16_in_order(x):
    """[R, 16] -> [R]: ((c0 + c1) + c2) + ..."""
    rows: tl.constexpr = x.shape[0]
    even, odd = tl.split(tl.reshape(x, [rows, 8, 2]))
    c0, c2, c4, c6, c8, c10, c12, c14 = split8(even)
    c1, c3, c5, c7, c9, c11, c13, c15 = split8(odd)
    low = ((((((c0 + c1) + c2) + c3) + c4) + c5) + c6) + c7
    total = (((((((low + c8) + c9) + c10) + c11) + c12) + c13) + c14) + c15
    return tl.reshape(total, [rows])


@triton.jit
def tree_of_last(x, LEVELS: tl.constexpr):
    """[R, 2 ** LEVELS] -> [R]: adjacent pairs."""
    for _ in tl.static_range(LEVELS):
        a, b = tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))
        x = a + b
    return tl.reshape(x, [x.shape[0]])


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
def scores_by_token(q_ptr, k_ptr, table_ptr, s_ptr, max_ptr, scale, ctx, HKV, ORDER: tl.constexpr,
                    T: tl.constexpr, G: tl.constexpr, D: tl.constexpr, EMULATE: tl.constexpr):
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
def scores_by_row(q_ptr, k_ptr, table_ptr, s_ptr, max_ptr, scale, ctx, HKV, ORDER: tl.constexpr,
                  T: tl.constexpr, G: tl.constexpr, D: tl.constexpr, EMULATE: tl.constexpr):
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
def scores_by_lane(q_ptr, k_ptr, table_ptr, s_ptr, max_ptr, scale, ctx, HKV, ORDER: tl.constexpr,
                   T: tl.constexpr, G: tl.constexpr, D: tl.constexpr, EMULATE: tl.constexpr):
    """QA, QCt: 16 lanes share a token, each sums 8 consecutive d; four butterfly shuffles are the tree."""
    tl.static_assert(D == 128 and G <= 16)
    tile, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    pos = tile * T + tl.arange(0, T)
    page = tl.load(table_ptr + seq * (ctx // PAGE) + pos // PAGE)
    row = k_ptr + ((page * PAGE + pos % PAGE).to(tl.int64) * HKV + head) * D
    k0, k1, k2, k3, k4, k5, k6, k7 = split8(tl.load(row[:, None] + tl.arange(0, D)[None, :]).to(tl.float32))
    group = seq * HKV + head
    lane = tl.arange(0, 16)[None, :]
    s = tl.zeros([T, 16], tl.float32)
    for g in tl.static_range(G):
        q = q_ptr + group * (D * G) + lane * (8 * G) + g
        q0, q1, q2, q3 = tl.load(q), tl.load(q + G), tl.load(q + 2 * G), tl.load(q + 3 * G)
        q4, q5, q6, q7 = tl.load(q + 4 * G), tl.load(q + 5 * G), tl.load(q + 6 * G), tl.load(q + 7 * G)
        if ORDER == "QA":
            part = ((tl.fma(k1, q1, k0 * q0) + tl.fma(k3, q3, k2 * q2))
                    + (tl.fma(k5, q5, k4 * q4) + tl.fma(k7, q7, k6 * q6)))
        else:
            part = tl.fma(k1, q1, tl.fma(k0, q0, 0.0))
            part = tl.fma(k3, q3, tl.fma(k2, q2, part))
            part = tl.fma(k5, q5, tl.fma(k4, q4, part))
            part = tl.fma(k7, q7, tl.fma(k6, q6, part))
        s = tl.where(lane == g, tree_over_lanes(part, EMULATE), s)
    s = s * scale
    # A store that could be wider than one value a lane would pull the whole computation into its layout.
    tl.store(s_ptr + opaque((group * ctx + pos) * G, EMULATE)[:, None] + lane, s, mask=lane < G)
    heads = tl.arange(0, 16)
    tl.store(max_ptr + (group * G + heads) * tl.num_programs(0) + tile, tl.max(s, axis=0), mask=heads < G)


@triton.jit
def scores_by_slot(q_ptr, k_ptr, table_ptr, s_ptr, max_ptr, scale, ctx, HKV, ORDER: tl.constexpr,
                   T: tl.constexpr, G: tl.constexpr, D: tl.constexpr, EMULATE: tl.constexpr):
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


@triton.jit
def write_probabilities(s_ptr, max_ptr, p_ptr, ctx, num_tiles, group, cut, G: tl.constexpr, TILES: tl.constexpr):
    """p of this cut as f32 [256, G] in scratch: every thread needs every p, registers cannot be indexed."""
    heads = tl.arange(0, G)[None, :]
    tiles = tl.arange(0, TILES)[:, None]
    maxima = tl.load(max_ptr + (group * G + heads) * num_tiles + tiles, tiles < num_tiles, float("-inf"))
    at = tl.arange(0, CUT)[:, None] * G + heads
    s = tl.load(s_ptr + (group * ctx + cut * CUT) * G + at)
    p = round_to_bf16(exp_nonpositive(s - tl.max(maxima, axis=0)[None, :]))
    tl.store(p_ptr + at, p)
    tl.debug_barrier()


@triton.jit
def values_by_slot(s_ptr, max_ptr, v_ptr, table_ptr, p_ptr, o_ptr, l_ptr, ctx, num_tiles, HKV, ORDER: tl.constexpr,
                   STAGES: tl.constexpr, TILES: tl.constexpr, G: tl.constexpr, D: tl.constexpr):
    """PC: slot = row of a page, chain over pages. PD: slot = page, chain over its rows. Both are elementwise."""
    tl.static_assert(G == 4)
    cut, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group = seq * HKV + head
    index = group * tl.num_programs(0) + cut
    p_ptr += index * (CUT * G)
    write_probabilities(s_ptr, max_ptr, p_ptr, ctx, num_tiles, group, cut, G, TILES)
    slot = tl.arange(0, 16)
    d = tl.arange(0, D)
    a0 = tl.zeros([16, D], tl.float32)
    a1, a2, a3 = a0, a0, a0
    l0 = tl.zeros([16, 1], tl.float32)
    l1, l2, l3 = l0, l0, l0
    for i in tl.range(0, 16, num_stages=STAGES):
        pos = i * 16 + slot if ORDER == "PC" else slot * 16 + i
        page = tl.load(table_ptr + seq * (ctx // PAGE) + cut * 16 + pos // PAGE)
        row = (page * PAGE + pos % PAGE).to(tl.int64) * HKV + head
        v = tl.load(v_ptr + row[:, None] * D + d[None, :]).to(tl.float32)
        p = p_ptr + pos[:, None] * G
        p0, p1, p2, p3 = tl.load(p), tl.load(p + 1), tl.load(p + 2), tl.load(p + 3)
        a0, l0 = tl.fma(p0, v, a0), l0 + p0
        a1, l1 = tl.fma(p1, v, a1), l1 + p1
        a2, l2 = tl.fma(p2, v, a2), l2 + p2
        a3, l3 = tl.fma(p3, v, a3), l3 + p3
    o = o_ptr + index * (G * D) + d
    tl.store(o, sum16_in_order(tl.trans(a0)))
    tl.store(o + D, sum16_in_order(tl.trans(a1)))
    tl.store(o + 2 * D, sum16_in_order(tl.trans(a2)))
    tl.store(o + 3 * D, sum16_in_order(tl.trans(a3)))
    one = tl.arange(0, 1)
    tl.store(l_ptr + index * G + one, sum16_in_order(tl.trans(l0)))
    tl.store(l_ptr + index * G + 1 + one, sum16_in_order(tl.trans(l1)))
    tl.store(l_ptr + index * G + 2 + one, sum16_in_order(tl.trans(l2)))
    tl.store(l_ptr + index * G + 3 + one, sum16_in_order(tl.trans(l3)))


@triton.jit
def row_at(v_page, p_page, r, HKV, G: tl.constexpr, D: tl.constexpr):
    v = tl.load(v_page + r * HKV * D + tl.arange(0, D)[None, :]).to(tl.float32)
    return v, tl.load(p_page + r * G + tl.arange(0, G)[:, None])


@triton.jit
def row_quad(v_page, p_page, r, HKV, G: tl.constexpr, D: tl.constexpr):
    """Tree over rows r .. r + 3 of a page, of p * v and of p."""
    v0, p0 = row_at(v_page, p_page, r, HKV, G, D)
    v1, p1 = row_at(v_page, p_page, r + 1, HKV, G, D)
    v2, p2 = row_at(v_page, p_page, r + 2, HKV, G, D)
    v3, p3 = row_at(v_page, p_page, r + 3, HKV, G, D)
    return tl.fma(p1, v1, p0 * v0) + tl.fma(p3, v3, p2 * v2), (p0 + p1) + (p2 + p3)


@triton.jit
def values_by_row(s_ptr, max_ptr, v_ptr, table_ptr, p_ptr, o_ptr, l_ptr, ctx, num_tiles, HKV, ORDER: tl.constexpr,
                  STAGES: tl.constexpr, TILES: tl.constexpr, G: tl.constexpr, D: tl.constexpr):
    """PA, PB, PD: a thread owns columns of D and meets the positions one by one."""
    cut, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group = seq * HKV + head
    index = group * tl.num_programs(0) + cut
    p_ptr += index * (CUT * G)
    write_probabilities(s_ptr, max_ptr, p_ptr, ctx, num_tiles, group, cut, G, TILES)
    acc = tl.zeros([G, D], tl.float32)
    total = tl.zeros([G, 1], tl.float32)
    s1, s2, s4, s8 = acc, acc, acc, acc
    t1, t2, t4, t8 = total, total, total, total
    for i in tl.range(0, 16):
        page = tl.load(table_ptr + seq * (ctx // PAGE) + cut * 16 + i)
        v_page = v_ptr + (page.to(tl.int64) * PAGE * HKV + head) * D
        p_page = p_ptr + i * 16 * G
        if ORDER == "PB":
            for r in tl.static_range(16):
                v, p = row_at(v_page, p_page, r, HKV, G, D)
                acc, total = tl.fma(p, v, acc), total + p
        elif ORDER == "PD":
            x0, y0 = tl.zeros([G, D], tl.float32), tl.zeros([G, 1], tl.float32)
            for r in tl.static_range(16):
                v, p = row_at(v_page, p_page, r, HKV, G, D)
                x0, y0 = tl.fma(p, v, x0), y0 + p
            acc, total = acc + x0, total + y0
        else:
            x0, y0 = row_quad(v_page, p_page, 0, HKV, G, D)
            x1, y1 = row_quad(v_page, p_page, 4, HKV, G, D)
            x2, y2 = row_quad(v_page, p_page, 8, HKV, G, D)
            x3, y3 = row_quad(v_page, p_page, 12, HKV, G, D)
            acc, total = (x0 + x1) + (x2 + x3), (y0 + y1) + (y2 + y3)
            # A binary counter over the pages: a finished left subtree waits in s1, s2, s4 or s8.
            if i % 2 == 0:
                s1, t1 = acc, total
            else:
                acc, total = s1 + acc, t1 + total
                if i % 4 == 1:
                    s2, t2 = acc, total
                else:
                    acc, total = s2 + acc, t2 + total
                    if i % 8 == 3:
                        s4, t4 = acc, total
                    else:
                        acc, total = s4 + acc, t4 + total
                        if i == 7:
                            s8, t8 = acc, total
                        else:
                            acc, total = s8 + acc, t8 + total
    heads = tl.arange(0, G)[:, None]
    tl.store(o_ptr + index * (G * D) + heads * D + tl.arange(0, D)[None, :], acc)
    tl.store(l_ptr + index * G + heads, total)


@triton.jit
def combine_cuts(o_ptr, l_ptr, out_ptr, num_cuts, G: tl.constexpr, D: tl.constexpr):
    group, g = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    acc = tl.zeros([D], tl.float32)
    total = 0.0
    for cut in tl.range(num_cuts):
        index = group * num_cuts + cut
        acc = acc + tl.load(o_ptr + (index * G + g) * D + d)
        total = total + tl.load(l_ptr + index * G + g)
    tl.store(out_ptr + (group * G + g) * D + d, tl.div_rn(acc, tl.zeros([D], tl.float32) + total))
