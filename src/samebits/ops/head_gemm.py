"""head_gemm: a matrix of its own for every head, in gemm's arithmetic.

Latent attention brings queries into the space of its cache with one such product, and results out of it with another.
Nobody else reads what these multiply, so that there is no form on shared int8 blocks as gemm has one in gemm_q8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.ops.gemm import PRODUCT_FREEDOM, check_weight, matmul
from samebits.ops.gemm_spaces import HEAD_SPACE
from samebits.ops.record import FLOATS, WEIGHTS, Case, Input, Result, define_op


def _check(x: np.ndarray, weight: HostTensor) -> None:
    check_weight("head_gemm", weight)


def _case(case_id: str, t: int, h: int, n: int, k: int, fmt: str, **kw: Any) -> Case:
    return Case(case_id, {"T": t, "H": h, "N": n, "K": k}, {}, {"weight": fmt}, **kw)


@define_op(
    inputs=[
        Input("x", "T H K", FLOATS, "activations by heads"),
        Input("weight", "H N K", WEIGHTS, "one matrix per head", raw=True, in_blocks=True),
    ],
    results=[Result("y", "T H N", "=x")],
    freedom=PRODUCT_FREEDOM,
    cases=lambda: [
        *(_case(f"small-{f}", 3, 2, 24, 256, f) for f in WEIGHTS),
        _case("odd-k-f16", 2, 3, 5, 131, "f16"),
        Case("bf16-all", {"T": 4, "H": 2, "N": 24, "K": 96}, {}, {"x": "bf16", "weight": "bf16"}),
        _case("no-tokens", 0, 2, 8, 64, "q8_0"),
        _case("latent-in", 1, 16, 512, 128, "q8_0"),
        _case("latent-out", 9, 16, 128, 512, "q8_0"),
    ],
    invariant_axes=("T",),
    check=_check,
    operations=lambda x, weight: 2 * x.shape[0] * weight.shape[0] * weight.shape[1] * weight.shape[2],
    space=lambda: HEAD_SPACE,
    smallest=-123,
)
def head_gemm(x: np.ndarray, weight: HostTensor) -> np.ndarray:
    """y[t, h] = x[t, h] @ weight[h]^T."""
    num_tokens, num_heads, _ = x.shape
    y = np.zeros((num_tokens, num_heads, weight.shape[1]), np.float32)
    for h in range(num_heads):
        y[:, h] = matmul(x[:, h], weight[h], "head_gemm")
    return y
