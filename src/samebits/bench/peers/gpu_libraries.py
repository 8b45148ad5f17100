"""The same work by libraries that GPU users have: cuBLAS (or rocBLAS) through torch, and FlashInfer.

Each function gives calls over the case's own input sets; nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from samebits.backends.interface import Buffer
from samebits.bench.gpu_ops import HEAD, HEADS, KV_HEADS, PAGE, GpuCase

Calls = list[Callable[[], object]]
InputSet = dict[str, Buffer]
WORKSPACE_BYTES = 128 << 20


def peer_calls(case: GpuCase, sets: list[InputSet]) -> tuple[str, Calls] | None:
    """(the library's name, a call for each input set); None where none of them does this work here."""
    if case.peer == "matmul":
        torch = import_module("torch")
        return f"BLAS of torch {torch.__version__}", [_matmul(_tensors(s)) for s in sets]
    maker = FLASHINFER.get(case.peer)
    if maker is None or find_spec("flashinfer") is None:
        return None
    flashinfer = import_module("flashinfer")
    return f"FlashInfer {flashinfer.__version__}", [maker(flashinfer, case, _tensors(s)) for s in sets]


def _tensors(buffers: InputSet) -> dict[str, Any]:
    return {name: getattr(buffer, "tensor", None) for name, buffer in buffers.items()}


def _matmul(t: dict[str, Any]) -> Callable[[], object]:
    return lambda: t["x"] @ t["weight"].T


def _attention(flashinfer: Any, case: GpuCase, t: dict[str, Any]) -> Callable[[], object]:
    torch = import_module("torch")
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=t["q"].device)
    pages = t["kv_indptr"], t["kv_indices"], t["kv_last_page_len"]
    sizes = HEADS, KV_HEADS, HEAD, PAGE
    types = {"q_data_type": t["q"].dtype, "kv_data_type": t["k_cache"].dtype}
    is_decode = len(t["q"]) == len(t["kv_last_page_len"])
    if is_decode:
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
        wrapper.plan(*pages, *sizes, **types)
    else:
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
        wrapper.plan(t["qo_indptr"], *pages, *sizes, causal=True, **types)
    return lambda: wrapper.run(t["q"], (t["k_cache"], t["v_cache"]))


def _norm(flashinfer: Any, case: GpuCase, t: dict[str, Any]) -> Callable[[], object]:
    return lambda: flashinfer.norm.rmsnorm(t["x"], t["weight"])


def _silu(flashinfer: Any, case: GpuCase, t: dict[str, Any]) -> Callable[[], object]:
    return lambda: flashinfer.activation.silu_and_mul(t["x"])


def _top_k(flashinfer: Any, case: GpuCase, t: dict[str, Any]) -> Callable[[], object]:
    return lambda: flashinfer.sampling.top_k_mask_logits(t["x"], int(np.int32(case.attrs["k"])))


FLASHINFER: dict[str, Callable[[Any, GpuCase, dict[str, Any]], Callable[[], object]]] = {
    "attention": _attention,
    "norm": _norm,
    "silu": _silu,
    "top_k": _top_k,
}
