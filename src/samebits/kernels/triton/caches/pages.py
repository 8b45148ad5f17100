"""Whole pages of caches and slots of states: copy_kv_pages, copy_slots, convert_kv_layout."""

from __future__ import annotations

from typing import TypeAlias

import torch
import triton
import triton.language as tl

from samebits.core.errors import BadInput
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import fault_where
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two
from samebits.kernels.triton.lib.tensors import Blocks

Cache: TypeAlias = torch.Tensor | Blocks
NO_PAGE = fault("copy_kv_pages", "sources or targets", "a page that is not there", "0 .. pages - 1")
NO_SLOT = fault("copy_slots", "sources or targets", "a slot that is not there", "0 .. slots - 1")
BLOCK = 2048  # words of a program
WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


@triton.jit
def _copy_part(cache_ptr, source, target, page_stride, words, part, BLOCK: tl.constexpr):
    word = part * BLOCK + tl.arange(0, BLOCK)
    data = tl.load(cache_ptr + source * page_stride + word, mask=word < words)
    tl.store(cache_ptr + target * page_stride + word, data, mask=word < words)


@triton.jit
def copy_pages_kernel(
    k_ptr, v_ptr, sources_ptr, targets_ptr, fault_ptr, num_pages, k_stride, v_stride, k_words, v_words,
    NOT_THERE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program copies BLOCK words of a page's keys, or of its values. A page of -1 is padding."""
    k_parts = tl.cdiv(k_words, BLOCK)
    parts = k_parts + tl.cdiv(v_words, BLOCK)
    copy, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    source, target = tl.load(sources_ptr + copy).to(tl.int64), tl.load(targets_ptr + copy).to(tl.int64)
    known = (source >= 0) & (source < num_pages) & (target >= 0) & (target < num_pages)
    fault_where(fault_ptr, NOT_THERE, (known == 0) & ((source != -1) | (target != -1)))
    if known:
        if part < k_parts:
            _copy_part(k_ptr, source, target, k_stride, k_words, part, BLOCK)
        elif v_ptr is not None:
            _copy_part(v_ptr, source, target, v_stride, v_words, part - k_parts, BLOCK)


def _page_words(cache: Cache, op: str) -> torch.Tensor:
    """The cache as [pages, words], in the largest words its pages are made of."""
    data = cache.data if isinstance(cache, Blocks) else cache
    if data.numel() and not data[0].is_contiguous():
        raise BadInput(op, "cache", f"pages of strides {data.stride()}", "dense pages")
    pages = data.as_strided((data.shape[0], data.numel() // max(1, data.shape[0])), (data.stride(0), 1))
    for word in WORDS:
        size = word.itemsize
        sizes = (pages.shape[1] * data.itemsize, pages.stride(0) * data.itemsize, data.data_ptr())
        if size >= data.itemsize and all(n % size == 0 for n in sizes):
            return pages.view(word)
    return pages


def _copy(
    k_cache: Cache, v_cache: Cache | None, sources: torch.Tensor, targets: torch.Tensor, op: str, not_there: int
) -> None:
    """Pages of both caches, or slots of one state, onto others; `not_there` is the fault of one out of range."""
    k, v = _page_words(k_cache, op), None if v_cache is None else _page_words(v_cache, op)
    v_words, v_stride = (0, 0) if v is None else (v.shape[1], v.stride(0))
    parts = cdiv(k.shape[1], BLOCK) + cdiv(v_words, BLOCK)
    if len(sources) * parts:
        copy_pages_kernel[(len(sources) * parts,)](
            k, v, sources, targets, fault_word(k.device), k.shape[0], k.stride(0), v_stride, k.shape[1], v_words,
            not_there, BLOCK, num_warps=4, **UNFUSED,
        )  # fmt: skip


@implements("copy_kv_pages", tier=Tier.PORTABLE)
def copy_kv_pages(
    k_cache: Cache, sources: torch.Tensor, targets: torch.Tensor, v_cache: Cache | None = None
) -> tuple[Cache, ...]:
    _copy(k_cache, v_cache, sources, targets, "copy_kv_pages", NO_PAGE)
    return (k_cache,) if v_cache is None else (k_cache, v_cache)


@implements("copy_slots", tier=Tier.PORTABLE)
def copy_slots(state: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    _copy(state, None, sources, targets, "copy_slots", NO_SLOT)
    return state


@triton.jit
def exchange_kernel(
    x_ptr, y_ptr, A, B, width, page_stride, unit_stride, a_stride, b_stride, units,
    SWAP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS rows of y [pages, units, B, A, width] from x [pages, units, A, B, width]; of the same order without SWAP."""
    parts = tl.cdiv(A * B, ROWS)
    page = (tl.program_id(0) // parts).to(tl.int64)
    row = tl.program_id(0) % parts * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    a, b = row // B, row % B
    if SWAP:
        a, b = row % A, row // A
    mask = (row < A * B) & (column < width)
    source = x_ptr + page // units * page_stride + page % units * unit_stride
    source += a.to(tl.int64) * a_stride + b.to(tl.int64) * b_stride
    x = tl.load(source + column, mask=mask)
    tl.store(y_ptr + (page * A * B + row) * width + column, x, mask=mask)


@implements("convert_kv_layout", tier=Tier.PORTABLE)
def convert_kv_layout(cache: Cache, *, source: str = "NHD", target: str = "HND") -> Cache:
    x = cache.data if isinstance(cache, Blocks) else cache
    inner = x.shape[-3:-1] if source == target else (x.shape[-2], x.shape[-3])
    y = torch.empty((*x.shape[:-3], *inner, x.shape[-1]), dtype=x.dtype, device=x.device)
    if y.numel():
        pages = x if x.dim() == 5 else x[:, None]
        a, b, width = pages.shape[2:]
        padded = power_of_two(width)
        rows = max(1, BLOCK // padded)
        exchange_kernel[(pages.shape[0] * pages.shape[1] * cdiv(a * b, rows),)](
            x,
            y,
            a,
            b,
            width,
            *pages.stride()[:4],
            pages.shape[1],
            source != target,
            rows,
            padded,
            num_warps=4,
            **UNFUSED,
        )
    return Blocks(cache.format, y, cache.scale) if isinstance(cache, Blocks) else y
