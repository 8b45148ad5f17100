"""One-query attention over 16-bit caches: K pass, V pass, join. Exact maximum first, K and V read once.

Programs are a fixed number that share the cuts of all sequences with one query; sequences with more are left alone.
Scratch is bounded by the page table: every sequence's positions have their own range in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from samebits.kernels.triton.attention_args import Call
from samebits.kernels.triton.attention_decode_k import decode_scores
from samebits.kernels.triton.attention_decode_v import decode_join, decode_values
from samebits.kernels.triton.attention_general import power_of_two, seq_block
from samebits.kernels.triton.chaining import chained
from samebits.kernels.triton.faults import fault_word
from samebits.kernels.triton.registry import INTERPRETED, UNFUSED

CUT, RUN = 256, 16
MAX_HEADS = 8
MAX_HEAD_SIZE = 256
SHUFFLE = not INTERPRETED and torch.version.hip is None


@dataclass(frozen=True)
class Plan:
    """Sizes of one launch."""

    step: int = 16  # positions at a time in the K pass
    k_warps: int = 2
    k_programs: int = 132 * 6
    wide: int = 4  # runs side by side in the V pass
    v_warps: int = 2
    v_programs: int = 132 * 8
    unroll: int = 16


LARGE = Plan()
SMALL = Plan(step=16, k_warps=4, wide=16, v_warps=4)
SMALL_ITEMS = 132 * 8


def plan_of(items: int) -> Plan:
    """Few cuts: as many threads to a cut as it can use. Both give the same bits."""
    return SMALL if items <= SMALL_ITEMS else LARGE


def decodes(call: Call) -> bool:
    """Whether these kernels take the call's one-query sequences."""
    formats = {"f16", "bf16"}
    runs_in_pages = call.table["page_size"] % RUN == 0 or not call.table["TABLE"]
    sizes = max(call.head_size, call.v_dim) <= MAX_HEAD_SIZE and min(call.head_size, call.v_dim) >= 16
    return {call.k.format, call.v.format} <= formats and runs_in_pages and sizes and not call.numbers["MASK"]


def heads_of_part(group: int) -> int:
    """The largest divisor of a group that one program's registers hold."""
    return max(n for n in range(1, MAX_HEADS + 1) if group % n == 0)


def launch_decode(call: Call, plan: Plan | None = None) -> None:
    """All sequences with one query, and the rows beyond the last sequence."""
    heads = heads_of_part(call.group)
    parts = call.q.shape[1] // heads
    slots = call.num_cells // CUT + call.num_sequences + 1
    items = slots * parts
    plan = plan or plan_of(items)
    device = call.q.device

    def scratch(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    s, largest = scratch(parts, call.num_cells, heads), scratch(parts, slots, heads)
    o, total = scratch(parts, slots, heads, call.v_dim), scratch(parts, slots, heads)
    window = {name: call.numbers[name] for name in ("window", "WINDOW")}
    common: dict[str, Any] = {
        **{name: call.table[name] for name in ("qo_ptr", "last_ptr", "indptr_ptr", "num_seqs", "num_entries")},
        **{name: call.table[name] for name in ("page_size", "TABLE")},
        **window,
        "fault_ptr": fault_word(device),
        "num_tokens": call.num_tokens,
        "num_slots": slots,
        "HEADS": heads,
        "NUM_PARTS": parts,
        "SEQ_BLOCK": seq_block(call.num_sequences),
        **chained(device),
        **UNFUSED,
    }
    pages = {name: call.table[name] for name in ("indices_ptr", "num_pages")} | {"num_cells": call.num_cells}
    v_sizes = {"V_DIM": call.v_dim, "V_PAD": power_of_two(call.v_dim), "H_PAD": power_of_two(heads)}
    sinks = {"sinks_ptr": call.extras["sinks"], "SINKS": call.numbers["SINKS"]}
    decode_scores[(min(items, plan.k_programs),)](
        call.q,
        call.k.data,
        s,
        largest,
        slopes_ptr=call.extras["alibi_slopes"],
        q_row=call.q.stride(0),
        q_head=call.q.stride(1),
        **dict(zip(("k_page", "k_slot", "k_head"), call.k.strides, strict=True)),
        **{name: call.numbers[name] for name in ("scale", "cap", "inv_cap", "CAP", "SLOPES")},
        **pages,
        **common,
        FORMAT=call.k.format,
        GROUP=call.group,
        D=call.head_size,
        D_PAD=max(64, power_of_two(call.head_size)),
        STEP=plan.step,
        SHUFFLE=SHUFFLE,
        num_warps=plan.k_warps,
    )
    decode_values[(min(items, plan.v_programs),)](
        call.v.data,
        s,
        largest,
        o,
        total,
        **dict(zip(("v_page", "v_slot", "v_head"), call.v.strides, strict=True)),
        **pages,
        **sinks,
        **common,
        **v_sizes,
        FORMAT=call.v.format,
        GROUP=call.group,
        WIDE=plan.wide,
        UNROLL=plan.unroll,
        num_warps=plan.v_warps,
    )
    decode_join[(call.num_tokens, parts)](
        largest,
        o,
        total,
        call.out,
        call.lse,
        **sinks,
        **common,
        **v_sizes,
        CAUSAL=call.numbers["CAUSAL"],
        LSE=call.lse is not None,
        num_warps=1,
    )
