"""paged_attention in the fast tier: what it serves, its tiles, and the launches of its two kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton

from samebits.core.errors import BadInput
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
from samebits.kernels.triton.attention.fast.decode import decode
from samebits.kernels.triton.attention.fast.prefill import prefill
from samebits.kernels.triton.lib.cache_views import cache_views
from samebits.kernels.triton.lib.chaining import chained
from samebits.kernels.triton.lib.devices import ON_AMD, multiprocessors
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import FUSED, INTERPRETED, implements
from samebits.kernels.triton.lib.scratch import counters

LARGEST_HEAD = 256
FEW_ROWS = 64  # a sequence of more rows (queries x group) goes to the prefill kernel where that one is launched
FEW_SEQUENCES, MANY_SEQUENCES = 8, 32


@dataclass(frozen=True)
class Shape:
    """A kernel's tile and how it is launched.

    programs   of the decode kernel on one multiprocessor
    share      units that one of them takes at least
    registers  a thread's at most, so that all programs fit (NVIDIA only)
    parts      of a cut item that are loaded at once, at most
    """

    block_m: int
    block_n: int
    warps: int
    stages: int
    programs: int = 1
    share: int = 1
    registers: int | None = None
    parts: int = 16


@cache
def decode_shape(block_d: int, group: int, num_sequences: int) -> Shape:
    """Few sequences are read by one program a multiprocessor, many by four small ones."""
    block_m = max(16, min(64, triton.next_power_of_2(group)))
    if ON_AMD:
        return Shape(block_m, 32, 4, 2, 2, 8)
    if block_d > 128 or block_m > 16:
        return Shape(block_m, max(32, min(128, 8192 // block_d)), 4, 5, 2)
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


def served(call: OpCall) -> str | None:
    """16-bit K and V of one format and head size, a positive scale; no alibi, no custom mask, no MLA."""
    inputs, attrs = call.inputs, call.attrs
    k = inputs["k_cache"]
    v = inputs.get("v_cache", k)
    if k.format not in ("f16", "bf16") or v.format != k.format:
        return f"caches in {k.format} and {v.format}; f16 or bf16, both the same, are read"
    if len(k.shape) == 3:
        return "an MLA cache"
    size = inputs["q"].shape[-1]
    if not isinstance(size, int) or size % 16 or size > LARGEST_HEAD:
        return f"head size {size}; multiples of 16 to {LARGEST_HEAD} are served"
    if attrs["v_dim"] not in (0, size):
        return f"v_dim {attrs['v_dim']} beside head size {size}"
    return refused(call)


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
    num_tokens, num_heads, head_size = q.shape
    num_sequences = kv_last_page_len.shape[0]
    out, lse = results_for(q, head_size)
    result = (out, lse) if return_lse else out
    if out.numel() == 0:
        return result
    k, v = (view.data for view in cache_views(k_cache, v_cache, layout))
    check_room(kv_indices, num_sequences, k.shape[0])
    if k.stride() != v.stride():
        raise BadInput(OP, "v_cache", f"strides {v.stride()}", f"those of k_cache: {k.stride()}")
    q = q if q.stride(2) == 1 else q.contiguous()
    group = num_heads // k.shape[2]
    block_d = max(triton.next_power_of_2(head_size), 16)
    constants = batch_constants(
        num_sequences,
        num_heads,
        k.shape[1],
        kv_indices=kv_indices,
        causal=causal,
        window_left=window_left,
        logits_soft_cap=logits_soft_cap,
        sinks=sinks,
        return_lse=return_lse,
    )
    shared = _Launch(
        q=q,
        others=(k, v, qo_indptr, kv_last_page_len, kv_indptr, kv_indices, sinks, out, lse),
        sizes=(num_sequences, num_tokens, 0 if kv_indices is None else kv_indices.shape[0], k.shape[0]),
        strides=(q.stride(0), q.stride(1), *k.stride()[:3]),
        logits=logit_numbers(head_size, sm_scale, logits_soft_cap, window_left),
        constants={"D": head_size, "BLOCK_D": block_d, "GROUP": group, "EMULATE": INTERPRETED, **constants},
    )
    many = num_tokens > num_sequences and num_tokens * group > FEW_ROWS
    _launch_decode(shared, FEW_ROWS if many else 1 << 30, decode_shape(block_d, group, num_sequences))
    if many:
        _launch_prefill(shared, prefill_shape(block_d))
    return result


@dataclass(frozen=True)
class _Launch:
    """The arguments that both kernels take, in their order."""

    q: torch.Tensor
    others: tuple[torch.Tensor | None, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    logits: tuple[float, ...]
    constants: dict[str, Any]

    @property
    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        return (self.q, *self.others)


def _how(shape: Shape, constants: dict[str, Any]) -> dict[str, Any]:
    """The constants of a tile and the launch options."""
    # reading through a table takes twice the stages: the pages first, then the rows
    stages = shape.stages if constants["HAS_TABLE"] else shape.stages // 2 + 1
    how = {"BLOCK_M": shape.block_m, "BLOCK_N": shape.block_n, "STAGES": stages, "num_warps": shape.warps}
    return {**constants, **how, **({"maxnreg": shape.registers} if shape.registers else {})}


def _launch_decode(shared: _Launch, most_rows: int, shape: Shape) -> None:
    device = shared.q.device
    grid = shape.programs * multiprocessors(device)
    merged = min(shape.block_m, triton.next_power_of_2(shared.constants["GROUP"]))
    slots = 2 * grid * shape.block_m
    part_o = torch.empty((slots, shared.constants["BLOCK_D"]), dtype=torch.float32, device=device)
    part_ml = torch.empty((slots, 2), dtype=torch.float32, device=device)
    decode[(grid,)](
        *shared.tensors, part_o, part_ml, counters(device), fault_word(device), BAD_QUERY.value, BAD_PAGE,
        *shared.sizes, *shared.strides, *shared.logits, most_rows, shape.share, **_how(shape, shared.constants),
        MERGED=merged, PARTS=min(shape.parts, max(2, 8192 // (merged * shared.constants["BLOCK_D"]))),
        **chained(device), **FUSED,
    )  # fmt: skip


def _launch_prefill(shared: _Launch, shape: Shape) -> None:
    """As many programs as there can be tiles: one for every full tile, and one for the rest of a long sequence."""
    num_rows = shared.q.shape[0] * shared.constants["GROUP"]
    num_tiles = num_rows // shape.block_m + min(shared.sizes[0], num_rows // (FEW_ROWS + 1))
    grid = num_tiles * (shared.constants["HEADS"] // shared.constants["GROUP"])
    prefill[(grid,)](
        *shared.tensors, fault_word(shared.q.device), BAD_QUERY.value, *shared.sizes, *shared.strides, *shared.logits,
        FEW_ROWS, **_how(shape, shared.constants), **FUSED,
    )  # fmt: skip
