"""The same work by libraries that GPU users have: cuBLAS (or rocBLAS) through torch, and FlashInfer.

Calls go over the case's own input sets. Of FlashInfer's ways to do attention the fastest counts. Its wrappers plan on
the host, ahead of the run: what is captured and timed is the run alone. Nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from samebits.backends.interface import Buffer
from samebits.bench.gpu_cases import HEAD, HEADS, KV_HEADS, PAGE, GpuCase
from samebits.bench.gpu_ops import Peer

Call = Callable[[], object]
InputSet = dict[str, Buffer]
Tensors = dict[str, Any]
WORKSPACE_BYTES = 128 << 20


def peers_of(case: GpuCase, sets: list[InputSet]) -> list[Peer]:
    """The libraries that do this work here."""
    tensors = [{name: getattr(buffer, "tensor", None) for name, buffer in s.items()} for s in sets]
    if case.peer == "matmul":
        torch = import_module("torch")
        return [Peer(f"BLAS of torch {torch.__version__}", lambda: [_matmul(t) for t in tensors])]
    if not case.peer or find_spec("flashinfer") is None:
        return []
    try:
        flashinfer = import_module("flashinfer")
    except Exception as error:  # it is here, and lacks something: that is said where its time would be
        return [Peer("FlashInfer", partial(_raise, error))]
    name = f"FlashInfer {flashinfer.__version__}"
    if case.peer == "attention":
        return _attention(flashinfer, name, tensors)
    make = SINGLE_CALLS[case.peer]
    return [Peer(name, lambda: [make(flashinfer, case, t) for t in tensors])]


def _raise(error: Exception) -> list[Call]:
    raise error


def _matmul(t: Tensors) -> Call:
    return lambda: t["x"] @ t["weight"].T


def _attention(flashinfer: Any, name: str, sets: list[Tensors]) -> list[Peer]:
    """Decodes on tensor cores or without them, prompts by the kernels of either generation."""
    first = sets[0]
    if len(first["q"]) == len(first["kv_last_page_len"]):
        ways = {"tensor cores": True, "no tensor cores": False}
        decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper
        make = {
            way: partial(_planned, partial(decode, kv_layout="NHD", use_tensor_cores=uses), plan_decode)
            for way, uses in ways.items()
        }
    else:
        prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper
        make = {
            way: partial(_planned, partial(prefill, kv_layout="NHD", backend=way), plan_prefill)
            for way in ("fa2", "fa3")
        }
    return [Peer(f"{name}, {way}", partial(planned, sets)) for way, planned in make.items()]


def _planned(make: Callable[..., Any], plan: Callable[[Any, Tensors], None], sets: list[Tensors]) -> list[Call]:
    """A planned wrapper for every input set; they run one after another, so one workspace serves all."""
    torch = import_module("torch")
    workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=sets[0]["q"].device)
    calls: list[Call] = []
    for t in sets:
        wrapper = make(workspace)
        plan(wrapper, t)
        calls.append(partial(wrapper.run, t["q"], (t["k_cache"], t["v_cache"])))
    return calls


def _types(t: Tensors) -> dict[str, Any]:
    return {"q_data_type": t["q"].dtype, "kv_data_type": t["k_cache"].dtype}


def plan_decode(wrapper: Any, t: Tensors) -> None:
    """Of one token for each sequence."""
    pages = t["kv_indptr"], t["kv_indices"], t["kv_last_page_len"]
    wrapper.plan(*pages, HEADS, KV_HEADS, HEAD, PAGE, **_types(t))


def plan_prefill(wrapper: Any, t: Tensors) -> None:
    """Of whole prompts, causal."""
    pages = t["kv_indptr"], t["kv_indices"], t["kv_last_page_len"]
    wrapper.plan(t["qo_indptr"], *pages, HEADS, KV_HEADS, HEAD, PAGE, causal=True, **_types(t))


def _norm(flashinfer: Any, case: GpuCase, t: Tensors) -> Call:
    return lambda: flashinfer.norm.rmsnorm(t["x"], t["weight"])


def _silu(flashinfer: Any, case: GpuCase, t: Tensors) -> Call:
    return lambda: flashinfer.activation.silu_and_mul(t["x"])


def _top_k(flashinfer: Any, case: GpuCase, t: Tensors) -> Call:
    return lambda: flashinfer.sampling.top_k_mask_logits(t["x"], int(np.int32(case.attrs["k"])))


SINGLE_CALLS: dict[str, Callable[[Any, GpuCase, Tensors], Call]] = {"norm": _norm, "silu": _silu, "top_k": _top_k}
