"""paged_attention in the tier invariant: what it serves, its tiles, and the launches of its two kernels."""

from __future__ import annotations

from functools import cache

import torch

from samebits.core.tiers import Tier
from samebits.kernels.triton.attention.call import BAD_QUERY, OP
from samebits.kernels.triton.attention.fast.arguments import FEW_ROWS, Arguments, Shape, arguments_of, served
from samebits.kernels.triton.attention.fast.call import BAD_PAGE
from samebits.kernels.triton.attention.invariant.decode import decode
from samebits.kernels.triton.attention.invariant.join import join_splits
from samebits.kernels.triton.attention.invariant.prefill import prefill
from samebits.kernels.triton.attention.invariant.tile import SPLIT
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two

JOIN_CONSTANTS = (
    *("D", "BLOCK_D", "BLOCK_M", "BATCH", "HEADS", "GROUP", "PAGE"),
    *("HAS_TABLE", "WINDOW", "HAS_SINKS", "HAS_LSE"),
)


def block_of(block_d: int) -> int:
    """Positions of a block: a part of the result's definition, so no launch may choose another."""
    return 64 if block_d <= 128 else 32


@cache
def decode_shape(block_d: int, group: int, num_sequences: int) -> Shape:
    """One or two sequences leave half of a multiprocessor's registers to the launches before and after."""
    block_m = max(16, min(64, power_of_two(group)))
    return Shape(block_m, block_of(block_d), 4, 5, 1 if num_sequences <= 2 else 2)


@cache
def prefill_shape(block_d: int) -> Shape:
    """A split and the total beside it leave registers for one program on a multiprocessor.

    From 64 rows on a tile is multiplied by other instructions than a decode step's: `invariance_doubt` says where.
    """
    return Shape(128, block_of(block_d), 8, 5)


@implements(OP, tier=Tier.INVARIANT, when=served)
def paged_attention_invariant(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    qo_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    v_cache: torch.Tensor | None = None,
    kv_indptr: torch.Tensor | None = None,
    kv_indices: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    custom_mask: torch.Tensor | None = None,
    *,
    layout: str = "NHD",
    causal: bool = True,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float = 0.0,
    v_dim: int = 0,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sequences with few queries in one persistent launch, those with many in a second one where there can be any."""
    call = arguments_of(
        q,
        k_cache,
        qo_indptr,
        kv_last_page_len,
        v_cache=v_cache,
        kv_indptr=kv_indptr,
        kv_indices=kv_indices,
        sinks=sinks,
        layout=layout,
        causal=causal,
        sm_scale=sm_scale,
        window_left=window_left,
        logits_soft_cap=logits_soft_cap,
        return_lse=return_lse,
    )
    if call.num_rows:
        _launch_decode(call, decode_shape(call.constants["BLOCK_D"], call.constants["GROUP"], call.num_sequences))
        if call.has_many:
            _launch_prefill(call, prefill_shape(call.constants["BLOCK_D"]))
    return call.result


def _launch_decode(call: Arguments, shape: Shape) -> None:
    """Scratch has room for all splits of the sequences that the table can hold, with as many tokens as they have."""
    device, constants, (num_sequences, num_tokens, num_indices, _) = call.q.device, call.constants, call.sizes
    num_splits = call.num_positions // SPLIT.value + num_sequences
    tokens = min(cdiv(num_tokens, num_sequences), cdiv(FEW_ROWS, constants["GROUP"]))
    room = num_splits * constants["HEADS"] * tokens
    part_o = torch.empty((room, constants["BLOCK_D"]), dtype=torch.float32, device=device)
    part_ml = torch.empty((room, 2), dtype=torch.float32, device=device)
    most_rows = FEW_ROWS if call.has_many else 1 << 30
    how = call.how(shape)
    decode[(shape.programs * multiprocessors(device),)](
        *call.tensors, part_o, part_ml, fault_word(device), BAD_QUERY.value, BAD_PAGE,
        *call.sizes, *call.strides, *call.logits, most_rows, room, **how,
        **chained(device), **UNFUSED,
    )  # fmt: skip
    qo_indptr, kv_last, kv_indptr, _, sinks, out, lse = call.others
    by_token = not call.has_many
    join_splits[((num_tokens if by_token else num_sequences) * constants["HEADS"],)](
        part_o, part_ml, qo_indptr, kv_last, kv_indptr, sinks, out, lse, num_sequences, num_tokens, num_indices,
        call.logits[2], most_rows, room, **{name: how[name] for name in JOIN_CONSTANTS}, BY_TOKEN=by_token,
        num_warps=1, **chained(device), **UNFUSED,
    )  # fmt: skip


def _launch_prefill(call: Arguments, shape: Shape) -> None:
    prefill[(call.prefill_programs(shape.block_m),)](
        *call.tensors, fault_word(call.q.device), BAD_QUERY.value, *call.sizes, *call.strides, *call.logits,
        FEW_ROWS, **call.how(shape), **UNFUSED,
    )  # fmt: skip
