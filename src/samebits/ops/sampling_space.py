"""The space of `sample`, and the inputs of its drawn cases: every row has parameters of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.ops.cases import default_inputs
from samebits.ops.record import FLOATS, Case, Op
from samebits.ops.space import Row, Space, choice, setting, size
from samebits.ops.spaces import at_least_one, number
from samebits.ops.values import contents

F = np.float32
TEMPERATURES = (0.0, 1.0, 0.8, 0.3, 1.7, 1e-4, 50.0, 1e6)
TOP_PS = (1.0, 0.9, 0.5, 0.1, 2.0**-16)
MIN_PS = (0.0, 0.02, 0.3, 1.0)
PENALTIES = {"repetition": (1.0, 1.3, 0.5, 1e3), "presence": (0.0, 0.7, -1.5), "frequency": (0.0, 0.4, -0.3)}
MANY_TIMES = (1 << 16, 1 << 20, (1 << 20) + 1, (1 << 24) - 1, 1 << 24)
SEED_EDGES = (0, 1, 2**31, 2**32 - 1)
ROW_KINDS = ("mixed", "greedy", "first-greedy", "plain", "top-k", "top-p", "min-p")
ROW_OPERATIONS = 20_000  # what a row costs the reference, whatever its width


def _picked(stream: Stream, choices: tuple[float, ...], count: int) -> np.ndarray:
    return np.array(choices, np.float32)[stream.integers(0, len(choices), (count,))]


def _row_parameters(kind: str, stream: Stream, num_rows: int, num_tokens: int) -> dict[str, np.ndarray]:
    """All filters in all rows ("mixed"), one of them or none, each row with a strength of its own."""
    ks = (0, 1, 2, 5, max(1, num_tokens // 2), num_tokens, num_tokens + 7, 2**31 - 1)
    top_k = np.array(ks, np.int64)[stream.child("k").integers(0, len(ks), (num_rows,))].astype(np.int32)
    temperature = _picked(stream.child("t"), TEMPERATURES if kind == "mixed" else TEMPERATURES[1:5], num_rows)
    temperature[: {"greedy": num_rows, "first-greedy": 1}.get(kind, 0)] = 0
    return {
        "temperature": temperature,
        "top_k": top_k if kind in ("mixed", "top-k") else np.zeros(num_rows, np.int32),
        "top_p": _picked(stream.child("p"), TOP_PS if kind in ("mixed", "top-p") else (1.0,), num_rows),
        "min_p": _picked(stream.child("m"), MIN_PS if kind in ("mixed", "min-p") else (0.0,), num_rows),
    }


def _bias(kind: str, stream: Stream, shape: tuple[int, int]) -> np.ndarray:
    """Return a bias of a few units, or of the logits' kind where that is far from them."""
    return contents(kind, stream, shape, "f32") if kind in FAR else stream.normal(shape, 2.0)


def drawn_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Seeds and counters over all their bits; a bias of -Inf never leaves a row without a token."""
    inputs: dict[str, Any] = default_inputs(op, case, stream)
    num_rows, num_tokens = case.dims["B"], case.dims["V"]
    words = stream.child("seed").integers(-(2**31), 2**31, (num_rows, 2))
    seeds = words.view(np.uint32) if words.size else words.astype(np.uint32)
    edge = np.array(SEED_EDGES, np.uint32)[stream.child("edge").integers(0, len(SEED_EDGES), (num_rows, 2))]
    inputs["seed"] = np.where(stream.child("edges").integers(0, 3, (num_rows, 1)) == 0, edge, seeds)
    for name in ("sample_index", "position"):
        far = stream.child(name).integers(0, 2**31 - 1, (num_rows,))
        kinds = [far, far % 600, far % 2, np.full(num_rows, 2**31 - 1)]
        inputs[name] = np.choose(stream.child(f"{name} kind").integers(0, 4, (num_rows,)), kinds).astype(np.int32)
    inputs |= _row_parameters(case.extra["rows"], stream, num_rows, num_tokens)
    if "bias" in inputs:
        bias = _bias(str(case.extra["values"]), stream.child("bias"), (num_rows, num_tokens))
        drop = stream.child("drop").integers(0, 3, (num_rows, num_tokens)) == 0
        best = np.argmax(inputs["logits"].astype(np.float32), axis=1) if num_tokens else np.zeros(num_rows, np.int64)
        drop[np.arange(num_rows), best] = False
        inputs["bias"] = np.where(drop, F(-np.inf), bias).astype(inputs["bias"].dtype)
    if "counts" in inputs:
        counts = stream.child("counts").integers(0, 4, (num_rows, num_tokens))
        many = np.array(MANY_TIMES)[stream.child("many").integers(0, len(MANY_TIMES), counts.shape)]
        inputs["counts"] = np.where(counts == 3, many, counts).astype(np.int32)
        for name, choices in PENALTIES.items():
            inputs[name] = _picked(stream.child(name), choices, num_rows)
    return inputs


def _case(row: Row) -> dict[str, Any]:
    shaping = str(row["shaping"])
    given: tuple[str, ...] = ("bias",) if shaping in ("bias", "both") else ()
    given += ("counts", *PENALTIES) if shaping in ("penalties", "both") else ()
    return {
        "dims": {"B": number(row, "B"), "V": number(row, "V")},
        "formats": {"logits": str(row["logits"])},
        "given": given,
        "extra": {"rows": row["rows"], "values": row["values"]},
    }


FAR = ("tiny", "faint", "beyond", "vast", "up-to-2^80")
VALUES = (
    *("normal", "plateaus", "equal", "mostly-minus-inf", "spikes", "sorted", "mixed", "low"),
    *("bounds", *FAR),
)
SAMPLE_SPACE = Space(
    (
        size("B", 600, least=0, usual=64),
        size("V", 262_144, usual=100),
        setting("logits", *FLOATS),
        setting("rows", *ROW_KINDS),
        setting("shaping", "none", "bias", "penalties", "both"),
        choice("values", *VALUES),
    ),
    _case,
    lambda row: at_least_one(row, "B") * (ROW_OPERATIONS + 10 * number(row, "V")),
    corners=(
        "B=3,V=55,logits=bf16,rows=first-greedy,shaping=bias,values=tiny",  # a bias that float16 rounds to zero
        "B=64,V=100,logits=f16,rows=mixed,shaping=penalties,values=up-to-2^80",  # temperatures beyond float16
        "B=2,V=262144,rows=plain,values=equal",  # draws noise for more tokens than 17 bits count
    ),
)
