"""Kernels in Triton, for CUDA and ROCm. Nothing here is imported until a GPU backend asks: torch is an extra.

folder      ops
attention   paged_attention, merge_state
caches      append_paged_kv_cache, rope_and_append, rope_both_and_append, copy_kv_pages, copy_slots, convert_kv_layout
products    gemm, gemm_q8, gemm_silu_q8, grouped_gemm, head_gemm, expert_gemm, expert_gemm_q8, expert_gate_q8
recurrent   causal_conv, gated_delta_rule, ssm_scan
rows        norms, softmax, activations, rope, quantize_q8, embedding, elementwise, columns, combine
select      top_k, top_k_mask_logits, argmax, sample, route, expert_layout
lib         what they share; imports none of them

table.py lists the files that register kernels, in order of preference. Each folder's docstring says which kernel serves
when.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from samebits.core.errors import Unavailable
from samebits.core.installing import install_command


def toolchain(extra: str = "cuda") -> None:
    """Unavailable, with the extra to install, unless torch and Triton can be imported."""
    for name in ("torch", "triton"):
        try:
            import_module(name)
        except ImportError as error:
            raise Unavailable(f"{name} is not installed ({error}); `{install_command(extra)}`") from None


def cache_folder() -> Path:
    """Where Triton keeps what it compiled: TRITON_CACHE_DIR, or a folder of the user's."""
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    return Path(os.environ.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache"))


def has_compiled() -> bool:
    """Whether anything was ever compiled here."""
    try:
        return any(os.scandir(cache_folder()))
    except OSError:
        return False
