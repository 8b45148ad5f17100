"""The second half of a selection: the list of a narrowed interval in registers, and the last place kept found in it."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.select.keys import LOWEST, index_of, mass_of, value_at, value_of
from samebits.kernels.triton.select.narrow import LIST
from samebits.kernels.triton.select.passes import COUNT, HIGH, LAST, LOW, NEED, TOP, WHOLE, limit_of

SHORT = tl.constexpr(1024)  # a list of so few places is held in fewer registers


@triton.jit
def _load_list(list_ptr, count, SIZE: tl.constexpr):
    slot = tl.arange(0, SIZE)
    return tl.load(list_ptr + slot, mask=slot < count, other=LOWEST)


@triton.jit
def _last_of(place, weight, low, high, need):
    """The lowest place in low .. high above which the weight is less than `need`."""
    while low < high:
        middle = low + ((high - low) >> 1)
        is_enough = tl.sum(tl.where(place > middle, weight, 0), axis=0) >= need
        low = tl.where(is_enough, middle + 1, low)
        high = tl.where(is_enough, high, middle)
    return low


@triton.jit
def _masses(place, state_ptr, first, BITS: tl.constexpr):
    """int64 masses of the places from `first` on, 0 for others."""
    mass = mass_of(value_at(place, BITS), value_of(tl.load(state_ptr + TOP).to(tl.int32)))
    return tl.where(place >= first, mass, 0).to(tl.int64)


@triton.jit
def _last_by_count(state_ptr, list_ptr, count, top_p, BITS: tl.constexpr, SIZE: tl.constexpr):
    """The k-th place; in a whole list the last one inside top-p, which 1 switches off."""
    place = _load_list(list_ptr, count, SIZE)
    low, high, need = tl.load(state_ptr + LOW), tl.load(state_ptr + HIGH), tl.load(state_ptr + NEED)
    last = _last_of(place, tl.full([SIZE], 1, tl.int32), low, high, need)
    if (tl.load(state_ptr + WHOLE) != 0) & (top_p < 1.0):
        mass = _masses(place, state_ptr, last, BITS)
        last = _last_of(place, mass, last, high, limit_of(top_p, tl.sum(mass, axis=0)))
    return last


@triton.jit
def finish_count(p_ptr, state_ptr, list_ptr, PER_ROW: tl.constexpr, BITS: tl.constexpr, FIELDS: tl.constexpr):
    """One program a row: the k-th place; where the list is whole also the last one inside a row's top-p."""
    row = tl.program_id(0).to(tl.int64)
    state_ptr += row * FIELDS
    list_ptr += row * LIST
    count = tl.load(state_ptr + COUNT)
    top_p = 1.0
    if PER_ROW:
        top_p = tl.load(p_ptr + row)
    if count > SHORT:
        tl.store(state_ptr + LAST, _last_by_count(state_ptr, list_ptr, count, top_p, BITS, LIST))
    elif count > 0:
        tl.store(state_ptr + LAST, _last_by_count(state_ptr, list_ptr, count, top_p, BITS, SHORT))


@triton.jit
def _last_by_mass(state_ptr, list_ptr, count, BITS: tl.constexpr, SIZE: tl.constexpr):
    place = _load_list(list_ptr, count, SIZE)
    low, high, need = tl.load(state_ptr + LOW), tl.load(state_ptr + HIGH), tl.load(state_ptr + NEED)
    return _last_of(place, _masses(place, state_ptr, low, BITS), low, high, need)


@triton.jit
def finish_mass(state_ptr, list_ptr, BITS: tl.constexpr, FIELDS: tl.constexpr):
    """One program a row: the last place inside top-p."""
    row = tl.program_id(0).to(tl.int64)
    state_ptr += row * FIELDS
    list_ptr += row * LIST
    count = tl.load(state_ptr + COUNT)
    if count > SHORT:
        tl.store(state_ptr + LAST, _last_by_mass(state_ptr, list_ptr, count, BITS, LIST))
    elif count > 0:
        tl.store(state_ptr + LAST, _last_by_mass(state_ptr, list_ptr, count, BITS, SHORT))


@triton.jit
def keep_winners(state_ptr, list_ptr, winners_ptr, k, FIELDS: tl.constexpr):
    """One program a row with a whole list: the k largest places to winners [rows, k], in any order."""
    row = tl.program_id(0).to(tl.int64)
    place = _load_list(list_ptr + row * LIST, tl.load(state_ptr + row * FIELDS + COUNT), LIST)
    is_kept = place >= tl.load(state_ptr + row * FIELDS + LAST)
    slot = tl.cumsum(is_kept.to(tl.int32), axis=0) - 1
    tl.store(winners_ptr + row * k + slot, place, mask=is_kept & (slot < k))


@triton.jit
def sort_winners(x_ptr, stride, winners_ptr, values_ptr, indices_ptr, k, BITS: tl.constexpr, WIDTH: tl.constexpr):
    """One program a row: its winners, largest first, as values and indices."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, WIDTH)
    inside = slot < k
    place = tl.sort(tl.load(winners_ptr + row * k + slot, mask=inside, other=LOWEST), descending=True)
    index = index_of(place, BITS)
    x = tl.load(x_ptr + row * stride + index, mask=inside)
    tl.store(values_ptr + row * k + slot, x, mask=inside)
    tl.store(indices_ptr + row * k + slot, index, mask=inside)
