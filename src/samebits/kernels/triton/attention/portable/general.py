"""paged_attention for every cache format, mask and head size: one query and a few heads a program, K read twice.

Nothing is stored between the passes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_MASK, BAD_SCORE, BAD_SINKS, BAD_SLOPES, BAD_VALUE, Call
from samebits.kernels.triton.attention.portable.scores import chain16, codes_at, scale_at, scores
from samebits.kernels.triton.attention.sequences import (
    CUT,
    RUN,
    as_operand,
    in_range,
    page_of,
    refuse_counts,
    sequence_of,
    sequences,
    settled_score,
)
from samebits.kernels.triton.lib.elementary import LOG2E, exp, log2, recip, soft_capped
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.rows import fault_where, store_narrow
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import power_of_two

TILE_ELEMENTS = 512  # head elements times heads of a program: bounds its registers


@triton.jit
def mask_start_of(
    seq, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr,
    TABLE: tl.constexpr, SEQ_BLOCK: tl.constexpr,
):  # fmt: skip
    """Where the custom mask of a sequence starts: queries times length of all before it."""
    total = tl.zeros([], tl.int64)
    start = 0
    while start < seq:
        at = start + tl.arange(0, SEQ_BLOCK)
        _, rows, _, length = sequences(
            at, at < seq, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        total += tl.sum(rows.to(tl.int64) * length, axis=0)
        start += SEQ_BLOCK
    return total


@triton.jit
def kept_scores(
    positions, query, sequence, mask, keys, pages, logits, fault_ptr,
    TABLE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SLOPES: tl.constexpr,
    MASK: tl.constexpr, FORMAT: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """(s [R, N], kept [N], page [N], slot [N]) of a query against keys at `positions`; s is -inf where not kept.

    query      where its heads are [R], which of them are real, their slopes, its position
    sequence   first entry of its table, length
    mask       the mask's array, its length, where this query's part starts
    keys       the cache at the KV head, strides of pages and slots
    pages      the table, pages of the cache, tokens of a page
    logits     scale, soft cap and its reciprocal, window
    """
    q_ptrs, real, slopes, position = query
    entry, length = sequence
    scale, cap, inv_cap, window = logits
    kept = positions < length
    if CAUSAL:
        kept &= positions <= position
    if WINDOW:
        kept &= positions >= position - window
    if MASK:
        mask_ptr, mask_size, mask_base = mask
        at = mask_base + positions
        fault_where(fault_ptr, BAD_MASK, kept & (at >= mask_size))
        kept &= tl.load(mask_ptr + at, mask=kept & (at < mask_size), other=0) != 0
    page, slot, kept = page_of(pages[0], entry, positions, kept, pages[2], pages[1], fault_ptr, TABLE)
    score = scores(q_ptrs, keys[0], page * keys[1] + slot * keys[2], real, kept, fault_ptr, FORMAT, D, D_PAD)
    s = settled_score(score, FORMAT) * scale
    if CAP:
        s = soft_capped(s, cap, inv_cap)
    if SLOPES:
        s = s + slopes[:, None] * (positions - position).to(tl.float32)[None, :]
    fault_where(fault_ptr, BAD_SCORE, kept[None, :] & ((s <= LARGEST_F32) == 0))
    return tl.where(kept[None, :], s, NEG_INF), kept, page, slot


@triton.jit
def weighted(p, v_ptr, cells, kept, columns, V_DIM: tl.constexpr, FORMAT: tl.constexpr, fault_ptr):
    """p [R, N] times the values at cells [N]: float32 [R, N, DV]; +0 where not kept."""
    readable = kept[:, None] & (columns < V_DIM)[None, :]
    if FORMAT == "q8_0" or FORMAT == "q4_0":
        v = codes_at(v_ptr + cells[:, None], columns[None, :], readable, FORMAT).to(tl.float32)
        d = scale_at(v_ptr + cells[:, None], columns[None, :] // 32, readable, FORMAT)
        p = (p[:, :, None] * d[None, :, :]).to(tl.float16).to(tl.float32)
    else:
        v = tl.load(v_ptr + cells[:, None] + columns[None, :], mask=readable, other=0.0).to(tl.float32)
        fault_where(fault_ptr, BAD_VALUE, in_range(v, FORMAT) == 0)
        p = as_operand(p, FORMAT)[:, :, None]
    return p * v[None, :, :]


@triton.jit
def attend_general(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, qo_ptr, last_ptr, indptr_ptr, indices_ptr, slopes_ptr, sinks_ptr, mask_ptr,
    fault_ptr, num_tokens, num_heads, num_seqs, num_entries, num_pages, page_size, mask_size,
    q_row, q_head, k_page, k_slot, k_head, v_page, v_slot, v_head, scale, cap, inv_cap, window,
    TABLE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SLOPES: tl.constexpr,
    SINKS: tl.constexpr, MASK: tl.constexpr, LSE: tl.constexpr, MANY: tl.constexpr, K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    V_DIM: tl.constexpr, V_PAD: tl.constexpr, SEQ_BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (rows of q, KV heads * chunks of ROWS query heads). MANY: only sequences with several queries."""
    token = tl.program_id(0)
    CHUNKS: tl.constexpr = (GROUP + ROWS - 1) // ROWS
    head = (tl.program_id(1) // CHUNKS).to(tl.int64)
    nth = tl.program_id(1) % CHUNKS * ROWS + tl.arange(0, ROWS)
    real = nth < GROUP
    heads = head * GROUP + nth
    seq = sequence_of(token, qo_ptr, num_seqs, SEQ_BLOCK)
    first, rows, entry, length = sequences(
        seq, seq < num_seqs, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
    )
    if MANY:
        real &= rows > 1
        rows = tl.where(rows > 1, rows, 0)
    refuse_counts(rows, length, fault_ptr, CAUSAL)
    position = length - rows + token - first
    start = 0
    stop = tl.where(rows > 0, length, 0)
    if CAUSAL:
        stop = tl.minimum(stop, position + 1)
    if WINDOW:
        start = tl.maximum(position - window, 0) // CUT * CUT
    mask = (mask_ptr, mask_size, tl.zeros([], tl.int64))
    if MASK:
        before = mask_start_of(
            seq, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE, SEQ_BLOCK
        )
        mask = (mask_ptr, mask_size, before + (token - first).to(tl.int64) * length)
    slopes = tl.zeros([ROWS], tl.float32)
    if SLOPES:
        slopes = tl.load(slopes_ptr + heads, mask=real, other=0.0)
        fault_where(fault_ptr, BAD_SLOPES, (tl.abs(slopes) <= LARGEST_F32) == 0)
    largest = tl.full([ROWS], NEG_INF, tl.float32)
    sinks = largest
    if SINKS:
        sinks = tl.load(sinks_ptr + heads, mask=real, other=NEG_INF)
        fault_where(fault_ptr, BAD_SINKS, (sinks <= LARGEST_F32) == 0)
        largest = sinks
    query = (q_ptr + token.to(tl.int64) * q_row + heads * q_head, real, slopes, position)
    sequence, pages, logits = (entry, length), (indices_ptr, num_pages, page_size), (scale, cap, inv_cap, window)
    keys = (k_ptr + head * k_head, k_page, k_slot)
    v_ptr += head * v_head

    run = tl.arange(0, RUN)
    at = start
    while at < stop:
        s, _, _, _ = kept_scores(
            at + run, query, sequence, mask, keys, pages, logits, fault_ptr,
            TABLE, CAUSAL, WINDOW, CAP, SLOPES, MASK, K_FORMAT, D, D_PAD,
        )  # fmt: skip
        largest = tl.maximum(largest, tl.max(s, axis=1))
        at += RUN
    shift = tl.where(largest == NEG_INF, 0.0, largest)

    columns = tl.arange(0, V_PAD)
    out = tl.zeros([ROWS, V_PAD], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    cut_out, cut_total = out, total
    at = start
    while at < stop:
        s, kept, page, slot = kept_scores(
            at + run, query, sequence, mask, keys, pages, logits, fault_ptr,
            TABLE, CAUSAL, WINDOW, CAP, SLOPES, MASK, K_FORMAT, D, D_PAD,
        )  # fmt: skip
        p = tl.where(kept[None, :], exp(s - shift[:, None]), 0.0)
        products = weighted(p, v_ptr, page * v_page + slot * v_slot, kept, columns, V_DIM, V_FORMAT, fault_ptr)
        cut_total = cut_total + tl.reshape(chain16(p[:, None, :]), [ROWS])
        cut_out = cut_out + chain16(tl.permute(products, (0, 2, 1)))
        at += RUN
        if at % CUT == 0:
            out, total = out + cut_out, total + cut_total
            cut_out, cut_total = tl.zeros([ROWS, V_PAD], tl.float32), tl.zeros([ROWS], tl.float32)
    out, total = out + cut_out, total + cut_total
    if SINKS:
        total = total + exp(sinks - shift)
    seen = total > 0.0
    out = out * tl.where(seen, recip(tl.where(seen, total, 1.0)), 0.0)[:, None]
    out_ptrs = out_ptr + (token.to(tl.int64) * num_heads + heads[:, None]) * V_DIM + columns[None, :]
    store_narrow(out_ptrs, out, real[:, None] & (columns < V_DIM)[None, :])
    if LSE:
        lse = largest * LOG2E + log2(tl.where(seen, total, 1.0))
        lse = settle(tl.where(seen, lse, NEG_INF))
        tl.store(lse_ptr + token.to(tl.int64) * num_heads + heads, lse, mask=real)


def seq_block(num_sequences: int) -> int:
    """Sequences that a scan takes at a time: of two sizes, so that few kernels are compiled."""
    return 64 if num_sequences <= 64 else 1024


def launch_general(call: Call, many: bool = False) -> None:
    """All rows of the call; with `many` only those of sequences with several queries."""
    d_pad, v_pad = max(8, power_of_two(call.head_size)), power_of_two(call.v_dim)
    rows = min(power_of_two(call.group), max(1, TILE_ELEMENTS // max(d_pad, v_pad)))
    chunks = -(-call.group // rows)
    table, numbers, mask = dict(call.table), call.numbers, call.extras["custom_mask"]
    attend_general[(call.num_tokens, call.num_kv_heads * chunks)](
        call.q,
        call.k.data,
        call.v.data,
        call.out,
        call.lse,
        slopes_ptr=call.extras["alibi_slopes"],
        sinks_ptr=call.extras["sinks"],
        mask_ptr=None if mask is None else mask.view(torch.uint8),
        fault_ptr=fault_word(call.q.device),
        num_tokens=call.num_tokens,
        num_heads=call.q.shape[1],
        mask_size=0 if mask is None else mask.shape[0],
        q_row=call.q.stride(0),
        q_head=call.q.stride(1),
        **dict(zip(("k_page", "k_slot", "k_head"), call.k.strides, strict=True)),
        **dict(zip(("v_page", "v_slot", "v_head"), call.v.strides, strict=True)),
        **table,
        **numbers,
        LSE=call.lse is not None,
        MANY=many,
        K_FORMAT=call.k.format,
        V_FORMAT=call.v.format,
        GROUP=call.group,
        ROWS=rows,
        D=call.head_size,
        D_PAD=d_pad,
        V_DIM=call.v_dim,
        V_PAD=v_pad,
        SEQ_BLOCK=seq_block(call.num_sequences),
        num_warps=4 if rows * max(d_pad, v_pad) <= 256 else 8,
        **UNFUSED,
    )
