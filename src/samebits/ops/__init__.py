"""WHAT is computed: one record per op, its numpy reference the definition.

A new op is a new module (or a function in a fitting one) listed here.
"""

from samebits.ops import (  # noqa: F401  (importing registers)
    activation,
    append,
    attention,
    combine,
    conv,
    copy_pages,
    copy_slots,
    delta,
    elementwise,
    embedding,
    experts,
    experts_q8,
    fused,
    gemm,
    gemm_q8,
    gemm_silu,
    head_gemm,
    norm,
    norm_q8,
    quantize,
    reshape,
    rope,
    rope_both,
    route,
    sampling,
    select,
    softmax,
    ssm,
    state,
)
from samebits.ops.cases import make_inputs
from samebits.ops.evaluate import Bound, bind, call, evaluate
from samebits.ops.record import OPS, Op

__all__ = ["OPS", "Bound", "Op", "bind", "call", "evaluate", "make_inputs"]
