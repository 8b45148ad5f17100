"""Where a token's keys and values go in a paged cache, and how they are written there in its format."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.elementary import bits, from_bits, recip, round_to_int
from samebits.kernels.triton.lib.faults import fault
from samebits.kernels.triton.lib.int8_blocks import LARGEST_AMAX, SMALLEST_AMAX, block_factors, largest_magnitude
from samebits.kernels.triton.lib.limits import LARGEST_BF16
from samebits.kernels.triton.lib.rows import fault_where, settled_narrow, widen
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.rows.rope import turned

OP = "append_paged_kv_cache"
NO_SEQUENCE = tl.constexpr(fault(OP, "batch_indices", "a sequence that is not there", "0 .. sequences - 1"))
OUTSIDE_SEQUENCE = tl.constexpr(fault(OP, "positions", "a position outside its sequence", "0 .. its length - 1"))
NO_PAGE = tl.constexpr(fault(OP, "kv_indices", "a page that is not there", "0 .. pages - 1"))
NOT_STORABLE = tl.constexpr(
    fault(OP, "key or value", "NaN, Inf or a value beyond the cache's range", "finite values it can hold")
)


@triton.jit
def cell_of(
    token, batch_ptr, positions_ptr, last_ptr, indptr_ptr, indices_ptr, fault_ptr, num_sequences, num_entries,
    num_pages, page_size,
):  # fmt: skip
    """(page int64, slot int64, whether to store) of a token.

    A sequence of -1 is padding, other wrong places are faults.
    """
    sequence, position = tl.load(batch_ptr + token), tl.load(positions_ptr + token)
    known = (sequence >= 0) & (sequence < num_sequences)
    last = tl.load(last_ptr + sequence, mask=known, other=0)
    if indptr_ptr is None:
        start, length = sequence, last
    else:
        start = tl.load(indptr_ptr + sequence, mask=known, other=0)
        count = tl.load(indptr_ptr + sequence + 1, mask=known, other=0) - start
        length = tl.where(count > 0, (count - 1) * page_size + last, 0)
    inside = known & (position >= 0) & (position < length)
    page = sequence
    if indptr_ptr is not None:
        entry = start + position // page_size
        listed = inside & (entry >= 0) & (entry < num_entries)
        page = tl.load(indices_ptr + entry, mask=listed, other=-1)
    found = inside & (page >= 0) & (page < num_pages)
    fault_where(fault_ptr, NO_SEQUENCE, (known == 0) & (sequence != -1))
    fault_where(fault_ptr, OUTSIDE_SEQUENCE, known & (inside == 0))
    fault_where(fault_ptr, NO_PAGE, inside & (found == 0))
    return tl.where(found, page, 0).to(tl.int64), (position % page_size).to(tl.int64), found


@triton.jit
def _store_plain(target_ptrs, e, y, mask, fault_ptr):
    """float32 y, settled and rounded for use in products, see docs/numerics.md, section 2."""
    stored = settled_narrow(y, target_ptrs.dtype.element_ty)
    magnitude = tl.abs(widen(stored))
    if target_ptrs.dtype.element_ty == tl.bfloat16:
        refused = (magnitude <= LARGEST_BF16) == 0
    else:
        refused = (magnitude < float("inf")) == 0
    tl.store(target_ptrs + e, stored, mask=mask)
    fault_where(fault_ptr, NOT_STORABLE, refused & mask)


@triton.jit
def _store_scales(block_ptrs, scale, refused, mask, fault_ptr):
    """Scales of blocks [heads, blocks] as float16 before their codes; one is refused by its values or by itself."""
    d = settled_narrow(scale, tl.float16)
    pattern = d.to(tl.int16, bitcast=True).to(tl.int32)
    tl.store(block_ptrs, (pattern & 255).to(tl.uint8), mask=mask)
    tl.store(block_ptrs + 1, ((pattern >> 8) & 255).to(tl.uint8), mask=mask)
    refused = refused | ((tl.abs(d.to(tl.float32)) < float("inf")) == 0)
    fault_where(fault_ptr, NOT_STORABLE, refused & mask)


@triton.jit
def _per_element(x):
    """[heads, blocks] as [heads, blocks, 1], to meet every element of a block."""
    return tl.expand_dims(x, 2)


@triton.jit
def _store_q8_0(head_ptrs, block, y, mask, fault_ptr):
    """y [heads, blocks, 32] as blocks of 34 bytes; head_ptrs [heads, 1], block [1, blocks], mask [heads, blocks]."""
    factor, scale, refused = block_factors(largest_magnitude(y, 2))
    codes = round_to_int(y * _per_element(factor)).to(tl.int8)
    block_ptrs = head_ptrs + block * 34
    within = tl.arange(0, 32)[None, None, :]
    tl.store(
        _per_element(block_ptrs) + 2 + within, codes.to(tl.uint8, bitcast=True), mask=_per_element(mask) & (within >= 0)
    )
    _store_scales(block_ptrs, scale, refused, mask, fault_ptr)


@triton.jit
def _q4_codes(y, factor, alive):
    codes = tl.minimum(round_to_int(y * factor) + 8.0, 15.0)
    return tl.where(alive, codes, 8.0).to(tl.int32)


@triton.jit
def _store_q4_0(head_ptrs, block, low, high, mask, fault_ptr):
    """Elements 0-15 and 16-31 of blocks, each [heads, blocks, 16], as blocks of 18 bytes; the rest as above."""
    amax = from_bits(tl.maximum(bits(largest_magnitude(low, 2)), bits(largest_magnitude(high, 2))))
    # the first element of largest magnitude gives the sign: place and sign in one integer
    within = tl.arange(0, 16)[None, None, :]
    at_low = tl.where(tl.abs(low) == _per_element(amax), within * 2 + (bits(low) < 0).to(tl.int32), 128)
    at_high = tl.where(tl.abs(high) == _per_element(amax), within * 2 + 32 + (bits(high) < 0).to(tl.int32), 128)
    is_negative = tl.min(tl.minimum(at_low, at_high), axis=2) % 2 == 1
    alive = amax >= SMALLEST_AMAX
    steps = 8.0 * recip(tl.where(alive, amax, 1.0))
    factor, living = _per_element(tl.where(is_negative, steps, -steps)), _per_element(alive)
    packed = _q4_codes(low, factor, living) | (_q4_codes(high, factor, living) << 4)
    block_ptrs = head_ptrs + block * 18
    tl.store(_per_element(block_ptrs) + 2 + within, packed.to(tl.uint8), mask=_per_element(mask) & (within >= 0))
    scale = tl.where(alive, tl.where(is_negative, -amax, amax) * -0.125, 0.0)
    _store_scales(block_ptrs, scale, (amax <= LARGEST_AMAX) == 0, mask, fault_ptr)


@triton.jit
def store_heads(
    x_ptr, token, part, H, x_token, x_head, row_ptr, turns, cache_ptr, page, slot, found, page_stride, slot_stride,
    head_stride, fault_ptr, D: tl.constexpr, BLOCKS: tl.constexpr, R: tl.constexpr, INTERLEAVE: tl.constexpr,
    HEADS: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """HEADS heads of a token, turned where R > 0, into its cell; BLOCKS is a head in blocks of 32, a power of two.

    What rope makes is settled before it is encoded; plain formats do that as they store.
    """
    cell = cache_ptr + page * page_stride + slot * slot_stride
    source = x_ptr + token * x_token
    if FORMAT != "q8_0" and FORMAT != "q4_0":
        head = (part * HEADS + tl.arange(0, HEADS)[:, None]).to(tl.int64)
        e = tl.arange(0, BLOCKS * 32)[None, :]
        mask = found & (head < H) & (e < D)
        y = turned(source + head * x_head, e, mask, row_ptr, turns, R, INTERLEAVE)
        _store_plain(cell + head * head_stride, e, y, mask, fault_ptr)
    else:
        head = (part * HEADS + tl.arange(0, HEADS)[:, None]).to(tl.int64)
        block = tl.arange(0, BLOCKS)[None, :]
        mask = found & (head < H) & (block * 32 < D)
        sources, head_ptrs = _per_element(source + head * x_head), cell + head * head_stride
        if FORMAT == "q8_0":
            e = _per_element(block) * 32 + tl.arange(0, 32)[None, None, :]
            y = turned(sources, e, _per_element(mask) & (e < D), row_ptr, turns, R, INTERLEAVE)
            if R > 0:
                y = settle(y)
            _store_q8_0(head_ptrs, block, y, mask, fault_ptr)
        else:
            e = _per_element(block) * 32 + tl.arange(0, 16)[None, None, :]
            low = turned(sources, e, _per_element(mask) & (e < D), row_ptr, turns, R, INTERLEAVE)
            high = turned(sources, e + 16, _per_element(mask) & (e + 16 < D), row_ptr, turns, R, INTERLEAVE)
            if R > 0:
                low, high = settle(low), settle(high)
            _store_q4_0(head_ptrs, block, low, high, mask, fault_ptr)
