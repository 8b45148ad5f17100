"""What the kernels for several queries are called with, in records by name.

A record travels to the device as a tuple: its constexpr fields are constants there, its other fields arguments. Numbers
that must not make a kernel of their own for every multiple of 16 (sizes of a batch, the window) cannot lie in a record:
Triton's `do_not_specialize` does not look into tuples. Kernels take those one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

from samebits.kernels.triton.attention.call import Call
from samebits.kernels.triton.lib.cache_views import CacheView


class Queries(NamedTuple):
    """q [row, head, D]: its pointer and the strides of a row and a head."""

    ptr: Any
    row: int
    head: int


class Cells(NamedTuple):
    """Keys or values of a cache: their pointer, the strides of a page, a slot and a head; constexpr: their format."""

    ptr: Any
    page: int
    slot: int
    head: int
    FORMAT: Any


class Results(NamedTuple):
    """out [row, head, V_DIM], and lse [row, head] or nothing."""

    out_ptr: Any
    lse_ptr: Any


class Tables(NamedTuple):
    """The op's arrays of where sequences and their pages are; constexpr: tokens of a page, whether there is a table."""

    qo_ptr: Any
    last_ptr: Any
    indptr_ptr: Any
    indices_ptr: Any
    page_size: Any
    PAGED: Any


class Logits(NamedTuple):
    """From a product to a score: scale, soft cap and its reciprocal, slopes and sinks or nothing; constexpr: which."""

    scale: float
    cap: float
    inv_cap: float
    slopes_ptr: Any
    sinks_ptr: Any
    CAUSAL: Any
    WINDOW: Any
    CAP: Any


class Heads(NamedTuple):
    """constexpr: query heads of a KV head and of a part, parts, elements of a head of keys and of values."""

    GROUP: Any
    HEADS: Any
    NUM_PARTS: Any
    D: Any
    V_DIM: Any


def cells_of(view: CacheView) -> Cells:
    return Cells(view.data, *view.strides, tl.constexpr(view.format))


def records_of(call: Call, heads_of_part: int) -> dict[str, Any]:
    """The records of a call, by the names of the kernels' parameters."""
    table, numbers, extras = call.table, call.numbers, call.extras
    return {
        "queries": Queries(call.q, call.q.stride(0), call.q.stride(1)),
        "keys": cells_of(call.k),
        "values": cells_of(call.v),
        "results": Results(call.out, call.lse),
        "tables": Tables(
            qo_ptr=table["qo_ptr"],
            last_ptr=table["last_ptr"],
            indptr_ptr=table["indptr_ptr"],
            indices_ptr=table["indices_ptr"],
            page_size=tl.constexpr(table["page_size"]),
            PAGED=tl.constexpr(table["TABLE"]),
        ),
        "logits": Logits(
            scale=numbers["scale"],
            cap=numbers["cap"],
            inv_cap=numbers["inv_cap"],
            slopes_ptr=extras["alibi_slopes"],
            sinks_ptr=extras["sinks"],
            CAUSAL=tl.constexpr(numbers["CAUSAL"]),
            WINDOW=tl.constexpr(numbers["WINDOW"]),
            CAP=tl.constexpr(numbers["CAP"]),
        ),
        "heads": Heads(
            GROUP=tl.constexpr(call.group),
            HEADS=tl.constexpr(heads_of_part),
            NUM_PARTS=tl.constexpr(call.q.shape[1] // heads_of_part),
            D=tl.constexpr(call.head_size),
            V_DIM=tl.constexpr(call.v_dim),
        ),
    }
