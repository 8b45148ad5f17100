"""Choosing by size: top_k, top_k_mask_logits, argmax. Equal values rank by index, lowest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.ops.cases import default_inputs
from samebits.ops.ragged import check_no_nan
from samebits.ops.record import FLOATS, Attr, Case, Input, Op, Result, define_op, positive
from samebits.ops.sizes import rows
from samebits.ops.space import Factor, Row, Space, size
from samebits.ops.spaces import FINITE, number, row_space


def ranking(x: np.ndarray) -> np.ndarray:
    """Indices [..., n] from the largest value to the smallest, lowest index first among equals (-0 equals +0)."""
    return np.argsort(-x, axis=-1, kind="stable")


def _check_top_k(x: np.ndarray, k: int) -> None:
    check_no_nan("top_k", "x", x)
    if k > x.shape[-1]:
        raise BadInput("top_k", "k", k, f"at most the row length {x.shape[-1]}")


def _ties(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Some cases round the values so coarsely that most of them are equal."""
    inputs: dict[str, Any] = default_inputs(op, case, stream)
    if case.extra.get("ties"):
        inputs["x"] = np.rint(inputs["x"])
    return inputs


def _cases(attrs: list[dict[str, Any]]) -> list[Case]:
    first, second = attrs
    return [
        *(Case(f"small-{f}", rows(8, 64), first, {"x": f}) for f in FLOATS),
        Case("special", rows(5, 40), first, extra={"special": True}),
        Case("ties", rows(8, 64), first, extra={"ties": True}),
        Case("one-column", rows(3, 1), second),
        Case("zero-rows", rows(0, 16), second),
        Case("smollm2-vocabulary", rows(2, 49152), first),
        Case("llama-3-vocabulary", rows(8, 128256), first, full=True),
    ]


RANKED = ("sorted", *FINITE, "low", "plateaus", "infinite", "mostly-minus-inf", "minus-inf-rows", "extreme")


def _space(*others: Factor, fits: Callable[[Row], bool] = lambda row: True) -> Space:
    return row_space(most=262_144, values=RANKED, others=others, fits=fits, operations=2)


def _with_k(space: Space) -> Space:
    """k is an attr of its own size."""

    def case(row: Row) -> dict[str, Any]:
        return {**space.case(row), "attrs": {"k": number(row, "k")}}

    return replace(space, case=case)


K_ATTR = Attr("k", int, 1, "the number of values", positive)
X = Input("x", "... K", FLOATS, "no NaN")


@define_op(
    aliases=("extract_k_values",),
    inputs=[X],
    attrs=[K_ATTR],
    results=[Result("values", "... k", "=x", "descending"), Result("indices", "... k", "i32")],
    cases=lambda: _cases([{"k": 5}, {"k": 1}]),
    invariant_axes=("...",),
    check=_check_top_k,
    make_inputs=_ties,
    space=lambda: _with_k(_space(size("k", 5000), fits=lambda row: int(row.get("k", 1)) <= int(row.get("K", 1 << 20)))),
)
def top_k(x: np.ndarray, *, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The k largest values of a row and their indices, largest first."""
    indices = ranking(x)[..., :k]
    return np.take_along_axis(x, indices, axis=-1), indices.astype(np.int32)


@define_op(
    aliases=("topk_mask_logits",),
    inputs=[X],
    attrs=[K_ATTR],
    results=[Result("y", "... K", "=x")],
    cases=lambda: _cases([{"k": 5}, {"k": 3}]),
    invariant_axes=("...",),
    check=lambda x, k: check_no_nan("top_k_mask_logits", "x", x),
    make_inputs=_ties,
    space=lambda: _with_k(_space(size("k", 300_000))),
)
def top_k_mask_logits(x: np.ndarray, *, k: int = 1) -> np.ndarray:
    """All but the k largest values of a row become -Inf; a k beyond the row keeps it whole."""
    y = np.full_like(x, -np.inf)
    kept = ranking(x)[..., :k]
    np.put_along_axis(y, kept, np.take_along_axis(x, kept, axis=-1), axis=-1)
    return y


def _check_argmax(x: np.ndarray) -> None:
    check_no_nan("argmax", "x", x)
    if x.shape[-1] == 0:
        raise BadInput("argmax", "x", f"shape {list(x.shape)}", "a last axis that is not empty")


@define_op(
    inputs=[X],
    results=[Result("indices", "...", "i32")],
    cases=lambda: _cases([{}, {}]),
    invariant_axes=("...",),
    check=_check_argmax,
    make_inputs=_ties,
    space=lambda: _space(),
)
def argmax(x: np.ndarray) -> np.ndarray:
    """The index of the largest value of a row, the lowest among equals."""
    return np.argmax(x, axis=-1).astype(np.int32)
