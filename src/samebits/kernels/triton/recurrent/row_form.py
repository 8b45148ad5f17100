"""The row form of ops/recurrence.py on the device: what its kernels are called with, and the steps they share.

Rows are positions of a chunk, 0 .. 15. In a chunk, rows below `low` came in earlier steps: their k, u and G lie in the
slot's ring. Sums over K are in head order, sums over rows in order; a row that is not there adds +0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import sigmoid, softplus
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.recurrent.runs import CHUNK

GROUP = tl.constexpr(32)  # rows of a state that are cleared at once
# Where a chunk's numbers of one head begin in its record: weights by [s][t], then one number per row.
Q_WEIGHTS, FADES, STRENGTHS, TO_END, GATES, K_WEIGHTS = (tl.constexpr(n) for n in (0, 256, 272, 288, 304, 320))
RECORD_LEN = tl.constexpr(576)


class Rows(NamedTuple):
    """x [token, head, width]: its pointer and the strides of a token and a head."""

    ptr: Any
    token: int
    head: int


class Batch(NamedTuple):
    """The op's arrays of where sequences are."""

    qo_ptr: Any
    positions_ptr: Any
    slots_ptr: Any


class Gating(NamedTuple):
    """What gates are made of: a (or dt) and b [token, head] with strides of a token; numbers of heads; limits of dt."""

    a_ptr: Any
    a_token: int
    b_ptr: Any
    b_token: int
    decay_ptr: Any
    bias_ptr: Any
    least: float
    most: float


class Memory(NamedTuple):
    """state [slot, head, K, V] and ring [slot, 16, W]."""

    state_ptr: Any
    ring_ptr: Any


class Form(NamedTuple):
    """Constants of a call: heads of k and of v, widths, how heads share k, and whether it is the delta rule."""

    KEY_HEADS: Any
    HEADS: Any
    K: Any
    V: Any
    TILED: Any
    DELTA: Any


@triton.jit
def key_head(head, form):
    """The key head of a value head, int64 as that is."""
    return head % form.KEY_HEADS if form.TILED else head // (form.HEADS // form.KEY_HEADS)


@triton.jit
def ring_of(memory, slot, head, form):
    """(stride of a row, pointers to row 0 of k, u and G) of a slot's ring, for one value head."""
    width = form.KEY_HEADS * form.K + form.HEADS * form.V + form.HEADS
    k_ptr = memory.ring_ptr + slot * (CHUNK * width)
    u_ptr = k_ptr + form.KEY_HEADS * form.K
    return width, k_ptr + key_head(head, form) * form.K, u_ptr + head * form.V, u_ptr + form.HEADS * form.V + head


@triton.jit
def state_of(memory, slot, head, form):
    return memory.state_ptr + (slot * form.HEADS + head) * (form.K * form.V)


@triton.jit
def turned_of(turned_ptr, base, low, high, key, form):
    """(pointer to element 0 of row 0 of k, of q, stride of an element) in a chunk's rows turned; see weights.py."""
    count = high - low
    start = turned_ptr + (base + low) * (2 * form.KEY_HEADS * form.K) + key * (2 * form.K) * count - low
    return start, start + form.K * count, count


@triton.jit
def gates_of(gating, token, head, mask, form):
    """(g, strength) of tokens: strength is beta of the delta rule, else dt."""
    a = tl.load(gating.a_ptr + token * gating.a_token + head, mask=mask, other=0.0)
    decay, step = tl.load(gating.decay_ptr + head), softplus(settle(a + tl.load(gating.bias_ptr + head)))
    if form.DELTA:
        strength = sigmoid(tl.load(gating.b_ptr + token * gating.b_token + head, mask=mask, other=0.0))
    else:
        step = tl.minimum(tl.maximum(step, gating.least), gating.most)
        strength = step
    return settle(decay * step), strength


@triton.jit
def either(condition, one, other):
    """Pointers to float32, chosen as numbers: AMD's compiler takes no choice between two arguments."""
    return tl.where(condition, one.to(tl.int64), other.to(tl.int64)).to(tl.pointer_type(tl.float32))


@triton.jit
def run_of_8(
    zeros, a_ptrs, b_ptrs, x_step, x_mask, y_ptrs, y_step, y_mask, first,
    K: tl.constexpr, IS_PADDED: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """Chains over elements first .. first + 7 of a . y and, with BOTH, b . y; see head_dots.

    IS_PADDED says that the runs of a head cover more than its K elements.
    """
    one, two = zeros, zeros
    for i in tl.static_range(8):
        d = first + i
        x_there, y_there = x_mask, y_mask
        if IS_PADDED:
            x_there, y_there = x_mask & (d < K), y_mask & (d < K)
        y = tl.load(y_ptrs + d * y_step, mask=y_there, other=0.0)
        one = one + tl.load(a_ptrs + d * x_step, mask=x_there, other=0.0) * y
        if BOTH:
            two = two + tl.load(b_ptrs + d * x_step, mask=x_there, other=0.0) * y
    return one, two


@triton.jit
def head_dots(zeros, a_ptrs, b_ptrs, x_step, x_mask, y_ptrs, y_step, y_mask, K: tl.constexpr, BOTH: tl.constexpr):
    """Dot products over K in head order, not settled: [A, N] of rows a and, with BOTH, of rows b against columns y.

    a_ptrs, b_ptrs [A, 1] and y_ptrs [1, N] point to elements 0, the next ones are x_step and y_step further. They are
    loaded again and again in the layout of the sums: from the cache, past shared memory. `zeros` [A, N] start the
    chains, and where they lie the sums lie.
    """
    one, one_1, one_2, one_4, one_8 = zeros, zeros, zeros, zeros, zeros
    two, two_1, two_2, two_4, two_8 = zeros, zeros, zeros, zeros, zeros
    NUM_PAIRS: tl.constexpr = triton.next_power_of_2((K + 15) // 16)
    IS_PADDED: tl.constexpr = NUM_PAIRS * 16 != K
    for pair in tl.range(0, NUM_PAIRS):
        first = pair * 16
        a, b = run_of_8(zeros, a_ptrs, b_ptrs, x_step, x_mask, y_ptrs, y_step, y_mask, first, K, IS_PADDED, BOTH)
        c, d = run_of_8(zeros, a_ptrs, b_ptrs, x_step, x_mask, y_ptrs, y_step, y_mask, first + 8, K, IS_PADDED, BOTH)
        one, two = a + c, b + d
        # A binary counter: a finished left subtree waits.
        if pair % 2 == 0:
            one_1, two_1 = one, two
        else:
            one, two = one_1 + one, two_1 + two
            if pair % 4 == 1:
                one_2, two_2 = one, two
            else:
                one, two = one_2 + one, two_2 + two
                if pair % 8 == 3:
                    one_4, two_4 = one, two
                else:
                    one, two = one_4 + one, two_4 + two
                    if pair == 7:
                        one_8, two_8 = one, two
                    else:
                        one, two = one_8 + one, two_8 + two
    return one, two


@triton.jit
def clear_state(state_ptr, column, inside, form):
    """Zeros in the columns of a state."""
    d = tl.arange(0, GROUP)[:, None]
    for first in tl.range(0, form.K, GROUP):
        zero = tl.zeros([GROUP, column.shape[1]], tl.float32)
        tl.store(state_ptr + (first + d) * form.V + column, zero, mask=inside & (first + d < form.K))


@triton.jit
def move_state(
    state_ptr, ring_k, ring_row, k_ptr, k_row, low, u_ptr, u_row, last_u_ptr, fade, to_end_ptr, column, inside, form,
    FADED: tl.constexpr,
):  # fmt: skip
    """The columns of a state at the end of a full chunk, in place: fade is e^G_15, to_end_ptr has e^(G_15 - G_s).

    Rows of k below `low` lie in the ring, the others at k_ptr; rows of u at u_ptr, but for the last one, and with FADED
    they have been multiplied. The whole program must see them.
    """
    ROWS: tl.constexpr = GROUP if form.K <= GROUP else 2 * GROUP
    d = tl.arange(0, ROWS)[:, None]
    for first in tl.range(0, form.K, ROWS):
        there = first + d < form.K
        target = state_ptr + (first + d) * form.V + column
        state = settle(fade * tl.load(target, mask=inside & there, other=0.0))
        for s in tl.static_range(CHUNK):
            row_ptr = last_u_ptr if s == CHUNK - 1 else u_ptr + s * u_row
            u = tl.load(row_ptr + column, mask=inside, other=0.0)
            if not FADED:
                u = settle(tl.load(to_end_ptr + s) * u)
            k_ptrs = either(s < low, ring_k + s * ring_row, k_ptr + s * k_row) + first + d
            state = state + tl.load(k_ptrs, mask=there, other=0.0) * u
        tl.store(target, settle(state), mask=inside & there)
