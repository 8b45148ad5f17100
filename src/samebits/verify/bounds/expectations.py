"""The expectations of a call's results: which function bounds which op.

An op without one here moves or selects values: its results are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.ops import Bound
from samebits.ops.evaluate import call_arguments
from samebits.verify.bounds import caches, codes, norms, products, recurrent, rows
from samebits.verify.bounds.attention import paged_attention
from samebits.verify.bounds.expected import Expected, exactly, expected
from samebits.verify.bounds.near import Near

# each takes the reference's arguments, and gives as many of the op's results as are not exact
FROM_ARGUMENTS: dict[str, Callable[..., tuple[Near | Expected, ...]]] = {
    f.__name__: f
    for f in (
        *(rows.add, rows.mul, rows.scale, rows.sigmoid_and_mul, rows.silu_and_mul, rows.gelu_and_mul),
        *(rows.clamped_swiglu, rows.soft_cap, rows.softmax, rows.rope, rows.merge_state, rows.combine),
        *(norms.rms_norm, norms.fused_add_rms_norm, norms.layer_norm, norms.l2_norm, norms.gated_rms_norm),
        *(products.gemm, products.gemm_q8, products.grouped_gemm, products.head_gemm),
        *(products.expert_gemm, products.expert_gemm_q8),
        *(codes.quantize_q8, codes.add_rms_norm_q8, codes.gemm_silu_q8, codes.expert_gate_q8),
        *(recurrent.gated_delta_rule, recurrent.ssm_scan, recurrent.causal_conv),
        paged_attention,
    )
}
CACHES = ("append_paged_kv_cache", "rope_and_append", "rope_both_and_append")


def expectations(bound: Bound, want: tuple[HostTensor, ...]) -> tuple[Expected, ...]:
    """Return what each result of a call is compared with at `fast`.

    bound  the call, whose inputs are as they were before it
    want   the definition's results
    """
    with np.errstate(all="ignore"):  # infinities, and what follows from them, are the definition's matter
        found = _found(bound, want)
        made = tuple(x if isinstance(x, Expected) else expected(x, y) for x, y in zip(found, want, strict=False))
    return (*made, *(exactly(y) for y in want[len(made) :]))


def _found(bound: Bound, want: tuple[HostTensor, ...]) -> tuple[Near | Expected, ...]:
    name, arguments = bound.op.name, call_arguments(bound)
    if name == "route":
        weights = rows.route(arguments["logits"], np.asarray(want[0], np.int64), bound.attrs)
        return exactly(want[0]), weights
    if name in CACHES:
        return _in_caches(bound, arguments, want)
    function = FROM_ARGUMENTS.get(name)
    return () if function is None else function(**arguments)


def _in_caches(bound: Bound, arguments: dict[str, Any], want: tuple[HostTensor, ...]) -> tuple[Near | Expected, ...]:
    exact = caches.before_rounding(bound)
    if bound.op.name == "append_paged_kv_cache":
        names = ("k_cache", "v_cache")
        return tuple(caches.stored(y, exact.get(name)) for name, y in zip(names, want, strict=False))
    table, interleave = arguments["table"], arguments["interleave"]
    query: tuple[Near, ...] = ()
    if "query" in arguments:
        query = rows.rope(arguments["query"], arguments["pos_ids"], table, interleave=interleave)
    keys, *values = want[len(query) :]
    return (
        *query,
        caches.rotated(keys, table.shape[1], interleave, exact.get("k_cache")),
        *(caches.stored(y, exact.get("v_cache")) for y in values),
    )
