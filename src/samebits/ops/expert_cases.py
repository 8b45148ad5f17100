"""Cases of the ops on experts, and their inputs: choices by name, activations as quantize_q8 makes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import BLOCK, HostTensor
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.settling import settle
from samebits.ops.cases import default_inputs
from samebits.ops.pairs import layout_of
from samebits.ops.quantize import quantize_q8
from samebits.ops.record import Case, Op
from samebits.ops.values import contents

CHOSEN = ("scattered", "even", "same")


def chosen_experts(kind: str, num_tokens: int, num_ranks: int, num_experts: int, stream: Stream) -> np.ndarray:
    """int32 [T, R]: scattered, even (in turn), or the same experts for all; no expert twice for a token."""
    if kind == "even":
        turns = np.arange(num_tokens * num_ranks).reshape(num_tokens, num_ranks)
        return (turns % num_experts).astype(np.int32)
    if kind == "same":
        one = np.argsort(stream.uniform(0, 1, (num_experts,)), kind="stable")[:num_ranks]
        return np.tile(one, (num_tokens, 1)).astype(np.int32)
    order = np.argsort(stream.uniform(0, 1, (num_tokens, num_experts)), axis=-1, kind="stable")
    return order[:, :num_ranks].astype(np.int32)


def laid_out(expert_ids: np.ndarray, num_experts: int) -> dict[str, np.ndarray]:
    """`pairs` and `seg_indptr` of these choices."""
    pairs, seg_indptr = layout_of(expert_ids, num_experts)
    return {"pairs": pairs, "seg_indptr": seg_indptr}


def expert_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """`chosen` says how tokens choose. Codes and scales are what quantize_q8 makes of the case's values."""
    inputs = default_inputs(op, case, stream)
    num_experts = case.dims.get("E") or case.attrs["num_experts"]
    ids = chosen_experts(case.extra["chosen"], case.dims["T"], case.dims["R"], num_experts, stream.child("chosen"))
    if "expert_ids" in inputs:
        return {"expert_ids": ids}
    if "codes" in inputs:
        shape = (case.dims["X"], BLOCK * case.dims["NB"])
        x = contents(case.extra.get("values", "normal"), stream.child("x"), shape, "f32")
        inputs["codes"], inputs["scales"] = quantize_q8(settle(x))
    return {**inputs, **laid_out(ids, num_experts)}


def expert_dims(t: int, r: int, e: int, rows: str) -> dict[str, int]:
    """A row of x per "token" or per "pair"."""
    return {"T": t, "R": r, "E": e, "P": t * r, "X": t if rows == "token" else t * r}


def expert_case(
    case_id: str,
    t: int,
    r: int,
    e: int,
    n: int,
    k: int,
    fmt: str,
    *,
    rows: str = "token",
    chosen: str = "scattered",
    attrs: dict[str, Any] | None = None,
    **kw: Any,
) -> Case:
    """A product of every op on experts: N outputs of K, in whole blocks where they are counted."""
    dims = {**expert_dims(t, r, e, rows), "N": n, "K": k, "NB": k // BLOCK, "HB": n // (2 * BLOCK)}
    return Case(case_id, dims, attrs or {}, {"weight": fmt}, extra={"chosen": chosen}, **kw)
