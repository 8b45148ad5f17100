"""share_quantization: x is put into int8 blocks once for all products with block weights that read it."""

from __future__ import annotations

from typing import Any

from samebits.graph import Graph, Value
from samebits.graph.rewrite import apply_rules
from samebits.ops.record import BLOCK_WEIGHTS
from samebits.passes.canonicalize import merge_equal
from samebits.passes.rules import Supports, rule


def _quantized_first(b: Any, x: Value, weight: Value, bias: Value | None = None) -> Value | None:
    """A 16-bit result is of another format than gemm_q8's, and a dense weight needs no blocks."""
    if x.spec.format != "f32" or weight.spec.format not in BLOCK_WEIGHTS:
        return None
    codes, scales = b.quantize_q8(x)
    return b.gemm_q8(codes, scales, weight, bias)


def _experts_quantized_first(
    b: Any, x: Value, weight: Value, pairs: Value, seg_indptr: Value, bias: Value | None = None
) -> Value | None:
    """The same for stacked weights; experts that share a row of x read the same codes."""
    if x.spec.format != "f32" or weight.spec.format not in BLOCK_WEIGHTS:
        return None
    codes, scales = b.quantize_q8(x)
    return b.expert_gemm_q8(codes, scales, weight, pairs, seg_indptr, bias)


RULES = [
    # gemm(x, weight) -> gemm_q8(quantize_q8(x), weight): what gemm does inside
    rule("gemm in two steps", lambda p, x, weight: p.gemm(x, weight), _quantized_first),
    # gemm(x, weight, bias) -> gemm_q8(quantize_q8(x), weight, bias)
    rule("gemm with bias in two steps", lambda p, x, weight, bias: p.gemm(x, weight, bias), _quantized_first),
    # expert_gemm(x, weight, ...) -> expert_gemm_q8(quantize_q8(x), weight, ...), without and with a bias
    rule(
        "expert_gemm in two steps",
        lambda p, x, weight, pairs, seg_indptr: p.expert_gemm(x, weight, pairs, seg_indptr),
        _experts_quantized_first,
    ),
    rule(
        "expert_gemm with bias in two steps",
        lambda p, x, weight, pairs, seg_indptr, bias: p.expert_gemm(x, weight, pairs, seg_indptr, bias),
        _experts_quantized_first,
    ),
]


def share_quantization(graph: Graph, supports: Supports) -> Graph:
    """Products of float32 x and block weights in two steps where both are supported, equal first steps made one."""
    return merge_equal(apply_rules(graph, RULES, accept=lambda node: supports(node) is None))
