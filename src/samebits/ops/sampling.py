"""sample: filters in a stated order, then the Gumbel-max draw. The same bits whatever else is in the batch.

Order: bias, penalties, temperature, top-k, top-p, min-p, draw.
Noise is a pure function of (seed, sample index, position, token id). Temperature 0 is argmax before the filters.
top-p counts probability mass in integers, so the mass before a token does not depend on the order of a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream, threefry, to_uniform
from samebits.core.numerics.elementary import exp, log, recip
from samebits.core.numerics.settling import settle
from samebits.ops.cases import default_inputs
from samebits.ops.ragged import check_no_nan
from samebits.ops.record import FLOATS, INDEX, Case, Input, Op, Result, define_op
from samebits.ops.sampling_space import SAMPLE_SPACE, drawn_inputs
from samebits.ops.select import ranking

F = np.float32
NEG_INF = F(-np.inf)
MASS_ONE = F(2.0**28)  # the likeliest token's mass; others are rounded to this grid
TOP_P_ONE = 2**16


def penalized(
    x: np.ndarray, counts: np.ndarray, repetition: np.ndarray, presence: np.ndarray, frequency: np.ndarray
) -> np.ndarray:
    """Logits of seen tokens: x * recip(repetition), x * repetition below 0; then - counts * frequency - presence."""
    seen = counts > 0
    repeated = np.where(x > F(0), x * recip(repetition), x * repetition)
    lowered = (repeated - counts.astype(np.float32) * frequency) - presence
    return settle(np.where(seen, lowered, x))


def filtered(x: np.ndarray, top_k: int, top_p: np.float32, min_p: np.float32) -> np.ndarray:
    """One row of logits [V] with what the three filters drop at -Inf. 0 turns top-k and min-p off, 1 top-p."""
    order = ranking(x)
    keep = np.zeros(len(x), bool)
    keep[order[: top_k or len(x)]] = True
    weight = np.where(keep, exp(np.where(keep, x, NEG_INF) - x[order[0]]), F(0))
    if top_p < F(1):
        mass = np.rint(weight * MASS_ONE).astype(np.int64)[order]
        before = np.cumsum(mass) - mass
        # before * 2^16 < share * total; Python's integers, since from 2^19 equal tokens on it does not fit int64
        limit = -(-int(np.rint(top_p * F(TOP_P_ONE))) * int(mass.sum()) // TOP_P_ONE)
        inside = before < limit
        inside[0] = True
        keep[order[~inside]] = False
    keep &= weight >= min_p
    return np.where(keep, x, NEG_INF)


def gumbel(seed: np.ndarray, sample_index: np.ndarray, position: np.ndarray, num_tokens: int) -> np.ndarray:
    """Noise float32 [num_tokens] of one row: -log(-log u)."""
    key = threefry((seed[0], seed[1]), (sample_index.astype(np.uint32), position.astype(np.uint32)))
    word, _ = threefry(key, (np.arange(num_tokens, dtype=np.uint32), np.zeros(1, np.uint32)))
    return -log(-log(to_uniform(word)))


PENALTIES = ("counts", "repetition", "presence", "frequency")
ROW = "B"


def shaped(logits: np.ndarray, bias: np.ndarray | None, **penalties: np.ndarray | None) -> np.ndarray:
    """Logits [B, V] after bias and penalties, settled after each. `penalties` are all of PENALTIES, or all None."""
    x = logits if bias is None else settle(logits + bias)
    rows = {name: array for name, array in penalties.items() if array is not None}
    counts = rows.pop("counts", None)
    return x if counts is None else penalized(x, counts, **{name: row[:, None] for name, row in rows.items()})


# Infinity minus infinity is NaN, which has no rank. The largest logit tells: what lies below may become -Inf.
OVERFLOW_WORDS = (
    "a row whose largest logit, after bias, penalties and temperature, is infinite",
    "a largest logit within float32's range",
)


def _check(logits: np.ndarray, **rows: Any) -> None:
    with np.errstate(over="ignore"):
        _check_rows(logits, **rows)


def _check_rows(logits: np.ndarray, **rows: Any) -> None:
    check_no_nan("sample", "logits", logits)
    if logits.shape[1] == 0 or (logits == np.inf).any() or (logits.max(axis=1, initial=NEG_INF) == NEG_INF).any():
        raise BadInput("sample", "logits", "a row that is empty, all -Inf or holds +Inf", "a finite logit in every row")
    bias = rows["bias"]
    if bias is not None:
        if not (bias < np.inf).all():
            raise BadInput("sample", "bias", "NaN or +Inf", "finite values or -Inf")
        if ((logits + bias).max(axis=1, initial=NEG_INF) == NEG_INF).any():
            raise BadInput("sample", "bias", "a row that leaves no token", "a finite logit in every row")
    present = [name for name in PENALTIES if rows[name] is not None]
    if present and len(present) != len(PENALTIES):
        raise BadInput("sample", "penalties", ", ".join(present), f"all of {', '.join(PENALTIES)}")
    bounds: dict[str, tuple[float, float]] = {
        "temperature": (0, 1e6),
        "top_k": (0, 2**31 - 1),
        "top_p": (2.0**-16, 1),
        "min_p": (0, 1),
        "repetition": (1e-3, 1e3),
        "presence": (-1e3, 1e3),
        "frequency": (-1e3, 1e3),
        "counts": (0, 2**24),
        "sample_index": (0, 2**31 - 1),
        "position": (0, 2**31 - 1),
    }
    for name, (low, high) in bounds.items():
        values = rows[name]
        if values is not None and not ((values >= low) & (values <= high)).all():
            raise BadInput(
                "sample", name, values[~((values >= low) & (values <= high))][:1].tolist(), f"{low} .. {high}"
            )
    temperature = rows["temperature"]
    small = (temperature > 0) & (temperature < 1e-4)
    if small.any():
        raise BadInput("sample", "temperature", temperature[small][:1].tolist(), "0, or 0.0001 and more")
    top = shaped(logits, bias, **{name: rows[name] for name in PENALTIES}).max(axis=1, initial=NEG_INF)
    if not np.isfinite(top * recip(np.where(temperature > 0, temperature, F(1)))).all():
        raise BadInput("sample", "logits", *OVERFLOW_WORDS)


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    if "rows" in case.extra:
        return drawn_inputs(op, case, stream)
    inputs = default_inputs(op, case, stream)
    num_rows, num_tokens = case.dims["B"], case.dims["V"]
    inputs["seed"] = stream.child("seed").integers(0, 2**31 - 1, (num_rows, 2)).astype(np.uint32)
    inputs["position"] = np.arange(num_rows, dtype=np.int32)
    settings = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for name, usual in settings.items():
        inputs[name] = np.full(num_rows, case.extra.get(name, usual), np.int32 if name == "top_k" else np.float32)
    if "counts" in case.given:
        inputs["counts"] = stream.child("counts").integers(0, 3, (num_rows, num_tokens))
        inputs.update(
            {
                n: np.full(num_rows, v, np.float32)
                for n, v in (("repetition", 1.3), ("presence", 0.2), ("frequency", 0.1))
            }
        )
    return inputs


def _sizes(b: int, v: int) -> dict[str, int]:
    return {"B": b, "V": v}


@define_op(
    inputs=[
        Input("logits", "B V", FLOATS, "one row per sequence; -Inf is allowed, NaN is not"),
        Input("seed", "B 2", ("u32",), "low and high word of the request's seed"),
        Input("sample_index", ROW, INDEX, "which of n samples of a request"),
        Input("position", ROW, INDEX, "position of the token to draw"),
        Input("temperature", ROW, ("f32",), "0 is argmax"),
        Input("top_k", ROW, INDEX, "0 is off"),
        Input("top_p", ROW, ("f32",), "1 is off"),
        Input("min_p", ROW, ("f32",), "0 is off"),
        Input("bias", "B V", ("f32",), "added to the logits first", optional=True),
        Input("counts", "B V", INDEX, "how often each token was seen", optional=True),
        Input("repetition", ROW, ("f32",), "with counts; 1 is off", optional=True),
        Input("presence", ROW, ("f32",), "with counts; 0 is off", optional=True),
        Input("frequency", ROW, ("f32",), "with counts; 0 is off", optional=True),
    ],
    results=[Result("tokens", "B", "i32")],
    cases=lambda: [
        *(Case(f"small-{f}", _sizes(4, 100), {}, {"logits": f}) for f in FLOATS),
        Case("greedy", _sizes(4, 100), extra={"temperature": 0.0}),
        Case("top-k", _sizes(4, 100), extra={"top_k": 5}),
        Case("top-p", _sizes(4, 100), extra={"top_p": 0.7}),
        Case("min-p", _sizes(4, 100), extra={"min_p": 0.2}),
        Case("all-filters", _sizes(4, 100), extra={"top_k": 20, "top_p": 0.9, "min_p": 0.05}),
        Case("penalties", _sizes(4, 100), given=("bias", *PENALTIES)),
        Case("smollm2-vocabulary", _sizes(3, 49152), extra={"top_k": 40, "top_p": 0.95}),
        # top-p keeps more than 2^19 masses of 2^28, which times 2^16 do not fit int64
        Case("many-equals", _sizes(2, 700_000), extra={"top_p": 0.75, "values": "equal"}, full=True),
        Case("no-rows", _sizes(0, 10)),
    ],
    invariant_axes=("B",),
    check=_check,
    make_inputs=_inputs,
    space=lambda: SAMPLE_SPACE,
    smallest=-83,
)
def sample(
    logits: np.ndarray,
    seed: np.ndarray,
    sample_index: np.ndarray,
    position: np.ndarray,
    temperature: np.ndarray,
    top_k: np.ndarray,
    top_p: np.ndarray,
    min_p: np.ndarray,
    bias: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    repetition: np.ndarray | None = None,
    presence: np.ndarray | None = None,
    frequency: np.ndarray | None = None,
) -> np.ndarray:
    """argmax(filtered logits + Gumbel noise), row by row."""
    x = shaped(logits, bias, counts=counts, repetition=repetition, presence=presence, frequency=frequency)
    tokens = np.zeros(len(x), np.int32)
    for b, row in enumerate(x):
        if temperature[b] == 0:
            tokens[b] = np.argmax(row)
            continue
        scaled = settle(row * recip(temperature[b : b + 1]))
        survivors = filtered(scaled, int(top_k[b]), top_p[b], min_p[b])
        tokens[b] = np.argmax(survivors + gumbel(seed[b], sample_index[b], position[b], len(row)))
    return tokens
