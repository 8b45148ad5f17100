"""paged_attention in the portable tier."""

from __future__ import annotations

from typing import Any

from samebits.core.shapes import upper
from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.attention.call import Call, make_call
from samebits.kernels.triton.attention.portable.decode import decodes, launch_decode
from samebits.kernels.triton.attention.portable.general import launch_general
from samebits.kernels.triton.attention.portable.prefill import launch_tiles
from samebits.kernels.triton.attention.portable.scores import MAX_HEAD_SIZE
from samebits.kernels.triton.attention.portable.wide.launch import is_wide, launch_wide_decode, launch_wide_prompt
from samebits.kernels.triton.lib.devices import ON_AMD
from samebits.kernels.triton.lib.registry import implements

DOT_IS_CHAIN = not ON_AMD  # AMD's matrix cores take float32 too, in an order of their own


def launch(call: Call) -> None:
    """Every row of the call, by the kernels that take least time for it; all give the same bits."""
    if not call.num_tokens:
        return
    if DOT_IS_CHAIN and is_wide(call):
        if call.num_tokens > 1:
            launch_wide_prompt(call)
        launch_wide_decode(call)
        return
    if not decodes(call):
        launch_general(call)
        return
    if call.num_tokens > 1 and DOT_IS_CHAIN:
        launch_tiles(call)
    elif call.num_tokens > 1:
        launch_general(call, many=True)
    launch_decode(call)


def served(call: OpCall) -> str | None:
    """Return why no kernel serves a call, or None."""
    size = call.inputs["q"].shape[2]
    return f"heads of {size} elements; at most {MAX_HEAD_SIZE}" if upper(size) > MAX_HEAD_SIZE else None


@implements("paged_attention", tier=Tier.PORTABLE, when=served)
def paged_attention(
    q: Any,
    k_cache: Any,
    qo_indptr: Any,
    kv_last_page_len: Any,
    v_cache: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    custom_mask: Any = None,
    *,
    layout: str = "NHD",
    causal: bool = True,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float = 0.0,
    v_dim: int = 0,
    return_lse: bool = False,
) -> Any:
    """Every call that the reference takes."""
    call = make_call(
        q,
        k_cache,
        qo_indptr,
        kv_last_page_len,
        v_cache=v_cache,
        kv_indptr=kv_indptr,
        kv_indices=kv_indices,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        custom_mask=custom_mask,
        layout=layout,
        causal=causal,
        sm_scale=sm_scale,
        window_left=window_left,
        logits_soft_cap=logits_soft_cap,
        v_dim=v_dim,
        return_lse=return_lse,
    )
    launch(call)
    return call.result
