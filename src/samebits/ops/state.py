"""merge_state and the conversion between cache layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.elementary import exp, log2
from samebits.core.numerics.settling import settle
from samebits.ops.cases import default_inputs
from samebits.ops.paged import layout_name
from samebits.ops.record import CACHES, FLOATS, Attr, Case, Input, Op, Result, define_op
from samebits.ops.softmax import normalizer
from samebits.ops.space import Space, choice, setting, size
from samebits.ops.spaces import MOST_ROWS, number, volume

F = np.float32
LN2 = F(0.6931471805599453)


def _check_merge(v_a: np.ndarray, s_a: np.ndarray, v_b: np.ndarray, s_b: np.ndarray) -> None:
    for name, s in (("s_a", s_a), ("s_b", s_b)):
        if np.isnan(s).any() or (s == np.inf).any():
            raise BadInput("merge_state", name, "NaN or +Inf", "finite values or -Inf")


def _merge_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Every second token of the sides in `empty` is empty; `gap` spreads the log-sum-exps apart."""
    inputs: dict[str, Any] = default_inputs(op, case, stream)
    for name in ("s_a", "s_b") if "gap" in case.extra else ():
        inputs[name] = stream.child(name).normal(inputs[name].shape) * F(case.extra["gap"])
    for name in case.extra.get("empty", ()):
        inputs[f"s_{name}"][::2] = -np.inf
        inputs[f"v_{name}"][::2] = np.nan if "gap" in case.extra else 0  # what an empty state holds does not matter
    return inputs


GAPS = {"near": 1.0, "far": 60.0, "equal": 0.0, "beyond": 2.0**20}
EMPTY = {"neither": "", "a": "a", "b": "b", "both": "ab"}
MERGE_SPACE = Space(
    (
        size("T", 5000, least=0, usual=3, far=MOST_ROWS),
        size("H", 256, usual=4),
        size("D", 600, usual=32),
        setting("v_a", *FLOATS),
        setting("v_b", *FLOATS),
        choice("empty", *EMPTY),
        choice("gap", *GAPS),
        choice("values", "normal", "mixed", "halfway", "large", "spikes", "bounds", "faint", "beyond", "vast"),
    ),
    lambda row: {
        "dims": {n: number(row, n) for n in ("T", "H", "D")},
        "formats": {"v_a": str(row["v_a"]), "v_b": str(row["v_b"])},
        "extra": {"values": row["values"], "empty": EMPTY[str(row["empty"])], "gap": GAPS[str(row["gap"])]},
    },
    volume("T", "H", "D"),
    corners=("T=65537,H=1,D=2",),
)
SIZES = {"T": 5, "H": 4, "D": 32}


@define_op(
    inputs=[
        Input("v_a", "T H D", FLOATS, "partial output"),
        Input("s_a", "T H", ("f32",), "its log-sum-exp, base 2; -Inf for an empty state"),
        Input("v_b", "T H D", FLOATS, "the other partial output"),
        Input("s_b", "T H", ("f32",), "its log-sum-exp"),
    ],
    results=[Result("v", "T H D", "=v_a"), Result("s", "T H", "f32", "log-sum-exp of both, base 2")],
    freedom="the device's elementary functions",
    cases=lambda: [
        *(Case(f"small-{f}", SIZES, {}, {"v_a": f, "v_b": f}) for f in FLOATS),
        Case("one-empty", SIZES, extra={"empty": ("a",)}),
        Case("both-empty", SIZES, extra={"empty": ("a", "b")}),
        Case("no-tokens", {**SIZES, "T": 0}),
    ],
    invariant_axes=("T", "H"),
    check=_check_merge,
    make_inputs=_merge_inputs,
    space=lambda: MERGE_SPACE,
    smallest=-124,
)
def merge_state(v_a: np.ndarray, s_a: np.ndarray, v_b: np.ndarray, s_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """w = 2^(s - max); (v_a * w_a + v_b * w_b) * recip(w_a + w_b). Two empty states give 0 and -Inf."""
    maximum = np.maximum(s_a, s_b)
    shift = np.where(maximum == -np.inf, F(0), maximum)
    w_a, w_b = (exp((s - shift) * LN2) for s in (s_a, s_b))
    total = w_a + w_b
    v = (_weighted(v_a, w_a) + _weighted(v_b, w_b)) * normalizer(total)[..., None]
    s = maximum + log2(np.where(total > 0, total, F(1)))
    return settle(v), settle(s)


def _check_cache(cache: HostTensor, source: str, target: str) -> None:
    if cache.ndim not in (4, 5):  # an MLA cache has no heads to exchange
        raise BadInput("convert_kv_layout", "cache", f"{cache.ndim} axes", "4 (split) or 5 (unified)")


def _weighted(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    """v * w, and +0 for an empty state, whatever its v holds."""
    alive = w[..., None] > 0
    return np.where(alive, np.where(alive, v, F(0)) * w[..., None], F(0))


CONVERT_SPACE = Space(
    (
        size("pages", MOST_ROWS, least=0, usual=3),
        setting("kind", "split", "unified"),
        size("A", 256, usual=4),
        size("B", 256, usual=2),
        size("D", 18, step=32),
        setting("cache", *CACHES),
        setting("source", "NHD", "HND"),
        setting("target", "HND", "NHD"),
    ),
    lambda row: {
        "dims": {
            "...": (number(row, "pages"), 2) if row["kind"] == "unified" else (number(row, "pages"),),
            **{n: number(row, n) for n in ("A", "B", "D")},
        },
        "attrs": {"source": row["source"], "target": row["target"]},
        "formats": {"cache": str(row["cache"])},
        "extra": {"values": "normal"},
    },
    volume("pages", "A", "B", "D"),
)


@define_op(
    inputs=[Input("cache", "... A B D", CACHES, "a split or unified cache in any format", raw=True)],
    attrs=[
        Attr("source", str, "NHD", "the layout that the cache has", layout_name),
        Attr("target", str, "HND", "the layout that the result has", layout_name),
    ],
    results=[Result("converted", "... O I D", "=cache", "freshly written")],
    cases=lambda: [
        *(Case(f"split-{f}", {"...": (3,), "A": 4, "B": 2, "D": 64}, {}, {"cache": f}) for f in CACHES),
        Case("unified-back", {"...": (3, 2), "A": 2, "B": 16, "D": 32}, {"source": "HND", "target": "NHD"}),
        Case("same", {"...": (2,), "A": 4, "B": 2, "D": 32}, {"target": "NHD"}),
    ],
    invariant_axes=("...",),
    check=_check_cache,
    shape_env=lambda specs, attrs: dict(
        zip("OI", specs["cache"].shape[-3:-1][:: 1 if attrs["source"] == attrs["target"] else -1], strict=True)
    ),
    space=lambda: CONVERT_SPACE,
)
def convert_kv_layout(cache: HostTensor, *, source: str = "NHD", target: str = "HND") -> HostTensor:
    """Slots and heads of every page exchanged, or a copy where the layouts agree."""
    if isinstance(cache, Packed):
        return Packed(cache.format, _exchange(cache.data, source, target), cache.scale)
    return _exchange(cache, source, target)


def _exchange(x: np.ndarray, source: str, target: str) -> np.ndarray:
    return x.copy() if source == target else np.ascontiguousarray(x.swapaxes(-3, -2))
