"""combine: a token's experts become one row again."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.numerics.elementary import sigmoid
from samebits.core.numerics.settling import settle
from samebits.core.numerics.sums import chain
from samebits.core.shapes import Env, Sym, TensorSpec
from samebits.ops.expert_equivalents import combine_equivalents
from samebits.ops.expert_spaces import COMBINE_SPACE
from samebits.ops.pairs import check_pairs
from samebits.ops.record import FLOATS, Case, Input, Result, define_op


def _env(specs: dict[str, TensorSpec], attrs: dict[str, Any]) -> Env:
    """Refuses rows that are not those of all choices."""
    num_tokens, num_ranks = specs["weights"].shape
    if isinstance(num_ranks, Sym):
        raise BadInput("combine", "weights", f"shape [{num_tokens}, {num_ranks}]", "a fixed number of ranks")
    check_pairs("combine", "y", num_tokens, specs["y"].shape[0], num_ranks)
    if "shared_gate" in specs and "shared" not in specs:
        raise BadInput("combine", "shared_gate", "no shared row beside it", "shared too")
    return {}


def _case(case_id: str, t: int, r: int, n: int, **kw: Any) -> Case:
    return Case(case_id, {"T": t, "R": r, "P": t * r, "N": n}, **kw)


SHARED = ("shared",)
GATED = ("shared", "shared_gate")


@define_op(
    inputs=[
        Input("y", "P N", FLOATS, "the experts' rows, row t * R + r for token t's choice of rank r"),
        Input("weights", "T R", ("f32",), "route(): of each choice"),
        Input("shared", "T N", FLOATS, "the row of experts that all tokens have, added last", optional=True),
        Input("shared_gate", "T 1", FLOATS, "its sigmoid multiplies the shared row", optional=True),
    ],
    results=[Result("out", "T N", "=y")],
    freedom="order of sums in float32; the device's elementary functions",
    cases=lambda: [
        *(_case(f"small-{f}", 3, 2, 48, formats={"y": f}) for f in FLOATS),
        _case("shared", 3, 4, 48, given=SHARED),
        _case("shared-gate", 3, 4, 48, given=GATED),
        _case("mixtral", 4, 2, 4096),
        _case("deepseek-v3", 3, 8, 1024, given=SHARED),
        _case("one-rank", 5, 1, 33),
        _case("no-tokens", 0, 2, 16, given=GATED),
    ],
    invariant_axes=("T", "P"),
    shape_env=_env,
    equivalents=combine_equivalents,
    operations=lambda y, **_: 2 * y.size,
    space=lambda: COMBINE_SPACE,
    smallest=-123,
)
def combine(
    y: np.ndarray, weights: np.ndarray, shared: np.ndarray | None = None, shared_gate: np.ndarray | None = None
) -> np.ndarray:
    """The sum of weight * row in order of ranks, then + shared * sigmoid(shared_gate)."""
    num_tokens, num_ranks = weights.shape
    by_rank = y.reshape(num_tokens, num_ranks, y.shape[1]) * weights[..., None]
    total = chain(by_rank.swapaxes(1, 2))
    if shared is not None:
        total = total + (shared if shared_gate is None else shared * sigmoid(shared_gate))
    return settle(total)
