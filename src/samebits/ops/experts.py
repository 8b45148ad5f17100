"""Products with stacked expert weights: expert_layout and expert_gemm.

Pair p = t * R + r is token t's choice of rank r. A layout says which pairs lie together, and no bit depends on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.settling import settle
from samebits.core.shapes import Env, Sym, TensorSpec
from samebits.ops.expert_cases import expert_case, expert_inputs
from samebits.ops.expert_equivalents import expert_equivalents
from samebits.ops.expert_spaces import EXPERT_GEMM_SPACE, LAYOUT_SPACE
from samebits.ops.gemm import PRODUCT_FREEDOM, check_weight, matmul
from samebits.ops.pairs import check_layout, check_pairs, for_experts, layout_of, pairs_per_row, scaled_dim
from samebits.ops.ragged import check_index_range
from samebits.ops.record import FLOATS, INDEX, WEIGHTS, Attr, Case, Input, Result, define_op, positive

PAIRS = Input("pairs", "P", INDEX, "expert_layout(): the pairs of every expert, one after another")
SEGMENTS = Input("seg_indptr", "E+1", INDEX, "expert e has pairs[seg_indptr[e]] .. pairs[seg_indptr[e+1] - 1]")


def _layout_env(specs: dict[str, TensorSpec], attrs: dict[str, Any]) -> Env:
    num_tokens, num_ranks = specs["expert_ids"].shape
    if isinstance(num_ranks, Sym):
        raise BadInput("expert_layout", "expert_ids", f"shape [{num_tokens}, {num_ranks}]", "a fixed number of ranks")
    return {"P": scaled_dim(num_tokens, num_ranks)}


def _check_layout_ids(expert_ids: np.ndarray, num_experts: int) -> None:
    check_index_range("expert_layout", "expert_ids", expert_ids, num_experts)


def _layout_case(case_id: str, t: int, r: int, e: int, kind: str = "scattered") -> Case:
    return Case(case_id, {"T": t, "R": r}, {"num_experts": e}, extra={"chosen": kind})


@define_op(
    inputs=[Input("expert_ids", "T R", INDEX, "route(): the experts of each token, by rank")],
    attrs=[Attr("num_experts", int, 1, "how many there are", positive)],
    results=[
        Result("pairs", "P", "i32", "pair numbers t * R + r, by expert, then rising"),
        Result("seg_indptr", "num_experts+1", "i32", "where each expert's pairs begin, and the end"),
    ],
    cases=lambda: [
        _layout_case("small", 5, 2, 8),
        _layout_case("one-token", 1, 4, 32),
        _layout_case("one-expert", 6, 1, 1),
        _layout_case("all-the-same", 40, 2, 8, "same"),
        _layout_case("even", 33, 8, 128, "even"),
        _layout_case("no-tokens", 0, 2, 8),
        _layout_case("many", 300, 8, 256),
    ],
    invariant_axes=("T",),
    check=_check_layout_ids,
    make_inputs=expert_inputs,
    shape_env=_layout_env,
    space=lambda: LAYOUT_SPACE,
)
def expert_layout(expert_ids: np.ndarray, *, num_experts: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of every expert, in order of their numbers."""
    return layout_of(expert_ids, num_experts)


def product_env(where: str, rows_of: str) -> Any:
    """The `shape_env` of a product whose rows are those of an input: it refuses pairs that do not fit them."""

    def env(specs: dict[str, TensorSpec], attrs: dict[str, Any]) -> Env:
        check_pairs(where, "pairs", specs[rows_of].shape[0], specs["pairs"].shape[0])
        return {}

    return env


def active_bytes(weight: HostTensor, pairs: np.ndarray, seg_indptr: np.ndarray, **_: Any) -> int:
    """Bytes of the experts that have pairs."""
    stored = weight.data if isinstance(weight, Packed) else weight
    return len(for_experts(pairs, seg_indptr)) * stored.nbytes // len(stored)


def _check(x: np.ndarray, weight: HostTensor, pairs: np.ndarray, seg_indptr: np.ndarray, bias: Any) -> None:
    check_weight("expert_gemm", weight)
    check_layout("expert_gemm", pairs, seg_indptr)


@define_op(
    inputs=[
        Input("x", "X K", FLOATS, "activations: a row per token, which its experts share, or one per pair"),
        Input("weight", "E N K", WEIGHTS, "one matrix per expert", raw=True, in_blocks=True),
        PAIRS,
        SEGMENTS,
        Input("bias", "E N", FLOATS, "of each expert, added last", optional=True),
    ],
    results=[Result("y", "P N", "=x", "one row per pair, in order of pair numbers")],
    freedom=PRODUCT_FREEDOM,
    cases=lambda: [
        *(expert_case(f"small-{f}", 5, 2, 4, 24, 256, f) for f in WEIGHTS),
        *(expert_case(f"bias-{f}", 3, 2, 4, 16, 256, f, given=("bias",)) for f in ("bf16", "q4_1")),
        *(expert_case(f"rows-per-pair-{f}", 4, 2, 4, 16, 64, f, rows="pair") for f in ("f32", "q8_0")),
        expert_case("one-token", 1, 2, 8, 40, 96, "q4_0"),
        expert_case("all-the-same", 20, 2, 4, 16, 64, "q8_0", chosen="same"),
        expert_case("no-tokens", 0, 2, 4, 16, 64, "q8_0"),
    ],
    invariant_axes=("X", "P"),
    check=_check,
    make_inputs=expert_inputs,
    shape_env=product_env("expert_gemm", "x"),
    equivalents=expert_equivalents,
    operations=lambda weight, pairs, **_: 2 * len(pairs) * weight.shape[-2] * weight.shape[-1],
    weight_bytes=active_bytes,
    space=lambda: EXPERT_GEMM_SPACE,
    smallest=-123,
)
def expert_gemm(
    x: np.ndarray, weight: HostTensor, pairs: np.ndarray, seg_indptr: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    """y[p] = x[p // (P / X)] @ weight[e]^T + bias[e] for every pair p of expert e."""
    share = pairs_per_row(len(x), len(pairs))
    y = np.zeros((len(pairs), weight.shape[1]), np.float32)
    for expert, mine in for_experts(pairs, seg_indptr):
        product = matmul(x[mine // share], weight[expert], "expert_gemm")
        y[mine] = product if bias is None else settle(product + bias[expert])
    return y
