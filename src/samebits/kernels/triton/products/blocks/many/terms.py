"""The terms of docs/numerics.md, section 4, for one matrix instruction: 16 rows, 8 tokens, a block of 32.

A lane holds the sums of rows g, g + 8 times tokens 2t, 2t + 1. On NVIDIA the integer sums and the float steps after
them are one piece of PTX: as single operations they are thousands, over which the compiler takes minutes.
The PTX states ../terms.py's block_term once more; where that instruction does not exist, `add_terms` calls it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.kinds import has_halves, is_around_eight
from samebits.kernels.triton.products.blocks.terms import block_term, word_sums

# 16 times an integer added to the bits of 1.5 * 2^19 adds the integer to the number, below 2^18. Sums of such that
# start there need no conversion: one exact subtraction is left. Others start at 0 and are converted: sooner done.
ZERO_SIXTEENTHS = tl.constexpr(1.5 * 2.0**19)

# How a term is made; what a kind lacks among d, m, sub, second is not read.
PLAIN, OFFSET, SUPER, HALVES, MINIMUMS = (tl.constexpr(kind) for kind in range(5))
NUM_KINDS = tl.constexpr(5)
KINDS = {
    **dict.fromkeys(("q8_0", "q4_0", "q5_0", "mxfp4", "iq4_nl"), 0),
    **dict.fromkeys(("q4_1", "q5_1"), 1),
    **dict.fromkeys(("q4_k", "q5_k"), 2),
    **dict.fromkeys(("q6_k", "nvfp4", "q3_k", "iq4_xs"), 3),
    "q2_k": 4,
}

_START = "{$10, $10, $10, $10}"
_SUMS = {
    "s": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {s0, s1, s2, s3}, {$4, $5, $6, $7}, {$8, $9}, " + _START,
    "low": "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {s0, s1, s2, s3}, {$4, $5}, {$8}, " + _START,
    "high": "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {h0, h1, h2, h3}, {$6, $7}, {$9}, " + _START,
    "mins": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {h0, h1, h2, h3}, {$19, $20, $21, $22}, {$8, $9}, "
    + _START,
}


def _as_number(register: str, has_sixteenths: bool) -> str:
    """An integer sum to a float, in place."""
    return f"sub.rn.f32 {register}, {register}, $10" if has_sixteenths else f"cvt.rn.f32.s32 {register}, {register}"


def _ptx(kind: int, has_sixteenths: bool) -> str:
    """Operands: 0-3 new parts; 4-7 words of rows, 8, 9 of tokens; 10 the zero; 11-14 parts; then, by row pair and
    token pair, sa 15, 16; d 17, 18; sub 19, 20; second 21, 22; m 23, 24; asum 25, 26."""
    lines = [_SUMS["low"], _SUMS["high"]] if kind == HALVES.value else [_SUMS["s"]]
    if kind == MINIMUMS.value:
        lines.append(_SUMS["mins"])
    for i in range(4):
        row, token = i // 2, i % 2
        sa, d, sub, second = f"${15 + token}", f"${17 + row}", f"${19 + row}", f"${21 + row}"
        m, asum = f"${23 + row}", f"${25 + token}"
        lines.append(_as_number(f"s{i}", has_sixteenths))
        if kind == HALVES.value:
            lines += [_as_number(f"h{i}", has_sixteenths), f"mul.rn.f32 s{i}, s{i}, {sub}"]
            lines += [f"mul.rn.f32 h{i}, h{i}, {second}", f"add.rn.f32 s{i}, s{i}, h{i}"]
        if kind == SUPER.value:
            lines.append(f"mul.rn.f32 s{i}, s{i}, {sub}")
        lines += [f"mul.rn.f32 c{i}, {d}, {sa}", f"mul.rn.f32 s{i}, s{i}, c{i}"]
        if kind == SUPER.value:
            lines += [f"mul.rn.f32 h{i}, {asum}, {second}", f"mul.rn.f32 c{i}, {m}, {sa}"]
            lines += [f"mul.rn.f32 h{i}, h{i}, c{i}", f"add.rn.f32 s{i}, s{i}, h{i}"]
        if kind == MINIMUMS.value:
            lines += [_as_number(f"h{i}", has_sixteenths), f"mul.rn.f32 c{i}, {m}, {sa}"]
            lines += [f"mul.rn.f32 h{i}, h{i}, c{i}", f"add.rn.f32 s{i}, s{i}, h{i}"]
        if kind == OFFSET.value:
            lines += [f"mul.rn.f32 c{i}, {m}, {sa}", f"mul.rn.f32 h{i}, {asum}, c{i}", f"add.rn.f32 s{i}, s{i}, h{i}"]
    lines += [f"add.rn.f32 ${i}, ${11 + i}, s{i}" for i in range(4)]
    return "{ .reg .b32 s<4>; .reg .b32 h<4>; .reg .b32 c<4>; " + " ".join(f"{line};" for line in lines) + " }"


# Of every kind, then of every kind whose codes are sixteenths.
PTX = tl.constexpr(tuple(_ptx(kind, sixteenths) for sixteenths in (False, True) for kind in range(NUM_KINDS.value)))
CONSTRAINTS = tl.constexpr(",".join(["=r"] * 4 + ["r"] * 23))


@triton.jit
def _number(isum, SIXTEENTHS: tl.constexpr):
    return (isum // 16 if SIXTEENTHS else isum).to(tl.float32)


@triton.jit
def term(low, high, d, m, sub, second, sa, asum, FORMAT: tl.constexpr, SIXTEENTHS: tl.constexpr):
    """block_term of the integer sums of a block's halves."""
    if has_halves(FORMAT):
        low, high = _number(low, SIXTEENTHS), _number(high, SIXTEENTHS)
        return block_term(low, high, asum, d, m, sub, second, sa, FORMAT)
    isum = _number(low + high, SIXTEENTHS)
    return block_term(isum, isum, asum, d, m, sub, second, sa, FORMAT)


@triton.jit
def _minimum_sums(first, second, b):
    """float32 sums of the tokens' codes times the minimums of their halves: rows g, then g + 8, of two tokens each."""
    x0, x1 = word_sums(first[0], b[0])
    x2, x3 = word_sums(first[1], b[0])
    y0, y1 = word_sums(second[0], b[1])
    y2, y3 = word_sums(second[1], b[1])
    top = ((x0 + y0).to(tl.float32), (x1 + y1).to(tl.float32))
    return top, ((x2 + y2).to(tl.float32), (x3 + y3).to(tl.float32))


@triton.jit
def add_terms(
    parts,
    a,
    b,
    sa,
    asum,
    d,
    m,
    sub,
    second,
    FORMAT: tl.constexpr,
    KIND: tl.constexpr,
    WARPS: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """Four partial sums plus the terms of a block.

    a          words of rows g, g + 8: first halves, second halves     b   words of a token: first half, second half
    sa, asum   of tokens 2t, 2t + 1                                    d, m, sub, second   of rows g, g + 8
    The words of a hold 16 times codes that are stored around 8. KIND MINIMUMS: sub, second are words, as a's halves.
    """
    SIXTEENTHS: tl.constexpr = is_around_eight(FORMAT)
    p0, p1, p2, p3 = parts
    if EMULATE:
        x0, x1 = word_sums(a[0], b[0])
        x2, x3 = word_sums(a[1], b[0])
        y0, y1 = word_sums(a[2], b[1])
        y2, y3 = word_sums(a[3], b[1])
        top, bottom = asum, asum
        if KIND == MINIMUMS:
            top, bottom = _minimum_sums(sub, second, b)
        p0 += term(x0, y0, d[0], m[0], sub[0], second[0], sa[0], top[0], FORMAT, SIXTEENTHS)
        p1 += term(x1, y1, d[0], m[0], sub[0], second[0], sa[1], top[1], FORMAT, SIXTEENTHS)
        p2 += term(x2, y2, d[1], m[1], sub[1], second[1], sa[0], bottom[0], FORMAT, SIXTEENTHS)
        p3 += term(x3, y3, d[1], m[1], sub[1], second[1], sa[1], bottom[1], FORMAT, SIXTEENTHS)
    else:
        zero = tl.full([32 * WARPS], ZERO_SIXTEENTHS if SIXTEENTHS else 0.0, tl.float32)
        p0, p1, p2, p3 = tl.inline_asm_elementwise(
            PTX[KIND + NUM_KINDS * SIXTEENTHS],
            CONSTRAINTS,
            [
                a[0],
                a[1],
                a[2],
                a[3],
                b[0],
                b[1],
                zero,
                p0,
                p1,
                p2,
                p3,
                sa[0],
                sa[1],
                d[0],
                d[1],
                sub[0],
                sub[1],
                second[0],
                second[1],
                m[0],
                m[1],
                asum[0],
                asum[1],
            ],
            (tl.float32, tl.float32, tl.float32, tl.float32),
            True,
            1,
        )
    return p0, p1, p2, p3
