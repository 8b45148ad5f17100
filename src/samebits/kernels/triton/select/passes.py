"""The first half of a selection: narrows every row, and writes the places that are left to a list."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import recip
from samebits.kernels.triton.select.keys import LOWEST, TWO_23, key_of, load_row, place_of, value_of
from samebits.kernels.triton.select.narrow import LIST, extent, mass_from, narrow, tile

NO_MASS = tl.constexpr(22.0)  # exp(-22) * 2^28 rounds to 0
KEY_OF_NONE = tl.constexpr(-0x7F800001)  # of -Inf

# Fields of a row's state, int64.
STATE_FIELDS = 8
LAST = tl.constexpr(0)  # the last place kept, LOWEST while all are
COUNT = tl.constexpr(1)  # places in the list, 0 where nothing is left to find
LOW = tl.constexpr(2)  # the interval
HIGH = tl.constexpr(3)
NEED = tl.constexpr(4)  # weight that is missing above the interval
WHOLE = tl.constexpr(5)  # 1: the list holds every place from LOW on
TOP = tl.constexpr(6)  # key of the largest value


@triton.jit
def _gather_exact(x_ptr, list_ptr, factor, low, high, LENGTH: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """Writes the places in low .. high to the list; how many there are."""
    count = 0
    for start in range(0, LENGTH, BLOCK):
        at = start + tl.arange(0, BLOCK)
        place = place_of(load_row(x_ptr, at, LENGTH, factor), at, LENGTH, BITS)
        inside = (place >= low) & (place <= high)
        slot = count + tl.cumsum(inside.to(tl.int32), axis=0) - 1
        tl.store(list_ptr + slot, place, mask=inside & (slot < LIST))
        count += tl.sum(inside.to(tl.int32), axis=0)
    return tl.minimum(count, LIST)


@triton.jit
def gather(
    x_ptr, list_ptr, state_ptr, factor, low, high, is_between,
    LENGTH: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Writes the places in low .. high to the list and counts them in the state, which holds 0.

    Their order in the list is left open: no two are equal, and all that is done with them are integer sums.
    """
    if is_between:  # whole values: comparing keys tells
        first, last = (low >> BITS).to(tl.int32), (high >> BITS).to(tl.int32)
        for start in range(0, LENGTH, ROWS * COLS):
            at = tile(start, ROWS, COLS)
            x = load_row(x_ptr, at, LENGTH, factor)
            key = key_of(x)
            inside = ((key >= first) & (key <= last) & (at < LENGTH)).to(tl.int32)
            found = tl.sum(inside, axis=0)
            base = tl.atomic_add(state_ptr + COUNT + found * 0, found.to(tl.int64), mask=found > 0, sem="relaxed")
            slot = base[None, :] + tl.cumsum(inside, axis=0) - 1
            tl.store(list_ptr + slot, place_of(x, at, LENGTH, BITS), mask=(inside != 0) & (slot < LIST))
    else:
        count = _gather_exact(x_ptr, list_ptr, factor, low, high, LENGTH, BITS, ROWS * COLS)
        tl.store(state_ptr + COUNT, count.to(tl.int64))
    tl.store(state_ptr + LOW, low)
    tl.store(state_ptr + HIGH, high)


@triton.jit
def narrow_count(
    x_ptr, stride, temperature_ptr, k_ptr, p_ptr, min_p_ptr, state_ptr, list_ptr, fault_ptr, fixed_k,
    NAN_CODE: tl.constexpr, LENGTH: tl.constexpr, PER_ROW: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr,
    COLS: tl.constexpr, FIELDS: tl.constexpr,
):  # fmt: skip
    """One program a row: where the k-th place is, k given or a row's own (then of the row times 1 / temperature)."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    state_ptr += row * FIELDS
    k, factor = fixed_k, 1.0
    is_wanted = True
    if PER_ROW:
        k = tl.load(k_ptr + row)
        temperature = tl.load(temperature_ptr + row)
        is_hot = temperature > 0
        factor = tl.where(is_hot, recip(tl.where(is_hot, temperature, 1.0)), 1.0)
        is_wanted = is_hot & ((k > 0) | (tl.load(p_ptr + row) < 1.0) | (tl.load(min_p_ptr + row) > 0))
    tl.store(state_ptr + LAST, LOWEST)
    tl.store(state_ptr + COUNT, 0)
    tl.store(state_ptr + WHOLE, 0)
    if is_wanted:
        top, lowest, has_nan = extent(x_ptr, factor, LENGTH, ROWS, COLS)
        if NAN_CODE:
            tl.store(fault_ptr, NAN_CODE, mask=has_nan)
        tl.store(state_ptr + TOP, top.to(tl.int64))
        if (k > 0) & (k <= LENGTH):
            zero = top.to(tl.int64) * 0
            end = (top.to(tl.int64) << BITS) | ((1 << BITS) - 1)
            low, high, above, count, is_between = narrow(
                x_ptr, factor, 0.0, lowest, (zero + KEY_OF_NONE) << BITS, end, zero + k, top * 0 + LENGTH, k <= LIST,
                False, LENGTH, BITS, ROWS, COLS,
            )  # fmt: skip
            whole = count <= LIST
            high = tl.where(whole, end, high)
            gather(x_ptr, list_ptr + row * LIST, state_ptr, factor, low, high, is_between, LENGTH, BITS, ROWS, COLS)
            tl.store(state_ptr + NEED, k - tl.where(whole, 0, above))
            tl.store(state_ptr + WHOLE, whole.to(tl.int64))


@triton.jit
def limit_of(top_p, total):
    """Mass that those before a kept token stay below: before * 2^16 < rint(top_p * 2^16) * total."""
    share = ((top_p * 65536.0 + TWO_23) - TWO_23).to(tl.int64)
    # in two parts: from 2^19 equal tokens on, share * total does not fit int64
    return share * (total >> 16) + ((share * (total & 65535) + 65535) >> 16)


@triton.jit
def narrow_mass(
    x_ptr, stride, temperature_ptr, p_ptr, state_ptr, list_ptr,
    LENGTH: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, FIELDS: tl.constexpr,
):  # fmt: skip
    """One program a row: where the last place inside top-p is, unless a whole list of top-k has told already."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    state_ptr += row * FIELDS
    temperature, top_p = tl.load(temperature_ptr + row), tl.load(p_ptr + row)
    is_whole = tl.load(state_ptr + WHOLE) != 0
    tl.store(state_ptr + COUNT, 0)
    if (temperature > 0) & (top_p < 1.0) & (is_whole == 0):
        factor = recip(temperature)
        key = tl.load(state_ptr + TOP)
        top = value_of(key.to(tl.int32))
        lowest = top - NO_MASS
        before = tl.load(state_ptr + LAST)
        first = tl.maximum(before, key_of(lowest).to(tl.int64) << BITS)
        total, count = mass_from(x_ptr, factor, top, first, LENGTH, BITS, ROWS, COLS)
        need = limit_of(top_p, total)
        low, high, above, count, is_between = narrow(
            x_ptr, factor, top, lowest, first, (key << BITS) | ((1 << BITS) - 1), need, count, False,
            True, LENGTH, BITS, ROWS, COLS,
        )  # fmt: skip
        is_between = is_between & (before == LOWEST)
        gather(x_ptr, list_ptr + row * LIST, state_ptr, factor, low, high, is_between, LENGTH, BITS, ROWS, COLS)
        tl.store(state_ptr + NEED, need - above)
