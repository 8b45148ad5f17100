"""Sums over a tensor's last axis in a written-out order (tl.sum promises none)."""

import triton
import triton.language as tl


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
