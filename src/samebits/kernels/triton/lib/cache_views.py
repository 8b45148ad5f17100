"""A paged cache as strided views of its keys and values, whatever its form."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from samebits.kernels.triton.lib.tensors import DTYPES, Blocks

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class CacheView:
    """Keys or values [page, slot, head, ...]: their bytes or numbers, the first three strides and the format's name."""

    data: torch.Tensor
    format: str

    @property
    def strides(self) -> tuple[int, int, int]:
        return self.data.stride()[:3]


def _view(cache: torch.Tensor | Blocks, half: int | None, layout: str) -> CacheView:
    data, name = (cache.data, cache.format.name) if isinstance(cache, Blocks) else (cache, _NAMES[cache.dtype])
    if half is not None:
        data = data[:, half]
    if data.ndim == 3:
        return CacheView(data[:, :, None], name)
    return CacheView(data if layout == "NHD" else data.transpose(1, 2), name)


def cache_views(
    k_cache: torch.Tensor | Blocks, v_cache: torch.Tensor | Blocks | None, layout: str
) -> tuple[CacheView, CacheView]:
    """Keys and values of a split, unified or MLA cache; the values of the last are its keys."""
    if v_cache is not None:
        return _view(k_cache, None, layout), _view(v_cache, None, layout)
    unified = len(k_cache.shape) == 5
    keys = _view(k_cache, 0 if unified else None, layout)
    return keys, _view(k_cache, 1, layout) if unified else keys
