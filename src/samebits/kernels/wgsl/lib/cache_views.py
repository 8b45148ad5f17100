"""Paged caches as shaders address them: split, unified or latent, NHD or HND, plain or in blocks; see ops/paged.py."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.core.format import BLOCK
from samebits.core.shapes import Dim
from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.launch import Operand, View

BLOCK_FORMATS = ("q8_0", "q4_0")
UNITS = {"f32": 1, "f16": 2, "bf16": 2, "q8_0": BLOCK, "q4_0": BLOCK}  # elements of a word, or of a block


@dataclass(frozen=True)
class CacheView:
    """Keys or values of a cache. Strides count units: words of a plain format, blocks of a block format.

    first   units from a page's start to the first slot of its first head: where values lie in a unified cache
    """

    tensor: Operand
    page_size: int
    num_heads: int
    first: int
    slot_stride: int
    head_stride: int

    @property
    def format(self) -> str:
        return self.tensor.format

    @property
    def num_pages(self) -> int:
        return self.tensor.shape[0]

    @property
    def view(self) -> View:
        """How a binding shows it."""
        return "planes" if self.format in BLOCK_FORMATS else "words"

    def numbers(self, name: str) -> dict[str, int]:
        """Constants of a shader: NAME_FIRST, NAME_SLOT, NAME_HEAD."""
        return {f"{name}_FIRST": self.first, f"{name}_SLOT": self.slot_stride, f"{name}_HEAD": self.head_stride}


def _one_view(cache: Operand, layout: str, part: int) -> CacheView:
    """Part 0 of a cache's pages, or part 1 of a unified one."""
    unit, shape = UNITS[cache.format], cache.shape
    width = -(-shape[-1] // unit)
    if len(shape) == 3:
        return CacheView(cache, shape[1], 1, 0, width, 0)
    page_size, num_heads = shape[-3:-1] if layout == "NHD" else (shape[-2], shape[-3])
    slot, head = (num_heads * width, width) if layout == "NHD" else (width, page_size * width)
    return CacheView(cache, page_size, num_heads, part * page_size * num_heads * width, slot, head)


def cache_views(k_cache: Operand, v_cache: Operand | None, layout: str) -> tuple[CacheView, CacheView]:
    """Keys and values. Both are in k_cache's memory where there is no v_cache; a latent cache's are the same."""
    keys = _one_view(k_cache, layout, 0)
    if v_cache is not None:
        return keys, _one_view(v_cache, layout, 0)
    return keys, _one_view(k_cache, layout, 1) if len(k_cache.shape) == 5 else keys


def _is_odd(size: Dim) -> bool:
    return isinstance(size, int) and size % 2 == 1


def whole_words(call: OpCall) -> str | None:
    """A `when`: heads of 16-bit caches fill words, so that no two invocations write to one."""
    for name in ("k_cache", "v_cache"):
        spec = call.inputs.get(name)
        if spec is not None and UNITS[spec.format] == 2 and _is_odd(spec.shape[-1]):
            return f"wgsl takes heads of an even size in a 16-bit cache, not {spec.shape[-1]} in {name}"
    return None
