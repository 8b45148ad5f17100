"""causal_conv: a depthwise convolution over the last K inputs of every channel, the carry in a slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.numerics.elementary import sigmoid
from samebits.core.numerics.settling import settle
from samebits.ops.record import STATES, Attr, Input, Result, define_op
from samebits.ops.slot_cases import CONV_CASES, conv_inputs
from samebits.ops.slot_equivalents import slot_equivalents
from samebits.ops.slot_spaces import CONV_SPACE
from samebits.ops.slots import CHUNK, POSITIONS, QO_INDPTR, SLOTS, check_runs, runs, state_input

OP = "causal_conv"


def _activation(name: str) -> str | None:
    return None if name in ("none", "silu") else "'none' or 'silu'"


def _check(carry: np.ndarray, qo_indptr: np.ndarray, positions: np.ndarray, slots: np.ndarray, **_: Any) -> None:
    check_runs(OP, qo_indptr, positions, slots, len(carry))


@define_op(
    inputs=[
        Input("x", "T C", STATES, "a row of channels for every token"),
        Input("weight", "C J+1", STATES, "taps of each channel, the last of which meets the token itself"),
        state_input(
            "carry", "N 2 J C", "inputs of every slot, oldest first: the last J, and the J before its boundary"
        ),
        QO_INDPTR,
        POSITIONS,
        SLOTS,
        Input("bias", "C", STATES, "added to the sum", optional=True),
    ],
    attrs=[Attr("activation", str, "none", "'silu', or 'none'", _activation)],
    results=[Result("y", "T C", "=x"), Result("carry", "", "=carry", alias_of="carry")],
    freedom="order of sums in float32; the device's elementary functions",
    cases=lambda: CONV_CASES,
    invariant_axes=("T", "B", "N"),
    check=_check,
    make_inputs=conv_inputs,
    equivalents=slot_equivalents,
    space=lambda: CONV_SPACE,
    operations=lambda x, weight, **_: 2 * x.size * weight.shape[1],
    smallest=-123,
)
def causal_conv(
    x: np.ndarray,
    weight: np.ndarray,
    carry: np.ndarray,
    qo_indptr: np.ndarray,
    positions: np.ndarray,
    slots: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    activation: str = "none",
) -> tuple[np.ndarray, np.ndarray]:
    """y_t = activation(sum over taps i, in order, of weight[:, i] * x_(t - K + 1 + i), + bias); 0 before position 0."""
    num_taps = weight.shape[1]
    y = np.zeros(x.shape, np.float32)
    for run in runs(qo_indptr, positions, slots):
        own = carry[run.slot]
        # a sequence that resumes at a boundary has the carry of that boundary alone
        before = np.zeros_like(own[0]) if run.first == 0 else own[int(run.first % CHUNK == 0)]
        inputs = np.concatenate([before, x[run.rows]])
        for i in range(num_taps):
            y[run.rows] += weight[:, i] * inputs[i : i + run.count]
        own[0] = inputs[run.count :]
        boundary = run.stop - run.stop % CHUNK
        if boundary > run.first:
            own[1] = inputs[boundary - run.first : boundary - run.first + num_taps - 1]
    total = settle(y if bias is None else y + bias)
    return (settle(total * sigmoid(total)) if activation == "silu" else total), carry
