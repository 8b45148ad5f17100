"""V pass of paged decode attention: p = bf16(exp(s - max)), one partial output per cut of 256 positions.

The exact row maximum comes first, so this is a launch after the K pass; a third, small one adds the cuts in order.
"""

import triton
import triton.language as tl
from orders import sum16_in_order

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
def values_by_slot(
    s_ptr,
    max_ptr,
    v_ptr,
    table_ptr,
    p_ptr,
    o_ptr,
    l_ptr,
    ctx,
    num_tiles,
    HKV,
    ORDER: tl.constexpr,
    STAGES: tl.constexpr,
    TILES: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
):
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
def values_by_row(
    s_ptr,
    max_ptr,
    v_ptr,
    table_ptr,
    p_ptr,
    o_ptr,
    l_ptr,
    ctx,
    num_tiles,
    HKV,
    ORDER: tl.constexpr,
    STAGES: tl.constexpr,
    TILES: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
):
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
