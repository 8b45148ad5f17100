"""sample: top-k and top-p find the last place kept of a row, then all blocks of all rows draw at once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.errors import BadInput
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.elementary import exp, recip
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.select.finish import finish_count, finish_mass
from samebits.kernels.triton.select.keys import LOWEST, index_of, load_row, place_of, value_at, value_of
from samebits.kernels.triton.select.passes import LAST, STATE_FIELDS, TOP, narrow_count, narrow_mass
from samebits.kernels.triton.select.sample_checks import (
    NO_TOKEN,
    NOT_FINITE,
    NOT_FINITE_WORDS,
    OVERFLOW,
    check_logits,
    check_row,
    check_shape,
    has_finite,
)
from samebits.kernels.triton.select.threefry import gumbel
from samebits.kernels.triton.select.top_k import FINISH_WARPS, index_bits, narrow_tile, new_state, rows_of

BLOCK = 2048
BLOCK_WARPS = 4
PENALTIES = ("counts", "repetition", "presence", "frequency")


@triton.jit
def shape_rows(
    x_ptr, x_stride, position_ptr, bias_ptr, counts_ptr, repetition_ptr, presence_ptr, frequency_ptr, y_ptr,
    finite_ptr, fault_ptr, length, HAS_BIAS: tl.constexpr, HAS_COUNTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of a row with its bias and penalties, float32, and whether its logits have a finite one."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    inside = at < length
    x = load_row(x_ptr + row * x_stride, at, length, 1.0)
    bias = tl.zeros([BLOCK], tl.float32)
    counts = tl.zeros([BLOCK], tl.int32)
    if HAS_BIAS:
        bias = tl.load(bias_ptr + row * length + at, mask=inside, other=0.0)
    if HAS_COUNTS:
        counts = tl.load(counts_ptr + row * length + at, mask=inside, other=0)
    if tl.load(position_ptr + row) != -1:
        check_logits(fault_ptr, x)
        check_shape(fault_ptr, bias, counts)
    tl.store(finite_ptr + row * tl.num_programs(1) + part, has_finite(x))
    if HAS_BIAS:
        x = settle(x + bias)
    if HAS_COUNTS:
        r = tl.load(repetition_ptr + row)
        repeated = tl.where(x > 0.0, x * recip(r), x * r)
        lowered = repeated - counts.to(tl.float32) * tl.load(frequency_ptr + row)
        x = settle(tl.where(counts > 0, lowered - tl.load(presence_ptr + row), x))
    tl.store(y_ptr + row * length + at, x, mask=inside)


@triton.jit
def draw_block(
    x_ptr, stride, seed_ptr, sample_ptr, position_ptr, temperature_ptr, min_p_ptr, state_ptr, best_ptr, finite_ptr,
    fault_ptr, length, CHECKED: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr, FIELDS: tl.constexpr,
):  # fmt: skip
    """The first place of a block of a row, after filters and noise, and whether the block has a finite logit."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(position_ptr + row)
    best = tl.full((), LOWEST, tl.int64)
    is_finite = tl.full((), 1, tl.int32)
    if position != -1:
        at = part * BLOCK + tl.arange(0, BLOCK)
        temperature = tl.load(temperature_ptr + row)
        is_hot = temperature > 0
        x = load_row(x_ptr + row * stride, at, length, 1.0)
        if not CHECKED:
            check_logits(fault_ptr, x)
        is_finite = has_finite(x)
        x = settle(x * tl.where(is_hot, recip(tl.where(is_hot, temperature, 1.0)), 1.0))
        if is_hot:
            is_kept = (place_of(x, at, length, BITS) >= tl.load(state_ptr + row * FIELDS + LAST)) & (at < length)
            if tl.max(is_kept.to(tl.int32), axis=0) != 0:
                min_p = tl.load(min_p_ptr + row)
                if min_p > 0:
                    top = value_of(tl.load(state_ptr + row * FIELDS + TOP).to(tl.int32))
                    is_kept = is_kept & (exp(x - top) >= min_p)
                low, high = tl.load(seed_ptr + row * 2), tl.load(seed_ptr + row * 2 + 1)
                noise = gumbel(low, high, tl.load(sample_ptr + row), position, at)
                y = tl.where(is_kept, x, float("-inf")) + noise
                best = tl.max(place_of(y, at, length, BITS), axis=0)
        else:
            best = tl.max(place_of(x, at, length, BITS), axis=0)
    tl.store(best_ptr + row * tl.num_programs(1) + part, best)
    tl.store(finite_ptr + row * tl.num_programs(1) + part, is_finite)


@triton.jit
def pick_token(
    best_ptr, raw_finite_ptr, finite_ptr, token_ptr, sample_ptr, position_ptr, temperature_ptr, k_ptr, p_ptr, min_p_ptr,
    repetition_ptr, presence_ptr, frequency_ptr, fault_ptr, num_parts,
    HAS_BIAS: tl.constexpr, HAS_COUNTS: tl.constexpr, BITS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The token of a row; refuses parameters out of range and a row without a finite logit. Padding draws token 0."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    inside = part < num_parts
    best = tl.max(tl.load(best_ptr + row * num_parts + part, mask=inside, other=LOWEST), axis=0)
    is_padding = tl.load(position_ptr + row) == -1
    tl.store(token_ptr + row, tl.where(is_padding, 0, index_of(best, BITS)))
    if not is_padding:
        # the largest logit passes every filter, and noise makes no finite value infinite
        value = value_at(best, BITS)
        is_overflow = (best == LOWEST) | (value == float("inf")) | (value == float("-inf"))
        tl.store(fault_ptr, OVERFLOW, mask=is_overflow)
        if HAS_BIAS:
            has_token = tl.max(tl.load(finite_ptr + row * num_parts + part, mask=inside, other=0), axis=0)
            tl.store(fault_ptr, NO_TOKEN, mask=has_token == 0)
        is_finite = tl.max(tl.load(raw_finite_ptr + row * num_parts + part, mask=inside, other=0), axis=0)
        tl.store(fault_ptr, NOT_FINITE, mask=is_finite == 0)
        check_row(
            fault_ptr, row, sample_ptr, position_ptr, temperature_ptr, k_ptr, p_ptr, min_p_ptr,
            repetition_ptr, presence_ptr, frequency_ptr, HAS_COUNTS,
        )  # fmt: skip


def _filter(
    x: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    """The state of every row: its last place kept by top-k and top-p, its largest key."""
    state, lists = new_state(x)
    grid, bits = (len(x),), index_bits(x.shape[1])
    sizes = {"LENGTH": x.shape[1], "BITS": bits, "FIELDS": STATE_FIELDS, **narrow_tile(x), **UNFUSED}
    finish = {"BITS": bits, "FIELDS": STATE_FIELDS, "num_warps": FINISH_WARPS, **UNFUSED}
    narrow_count[grid](
        x, x.stride(0), temperature, top_k, top_p, min_p, state, lists, fault_word(x.device, of_sampling=True), 0,
        NAN_CODE=0, PER_ROW=True, **sizes,
    )  # fmt: skip
    finish_count[grid](top_p, state, lists, PER_ROW=True, **finish)
    narrow_mass[grid](x, x.stride(0), temperature, top_p, state, lists, **sizes)
    finish_mass[grid](state, lists, **finish)
    return state


def _shaped(
    x: torch.Tensor,
    position: torch.Tensor,
    finite: torch.Tensor,
    bias: torch.Tensor | None,
    counts: torch.Tensor | None,
    *penalties: torch.Tensor | None,
) -> torch.Tensor:
    """The rows with bias and penalties (repetition, presence, frequency), float32; fills `finite` of the blocks."""
    y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    bias, counts = (None if t is None else t.contiguous() for t in (bias, counts))
    shape_rows[tuple(finite.shape)](
        x, x.stride(0), position, bias, counts, *penalties, y, finite, fault_word(x.device, of_sampling=True),
        x.shape[1],
        HAS_BIAS=bias is not None, HAS_COUNTS=counts is not None, BLOCK=BLOCK, num_warps=BLOCK_WARPS, **UNFUSED,
    )  # fmt: skip
    return y


@implements("sample", tier=Tier.PORTABLE)
def sample(
    logits: torch.Tensor,
    seed: torch.Tensor,
    sample_index: torch.Tensor,
    position: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    bias: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    repetition: torch.Tensor | None = None,
    presence: torch.Tensor | None = None,
    frequency: torch.Tensor | None = None,
) -> torch.Tensor:
    """Bias and penalties, the filters' last places, the draw of every block, the best of a row."""
    given = [n for n, t in zip(PENALTIES, (counts, repetition, presence, frequency), strict=True) if t is not None]
    if given and len(given) != len(PENALTIES):
        raise BadInput("sample", "penalties", ", ".join(given), f"all of {', '.join(PENALTIES)}")
    if not logits.shape[1]:
        raise BadInput("sample", "logits", *NOT_FINITE_WORDS)
    tokens = torch.empty(len(logits), dtype=torch.int32, device=logits.device)
    if not len(logits):
        return tokens
    x, fault_ptr = rows_of(logits), fault_word(logits.device, of_sampling=True)
    is_shaped = bias is not None or counts is not None
    parts, bits = cdiv(x.shape[1], BLOCK), index_bits(x.shape[1])
    best = torch.empty((len(x), parts), dtype=torch.int64, device=x.device)
    finite = torch.empty((len(x), parts), dtype=torch.int32, device=x.device)
    raw_finite = torch.empty(finite.shape, dtype=torch.int32, device=x.device) if is_shaped else finite
    if is_shaped:
        x = _shaped(x, position, raw_finite, bias, counts, repetition, presence, frequency)
    state = _filter(x, temperature, top_k, top_p, min_p)
    draw_block[(len(x), parts)](
        x, x.stride(0), seed.contiguous(), sample_index, position, temperature, min_p, state, best, finite, fault_ptr,
        x.shape[1], CHECKED=is_shaped, BITS=bits, BLOCK=BLOCK, FIELDS=STATE_FIELDS, num_warps=BLOCK_WARPS, **UNFUSED,
    )  # fmt: skip
    pick_token[(len(x),)](
        best, raw_finite, finite, tokens, sample_index, position, temperature, top_k, top_p, min_p,
        repetition, presence, frequency, fault_ptr, parts, HAS_BIAS=bias is not None, HAS_COUNTS=counts is not None,
        BITS=bits, PARTS=power_of_two(parts), num_warps=1, **UNFUSED,
    )  # fmt: skip
    return tokens
