"""Whole pages of caches: copy_kv_pages, convert_kv_layout."""

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
from samebits.kernels.triton.lib.tensors import Blocks

Cache: TypeAlias = torch.Tensor | Blocks
NO_PAGE = tl.constexpr(fault("copy_kv_pages", "sources or targets", "a page that is not there", "0 .. pages - 1"))
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
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A program copies BLOCK words of a page's keys, or of its values. A page of -1 is padding."""
    k_parts = tl.cdiv(k_words, BLOCK)
    parts = k_parts + tl.cdiv(v_words, BLOCK)
    copy, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    source, target = tl.load(sources_ptr + copy).to(tl.int64), tl.load(targets_ptr + copy).to(tl.int64)
    known = (source >= 0) & (source < num_pages) & (target >= 0) & (target < num_pages)
    fault_where(fault_ptr, NO_PAGE, (known == 0) & ((source != -1) | (target != -1)))
    if known:
        if part < k_parts:
            _copy_part(k_ptr, source, target, k_stride, k_words, part, BLOCK)
        elif v_ptr is not None:
            _copy_part(v_ptr, source, target, v_stride, v_words, part - k_parts, BLOCK)


def _page_words(cache: Cache) -> torch.Tensor:
    """The cache as [pages, words], in the largest words its pages are made of."""
    data = cache.data if isinstance(cache, Blocks) else cache
    if data.numel() and not data[0].is_contiguous():
        raise BadInput("copy_kv_pages", "cache", f"pages of strides {data.stride()}", "dense pages")
    pages = data.as_strided((data.shape[0], data.numel() // max(1, data.shape[0])), (data.stride(0), 1))
    for word in WORDS:
        size = word.itemsize
        sizes = (pages.shape[1] * data.itemsize, pages.stride(0) * data.itemsize, data.data_ptr())
        if size >= data.itemsize and all(n % size == 0 for n in sizes):
            return pages.view(word)
    return pages


@implements("copy_kv_pages", tier=Tier.PORTABLE)
def copy_kv_pages(
    k_cache: Cache, sources: torch.Tensor, targets: torch.Tensor, v_cache: Cache | None = None
) -> tuple[Cache, ...]:
    caches = (k_cache,) if v_cache is None else (k_cache, v_cache)
    k, v = _page_words(k_cache), None if v_cache is None else _page_words(v_cache)
    v_words, v_stride = (0, 0) if v is None else (v.shape[1], v.stride(0))
    parts = triton.cdiv(k.shape[1], BLOCK) + triton.cdiv(v_words, BLOCK)
    if len(sources) * parts:
        copy_pages_kernel[(len(sources) * parts,)](
            k, v, sources, targets, fault_word(k.device), k.shape[0], k.stride(0), v_stride, k.shape[1], v_words,
            BLOCK, num_warps=4, **UNFUSED,
        )  # fmt: skip
    return caches


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
    source = x_ptr + page // units * page_stride + page % units * unit_stride + a * a_stride + b * b_stride
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
        padded = triton.next_power_of_2(width)
        rows = max(1, BLOCK // padded)
        exchange_kernel[(pages.shape[0] * pages.shape[1] * triton.cdiv(a * b, rows),)](
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
