"""softmax over the last axis, with what attention-like callers add to it."""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.elementary import exp, recip, tanh
from samebits.core.numerics.settling import settle
from samebits.core.numerics.sums import row_sum
from samebits.ops.cases import default_inputs
from samebits.ops.record import FLOATS, Attr, Case, Input, Op, Result, define_op
from samebits.ops.sizes import float_cases, rows
from samebits.ops.space import Row, choice, setting
from samebits.ops.spaces import FINITE, distinct, row_space

F = np.float32
NEG_INF = F(-np.inf)


def soft_capped(s: np.ndarray, cap: float) -> np.ndarray:
    """cap * tanh(settle(settle(s) * recip(cap))); s itself when cap is 0."""
    if cap == 0:
        return s
    cap32 = np.array(cap, np.float32)
    return cap32 * tanh(settle(settle(s) * recip(cap32)))


def shifted_exp(s: np.ndarray, keep: np.ndarray, sinks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The exact maximum, exp(s - maximum) and exp(sink - maximum), masked places +0.

    s, keep [..., n]; sinks [...] or None. Returns (maximum [...], p [..., n], sink term [...]);
    a row with nothing to look at has maximum -inf and zeros.
    """
    maximum = np.where(keep, s, NEG_INF).max(axis=-1, initial=NEG_INF)
    if sinks is not None:
        maximum = np.maximum(maximum, sinks)
    shift = np.where(maximum == NEG_INF, F(0), maximum)
    p = np.where(keep, exp(np.where(keep, s, NEG_INF) - shift[..., None]), F(0))
    sink_term = np.zeros_like(maximum) if sinks is None else exp(sinks - shift)
    return maximum, p, sink_term


def normalizer(total: np.ndarray) -> np.ndarray:
    """recip(total), or 0 for a row with nothing to look at."""
    return np.where(total > F(0), recip(np.where(total > F(0), total, F(1))), F(0))


def not_negative(x: float) -> str | None:
    return None if x == 0 or 2.0**-50 <= x <= 2.0**50 else "0 (off) or 2^-50 .. 2^50"


def check_sinks(where: str, sinks: np.ndarray | None) -> None:
    """No NaN or +Inf; -Inf is a sink that takes nothing."""
    if sinks is not None and not (sinks < np.inf).all():
        raise BadInput(where, "sinks", "NaN or +Inf", "finite values or -Inf")


@define_op(
    inputs=[Input("x", "... K", FLOATS, "input")],
    attrs=[Attr("cap", float, 30.0, "largest magnitude of the result; 0 is off", not_negative)],
    results=[Result("y", "... K", "=x")],
    freedom="tanh within 2^-20",
    cases=lambda: [
        *float_cases("x"),
        Case("gemma-2", rows(2, 2304), {"cap": 30.0}),
        Case("off", rows(2, 9), {"cap": 0.0}),
    ],
    invariant_axes=("...",),
    space=lambda: row_space(
        values=(*FINITE, "extreme", "infinite", "nan"),
        attrs=distinct({"cap": (30.0, 0.0, 50.0, 3.3, 2.0**-50, 2.0**50)}),
        operations=4,
    ),
    smallest=-101,
)
def soft_cap(x: np.ndarray, *, cap: float = 30.0) -> np.ndarray:
    """cap * tanh(x * recip(cap))."""
    return settle(soft_capped(x, cap))


def _check(x: np.ndarray, mask: np.ndarray | None, sinks: np.ndarray | None, scale: float, soft_cap: float) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = x * F(scale)
    if np.isnan(x).any() or (x == np.inf).any() or np.isnan(scaled).any() or (scaled == np.inf).any():
        raise BadInput("softmax", "x", "NaN or +Inf, in x or in x * scale", "finite values or -Inf")
    check_sinks("softmax", sinks)


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """`kept` is the share that a mask keeps; None: of each row another, nothing and all among them."""
    inputs = default_inputs(op, case, stream)
    if "mask" in inputs:
        shape = inputs["mask"].shape
        kept = case.extra.get("kept", 0.7)
        if kept is None:
            kept = stream.child("kept").integers(0, 3, (*shape[:-1], 1)).astype(np.float32) * F(0.5)
        inputs["mask"] = stream.child("mask").uniform(0, 1, shape) < kept
    return inputs


KEPT = {"most": 0.9, "few": 0.1, "nothing": 0.0, "by-row": None}
MINUS_INF = ("mostly-minus-inf", "minus-inf-rows")


def _softmax_fits(row: Row) -> bool:
    """No scale makes NaN or +Inf of what x holds."""
    scale = float(row.get("scale", 1.0))
    return scale > 0 if row.get("values") in MINUS_INF else row.get("values") != "extreme" or abs(scale) <= 1


SOFTMAX_SPACE = row_space(
    optional=("sinks",),
    most=262_144,
    values=(*FINITE, "low", "plateaus", "extreme", *MINUS_INF),
    attrs=distinct({"scale": (1.0, 0.125, 0.0, -1.7, 3.3), "soft_cap": (0.0, 30.0, 3.3)}),
    others=(setting("mask", "none", "all-rows", "one-row"), choice("kept", *KEPT)),
    extra=lambda row: {"mask_dims": int(row["mask"] == "one-row"), "kept": KEPT[str(row["kept"])]},
    given=lambda row: () if row["mask"] == "none" else ("mask",),
    fits=_softmax_fits,
    corners=(
        "rows=4,axes=1,K=64,x=f32,sinks=f32,values=faint,scale=1.0,soft_cap=0.0,mask=none,kept=most",
        "rows=33,K=300,sinks=f32",  # a sink beside many columns shows where it is large
    ),
    operations=2,
    padded=512,
)


@define_op(
    inputs=[
        Input("x", "... K", FLOATS, "logits; -Inf is allowed"),
        Input("mask", ("... K", "K"), ("bool",), "true keeps an element", optional=True),
        Input("sinks", "...", FLOATS, "one more logit per row, in the sum but not in the result", optional=True),
    ],
    attrs=[
        Attr("scale", float, 1.0, "multiplies x first"),
        Attr("soft_cap", float, 0.0, "then cap * tanh(x / cap); 0 is off", not_negative),
    ],
    results=[Result("y", "... K", "=x")],
    freedom="order of sums in float32; exponentials in base e or 2, of terms scaled before they are subtracted",
    cases=lambda: [
        *float_cases("x"),
        Case("scale-cap", rows(3, 70), {"scale": 0.125, "soft_cap": 30.0}),
        Case("mask", rows(4, 300), given=("mask",)),
        Case("mask-all", rows(4, 33), given=("mask",), extra={"kept": 0.0}),
        Case("sinks", rows(4, 128), given=("sinks", "mask")),
        Case("one", rows(3, 1)),
        Case("zero-rows", rows(0, 9)),
        Case("smollm2-vocabulary", rows(2, 49152)),
        Case("llama-3-vocabulary", rows(4, 128256), full=True),
    ],
    invariant_axes=("...",),
    check=_check,
    make_inputs=_inputs,
    space=lambda: SOFTMAX_SPACE,
    smallest=-123,
)
def softmax(
    x: np.ndarray,
    mask: np.ndarray | None = None,
    sinks: np.ndarray | None = None,
    *,
    scale: float = 1.0,
    soft_cap: float = 0.0,
) -> np.ndarray:
    """exp(s - max s) * recip(sum), s = capped(x * scale); a fully masked row is 0."""
    s = soft_capped(x * F(scale), soft_cap)
    keep = np.ones(x.shape, bool) if mask is None else np.broadcast_to(mask, x.shape)
    _, p, sink_term = shifted_exp(s, keep, sinks)
    return settle(p * normalizer(row_sum(p) + sink_term)[..., None])
