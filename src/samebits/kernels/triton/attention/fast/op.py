"""paged_attention in the fast tier: its tiles, and the launches of its two kernels. arguments.py: what is served."""

from __future__ import annotations

from functools import cache

import torch

from samebits.core.tiers import Tier
from samebits.kernels.cuda.attention import few as cuda_few
from samebits.kernels.cuda.attention import prefill as cuda_prefill
from samebits.kernels.triton.attention.call import BAD_QUERY, OP
from samebits.kernels.triton.attention.fast.arguments import FEW_ROWS, Arguments, Shape, arguments_of, served
from samebits.kernels.triton.attention.fast.call import BAD_PAGE
from samebits.kernels.triton.attention.fast.decode import decode
from samebits.kernels.triton.attention.fast.prefill import prefill
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import ON_AMD, multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import FUSED, implements
from samebits.kernels.triton.lib.scratch import counters
from samebits.kernels.triton.lib.sizes import power_of_two

FEW_SEQUENCES, MANY_SEQUENCES = 8, 32


@cache
def decode_shape(block_d: int, group: int, num_sequences: int) -> Shape:
    """One sequence is read by two small programs a multiprocessor, few by one, many by four small ones."""
    block_m = max(16, min(64, power_of_two(group)))
    if ON_AMD:
        return Shape(block_m, 32, 4, 2, 2, 8)
    if block_d > 128 or block_m > 16:
        return Shape(block_m, max(32, min(128, 8192 // block_d)), 4, 5, 2)
    if num_sequences == 1:
        return Shape(block_m, 32, 2, 5, 2)
    if num_sequences <= FEW_SEQUENCES:
        return Shape(block_m, 64, 4, 5)
    if num_sequences < MANY_SEQUENCES:
        return Shape(block_m, 128, 4, 5)
    return Shape(block_m, 32, 2, 5, 4)


@cache
def prefill_shape(block_d: int) -> Shape:
    """Two programs on a multiprocessor hide each other's softmax; heads beyond 128 leave room for one."""
    if ON_AMD:
        return Shape(64, 32, 4, 2)
    return Shape(128, 64, 8, 3, registers=128) if block_d <= 128 else Shape(128, 32, 8, 5)


@implements(OP, tier=Tier.FAST, when=served)
def paged_attention_fast(
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
    if call.num_rows == 0:
        return call.result
    block_d = call.constants["BLOCK_D"]
    most_rows = FEW_ROWS if call.has_many else 1 << 30
    _launch_decode(call, most_rows, decode_shape(block_d, call.constants["GROUP"], call.num_sequences))
    if call.has_many:
        _launch_prefill(call, prefill_shape(block_d))
    return call.result


def _launch_decode(call: Arguments, most_rows: int, shape: Shape) -> None:
    if cuda_few.serves(call):
        cuda_few.attend(call, most_rows, BAD_QUERY.value, BAD_PAGE)
        return
    device = call.q.device
    grid = shape.programs * multiprocessors(device)
    merged = min(shape.block_m, power_of_two(call.constants["GROUP"]))
    slots = 2 * grid * shape.block_m
    part_o = torch.empty((slots, call.constants["BLOCK_D"]), dtype=torch.float32, device=device)
    part_ml = torch.empty((slots, 2), dtype=torch.float32, device=device)
    decode[(grid,)](
        *call.tensors, part_o, part_ml, counters(device), fault_word(device), BAD_QUERY.value, BAD_PAGE,
        *call.sizes, *call.strides, *call.logits, most_rows, shape.share, **call.how(shape),
        MERGED=merged, PARTS=min(shape.parts, max(2, 8192 // (merged * call.constants["BLOCK_D"]))),
        **chained(device), **FUSED,
    )  # fmt: skip


def _launch_prefill(call: Arguments, shape: Shape) -> None:
    if cuda_prefill.serves(call):
        cuda_prefill.attend(call, FEW_ROWS, BAD_QUERY.value)
        return
    prefill[(call.prefill_programs(shape.block_m),)](
        *call.tensors, fault_word(call.q.device), BAD_QUERY.value, *call.sizes, *call.strides, *call.logits,
        FEW_ROWS, **call.how(shape), **FUSED,
    )  # fmt: skip
