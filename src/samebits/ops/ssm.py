"""ssm_scan: Mamba-2's state-space recurrence (SSD) over a ragged batch, states in slots.

For each head, with dt = softplus(dt + dt_bias) kept within its limits and g = dt * decay, in the row form of
recurrence.py: C is q, B is k, u = dt * x, and y = o + D * x.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.numerics.elementary import softplus
from samebits.core.numerics.settling import settle
from samebits.ops.delta import check_decay, check_ring, key_heads
from samebits.ops.record import STATES, Attr, Input, Result, define_op
from samebits.ops.recurrence import Chunk, ring_width, walk
from samebits.ops.slot_cases import SSM_CASES, ssm_inputs
from samebits.ops.slot_equivalents import slot_equivalents
from samebits.ops.slot_spaces import SSM_SPACE
from samebits.ops.slots import POSITIONS, QO_INDPTR, SLOTS, check_runs, runs, state_input

OP = "ssm_scan"
F = np.float32
NO_LIMIT = 1e30  # of dt, from above


def _not_negative(value: float) -> str | None:
    return None if value >= 0 else "0 or more"


def _check(
    x: np.ndarray, B: np.ndarray, decay: np.ndarray, state: np.ndarray, ring: np.ndarray,
    qo_indptr: np.ndarray, positions: np.ndarray, slots: np.ndarray, dt_min: float, dt_max: float, **_: Any,
) -> None:  # fmt: skip
    if B.shape[1] == 0 or x.shape[1] % B.shape[1]:
        raise BadInput(OP, "x", f"{x.shape[1]} heads", f"a multiple of the {B.shape[1]} groups of B")
    if dt_min > dt_max:
        raise BadInput(OP, "dt_min", dt_min, f"at most dt_max, {dt_max:g}")
    check_decay(OP, decay)
    check_ring(OP, ring, ring_width(*B.shape[1:], *x.shape[1:]))
    check_runs(OP, qo_indptr, positions, slots, len(state))


@define_op(
    inputs=[
        Input("x", "T H P", STATES, "what enters the state"),
        Input("dt", "T H", STATES, "what the step of each token is made of"),
        Input("B", "T G S", STATES, "where it enters"),
        Input("C", "T G S", STATES, "what is read of the state"),
        Input("decay", "H", STATES, "-exp(A_log)"),
        Input("dt_bias", "H", STATES, "added to dt"),
        state_input("state", "N H S P", "state of every slot at its last boundary"),
        state_input("ring", "N 16 W", "B, u and G of every slot since its last boundary"),
        QO_INDPTR,
        POSITIONS,
        SLOTS,
        Input("D", "H", STATES, "how much of x is added", optional=True),
    ],
    attrs=[
        Attr("dt_min", float, 0.0, "the smallest step", _not_negative),
        Attr("dt_max", float, NO_LIMIT, "the largest step", _not_negative),
    ],
    results=[
        Result("y", "T H P", "=x"),
        Result("state", "", "=state", alias_of="state"),
        Result("ring", "", "=ring", alias_of="ring"),
    ],
    freedom="order of sums in float32; operands of sums over K in bfloat16; the device's elementary functions",
    cases=lambda: SSM_CASES,
    invariant_axes=("T", "B", "N"),
    check=_check,
    make_inputs=ssm_inputs,
    equivalents=slot_equivalents,
    space=lambda: SSM_SPACE,
    operations=lambda x, B, **_: x.size * B.shape[2] * 4,
    smallest=-123,
)
def ssm_scan(
    x: np.ndarray,
    dt: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    decay: np.ndarray,
    dt_bias: np.ndarray,
    state: np.ndarray,
    ring: np.ndarray,
    qo_indptr: np.ndarray,
    positions: np.ndarray,
    slots: np.ndarray,
    D: np.ndarray | None = None,
    *,
    dt_min: float = 0.0,
    dt_max: float = NO_LIMIT,
) -> tuple[np.ndarray, ...]:
    """S = e^(dt decay) S + B (dt x), y = C . S + D x, in chunks of 16 positions."""
    heads = key_heads(B.shape[1], x.shape[1], "grouped")
    steps = np.minimum(np.maximum(softplus(settle(dt + dt_bias)), F(dt_min)), F(dt_max))
    gates, u = settle(steps * decay), settle(steps[..., None] * x)
    y = np.zeros(x.shape, np.float32)

    def make_u(chunk: Chunk, first: int, *, rows: slice) -> None:
        chunk.u[first : first + rows.stop - rows.start] = u[rows]

    for run in runs(qo_indptr, positions, slots):
        y[run.rows] = walk(run, state[run.slot], ring[run.slot], heads, C, B, gates, make_u)
    return (y if D is None else settle(y + D[:, None] * x)), state, ring
