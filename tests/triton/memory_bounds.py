"""Loads and stores of interpreted kernels, held to the tensors of their launch.

A GPU reads past a tensor without a word. The interpreter runs kernels on the host, so every address that a mask lets
through can be looked up: `check_addresses` makes an address outside the launch's tensors an error of the launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


def spans_of(x: Any) -> Iterator[tuple[int, int]]:
    """Yield the first address and the end of every tensor in a kernel's argument."""
    if isinstance(x, tuple):
        for part in x:
            yield from spans_of(part)
    elif hasattr(x, "base"):  # a descriptor
        yield from spans_of(x.base)
    elif isinstance(x, torch.Tensor) and x.numel():
        last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        yield x.data_ptr(), x.data_ptr() + (last + 1) * x.itemsize


def outside(addresses: np.ndarray, mask: np.ndarray, num_bytes: int, spans: list[tuple[int, int]]) -> np.ndarray:
    """Return the addresses that `mask` lets through and whose `num_bytes` bytes lie in none of the spans."""
    asked = np.atleast_1d(addresses)[np.atleast_1d(mask).astype(bool)]
    if not asked.size:
        return asked
    low, high = int(asked.min()), int(asked.max()) + num_bytes
    if any(start <= low and high <= end for start, end in spans):
        return asked[:0]
    asked = asked.astype(np.int64)
    inside = np.zeros(asked.shape, bool)
    for start, end in spans:
        inside |= (asked >= start) & (asked + num_bytes <= end)
    return asked[~inside]


def check_addresses() -> None:
    """Make every interpreted launch of this process raise for an address outside its tensors."""
    from triton.runtime import interpreter

    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store, init = builder.create_masked_load, builder.create_masked_store, executor._init_args_hst
    spans: list[tuple[int, int]] = []

    def held(pointers: Any, mask: Any, what: str) -> None:
        num_bytes = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        wrong = outside(pointers.data, mask.data, num_bytes, spans)
        if wrong.size:
            raise IndexError(f"{what} of {wrong.size} addresses outside the launch's tensors")

    def masked_load(self: Any, pointers: Any, mask: Any, *options: Any) -> Any:
        held(pointers, mask, "a load")
        return load(self, pointers, mask, *options)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        held(pointers, mask, "a store")
        return store(self, pointers, value, mask, *options)

    def init_arguments(self: Any, *given: Any) -> Any:
        on_host = init(self, *given)
        arguments, named = on_host
        spans[:] = [span for x in (*arguments, *named.values()) for span in spans_of(x)]
        return on_host

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    executor._init_args_hst = init_arguments
