"""What all kernels of paged_attention share on the device: sequences, cells, operands and the last step."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_COUNT, BAD_PAGE, BAD_TABLE, CUT_LEN, RUN_LEN
from samebits.kernels.triton.lib.limits import LARGEST_BF16, LARGEST_F32
from samebits.kernels.triton.lib.rows import fault_where, narrow, widen
from samebits.kernels.triton.lib.settling import settle

CUT, RUN = tl.constexpr(CUT_LEN), tl.constexpr(RUN_LEN)


@triton.jit
def as_operand(x, FORMAT: tl.constexpr):
    """float32 rounded to a 16-bit type for a product, as float32; other formats: x as it is."""
    if FORMAT == "f16":
        return x.to(tl.float16).to(tl.float32)
    if FORMAT == "bf16":
        return widen(narrow(x, tl.bfloat16))
    return x


@triton.jit
def in_range(x, FORMAT: tl.constexpr):
    """Whether an operand is finite and inside its type's range."""
    if FORMAT == "bf16":
        return tl.abs(x) <= LARGEST_BF16
    return tl.abs(x) <= LARGEST_F32


@triton.jit
def settled_score(score, FORMAT: tl.constexpr):
    """A score of q and k before it is scaled; those of float16 keys are multiples of 2^-48, so they are settled."""
    return score if FORMAT == "f16" else settle(score)


@triton.jit
def sequence_of(token, qo_ptr, num_seqs, SEQ_BLOCK: tl.constexpr):
    """The sequence of a row; num_seqs beyond the last one."""
    b = 0
    start = 0
    while start < num_seqs:
        at = start + tl.arange(0, SEQ_BLOCK)
        stop = tl.load(qo_ptr + at + 1, mask=at < num_seqs, other=2147483647)
        b += tl.sum((stop <= token).to(tl.int32), axis=0)
        start += SEQ_BLOCK
    return b


@triton.jit
def sequences(
    b, valid, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE: tl.constexpr
):
    """Of sequences b where valid: (first row, rows, first table entry, length), zeros elsewhere; faults are stored."""
    row = tl.load(qo_ptr + b, mask=valid, other=0)
    rows = tl.load(qo_ptr + b + 1, mask=valid, other=0) - row
    last = tl.load(last_ptr + b, mask=valid, other=0)
    if TABLE:
        entry = tl.load(indptr_ptr + b, mask=valid, other=0)
        pages = tl.load(indptr_ptr + b + 1, mask=valid, other=0) - entry
        least = tl.where(pages > 0, 1, 0)
    else:
        entry = b
        pages = tl.where(valid, 1, 0)
        least = 0
    most = tl.where(pages > 0, page_size, 0)
    good = (entry >= 0) & (pages >= 0) & (entry + pages <= num_entries) & (last >= least) & (last <= most)
    good &= (row >= 0) & (rows >= 0) & (row + rows <= num_tokens)
    fault_where(fault_ptr, BAD_TABLE, valid & (good == 0))
    good &= valid
    length = tl.where(good & (pages > 0), (pages - 1) * page_size + last, 0)
    return row, tl.where(good, rows, 0), entry, length


@triton.jit
def refuse_counts(rows, length, fault_ptr, CAUSAL: tl.constexpr):
    if CAUSAL:
        fault_where(fault_ptr, BAD_COUNT, rows > length)


@triton.jit
def page_of(indices_ptr, entry, position, valid, page_size, num_pages, fault_ptr, TABLE: tl.constexpr):
    """(page int64, slot int64, readable) of positions of the sequence whose table starts at entry."""
    nth = position // page_size
    page = entry + nth
    if TABLE:
        page = tl.load(indices_ptr + page, mask=valid, other=0)
    exists = (page >= 0) & (page < num_pages)
    fault_where(fault_ptr, BAD_PAGE, valid & (exists == 0))
    slot = (position - nth * page_size).to(tl.int64)  # a page may be a whole sequence
    return page.to(tl.int64), slot, valid & exists
