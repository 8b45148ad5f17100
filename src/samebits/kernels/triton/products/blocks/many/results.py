"""Where the sums of warps.py go: a lane's rows and tokens as elements of y."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.settling import settle


@triton.jit
def _store(y, bias_ptr, y_ptr, row, token, T, N, places_ptr, BIAS: tl.constexpr, PLACED: tl.constexpr):
    """Stores results of rows and tokens; with PLACED into the rows of y that places name, none where that is -1."""
    if BIAS:
        y = settle(y) + tl.load(bias_ptr + row, mask=row < N, other=0.0).to(tl.float32)
    inside = token < T
    if PLACED:
        token = tl.load(places_ptr + token, mask=inside, other=-1).to(tl.int64)
        inside = token >= 0
    tl.store(y_ptr + token * N + row, settle(y), mask=(row < N) & inside)


@triton.jit
def _columns(x, WIDTH: tl.constexpr):
    """The columns of x [threads, WIDTH] as a tuple, in order; WIDTH is a power of two."""
    if WIDTH == 1:
        return (tl.reshape(x, [x.shape[0]]),)
    else:
        low, high = tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, WIDTH // 2]), (0, 2, 1)))
        return _columns(low, WIDTH // 2) + _columns(high, WIDTH // 2)


@triton.jit
def store_totals(
    totals,
    bias_ptr,
    y_ptr,
    row_group,
    token_tile,
    T,
    N,
    places_ptr,
    MT: tl.constexpr,
    NT: tl.constexpr,
    WARPS: tl.constexpr,
    GROUPS: tl.constexpr,
    BIAS: tl.constexpr,
    PLACED: tl.constexpr,
):
    """What tile_totals gave, to the rows of y that a row group and a tile of tokens mean; token_tile is int64."""
    COUNT: tl.constexpr = MT * NT
    if GROUPS == 1:
        thread = tl.arange(0, 32 * WARPS)
        lane, warp = thread % 32, thread // 32
        for k in tl.static_range(COUNT):
            for j in tl.static_range(4):
                row = ((row_group * WARPS + warp) * MT + k // NT) * 16 + lane // 4 + 8 * (j // 2)
                token = (token_tile * NT + k % NT) * 8 + lane % 4 * 2 + j % 2
                _store(totals[k][j], bias_ptr, y_ptr, row, token, T, N, places_ptr, BIAS, PLACED)
    else:
        # an element per thread at a time, so that shorter_compiling.py may spare the kernel a pass: thread
        # GROUPS * owner + i stores the i-th part of the owner's columns
        WIDTH: tl.constexpr = 4 * COUNT // GROUPS
        thread = tl.arange(0, 32 * WARPS * GROUPS)
        owner, first = thread // GROUPS, thread % GROUPS * WIDTH
        columns = _columns(tl.reshape(totals, [32 * WARPS * GROUPS, WIDTH]), WIDTH)
        for i in tl.static_range(WIDTH):
            k, j = (first + i) // 4, (first + i) % 4
            row = ((row_group * WARPS + owner // 32) * MT + k // NT) * 16 + owner % 32 // 4 + 8 * (j // 2)
            token = (token_tile * NT + k % NT) * 8 + owner % 4 * 2 + j % 2
            _store(columns[i], bias_ptr, y_ptr, row, token, T, N, places_ptr, BIAS, PLACED)
