"""paged_attention on latent caches in the fast tier: what it serves, and the launch of latent.py."""

from __future__ import annotations

from typing import Any

import torch

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.attention.call import BAD_QUERY, OP
from samebits.kernels.triton.attention.fast.call import (
    BAD_PAGE,
    batch_constants,
    check_room,
    logit_numbers,
    refused,
    results_for,
)
from samebits.kernels.triton.attention.fast.latent import latent
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import ON_AMD, multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import FUSED, INTERPRETED, implements
from samebits.kernels.triton.lib.scratch import counters
from samebits.kernels.triton.lib.sizes import power_of_two

VALUES, MORE = (16, 32, 64, 128, 256, 512), (16, 32, 64, 128)  # elements of a value, and those of a key beyond it
MERGED, PARTS = 4, 8  # rows and parts of a cut item that are added at once: 16,384 numbers of 512 columns
LEAST_SHARE = 8  # blocks of a program, where there are so many: what more programs save, more parts cost


def served(call: OpCall) -> str | None:
    """A latent cache of 16-bit rows whose two parts are powers of two; no alibi, no custom mask, a positive scale."""
    k = call.inputs["k_cache"]
    if ON_AMD and not INTERPRETED:
        return "an AMD GPU, whose shared memory does not hold 64 queries"
    if len(k.shape) != 3:
        return "a cache with heads"
    if k.format not in ("f16", "bf16"):
        return f"a cache in {k.format}; f16 or bf16 are read"
    size, v_dim = call.inputs["q"].shape[-1], call.attrs["v_dim"]
    if not isinstance(size, int) or v_dim not in VALUES or size - v_dim not in MORE:
        return (
            f"keys of {size} and values of {v_dim}; powers of two to {VALUES[-1]}, and to {MORE[-1]} more, are served"
        )
    return refused(call)


@implements(OP, tier=Tier.FAST, when=served)
def paged_attention_latent(
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
    num_tokens, num_heads, head_size = q.shape
    num_sequences, num_pages = kv_last_page_len.shape[0], k_cache.shape[0]
    out, lse = results_for(q, v_dim)
    result = (out, lse) if return_lse else out
    if out.numel() == 0:
        return result
    check_room(kv_indices, num_sequences, num_pages)
    q = q if q.stride(2) == 1 else q.contiguous()
    tensors = (q, k_cache, qo_indptr, kv_last_page_len, kv_indptr, kv_indices, sinks, out, lse)
    sizes = (num_sequences, num_tokens, 0 if kv_indices is None else kv_indices.shape[0], num_pages)
    strides = (q.stride(0), q.stride(1), k_cache.stride(0), k_cache.stride(1))
    logits = logit_numbers(head_size, sm_scale, logits_soft_cap, window_left)
    constants = batch_constants(
        num_sequences,
        num_heads,
        k_cache.shape[1],
        kv_indices=kv_indices,
        causal=causal,
        window_left=window_left,
        logits_soft_cap=logits_soft_cap,
        sinks=sinks,
        return_lse=return_lse,
    )
    _launch(q.device, tensors, sizes, strides, logits, {"V_DIM": v_dim, "R": head_size - v_dim, **constants})
    return result


def _launch(
    device: torch.device,
    tensors: tuple[torch.Tensor | None, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    logits: tuple[float, ...],
    constants: dict[str, Any],
) -> None:
    """One program per multiprocessor: the rows' sums fill its registers, queries and blocks its shared memory."""
    block_m = max(16, min(64, power_of_two(constants["HEADS"])))
    grid = multiprocessors(device)
    slots = 2 * grid * block_m
    latent[(grid,)](
        *tensors,
        torch.empty((slots, constants["V_DIM"]), dtype=torch.float32, device=device),
        torch.empty((slots, 2), dtype=torch.float32, device=device),
        counters(device),
        fault_word(device),
        BAD_QUERY.value,
        BAD_PAGE,
        *sizes,
        *strides,
        *logits,
        **constants,
        BLOCK_M=block_m,
        BLOCK_N=64,
        STAGES=3 if constants["HAS_TABLE"] and block_m <= 32 else 2,  # what shared memory holds beside the queries
        LEAST_SHARE=LEAST_SHARE,
        MERGED=min(MERGED, block_m),
        PARTS=PARTS,
        EMULATE=INTERPRETED,
        num_warps=8,
        **chained(device),
        **FUSED,
    )
