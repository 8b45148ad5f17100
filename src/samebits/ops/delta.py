"""gated_delta_rule: the recurrence of gated delta nets over a ragged batch, states in slots.

For each value head, with g = decay * softplus(a + dt_bias) and beta = sigmoid(b), in the row form of recurrence.py:
  u_t = beta_t ((v_t - e^G_t (k_t . S)) - sum over s < t of (e^(G_t - G_s) (k_t . k_s)) u_s)
with q scaled. The sum is subtracted term by term, in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.numerics.elementary import sigmoid, softplus
from samebits.core.numerics.settling import settle
from samebits.ops.record import STATES, Attr, Input, Result, define_op
from samebits.ops.recurrence import Chunk, ring_width, walk
from samebits.ops.slot_cases import DELTA_CASES, delta_inputs
from samebits.ops.slot_equivalents import slot_equivalents
from samebits.ops.slot_spaces import DELTA_SPACE
from samebits.ops.slots import POSITIONS, QO_INDPTR, SLOTS, check_runs, runs, state_input

OP = "gated_delta_rule"
F = np.float32
# Root mean square 3e-3 with keys, queries and states of 8 bits; single outputs where much cancels have 20 times that.


def _v_heads(name: str) -> str | None:
    return None if name in ("grouped", "tiled") else "'grouped' or 'tiled'"


def key_heads(num_key_heads: int, num_heads: int, v_heads: str) -> np.ndarray:
    """The key head of each value head: neighbours share one (grouped), or every Hk-th does (tiled)."""
    heads = np.arange(num_heads)
    return heads * num_key_heads // max(num_heads, 1) if v_heads == "grouped" else heads % num_key_heads


def check_decay(op: str, decay: np.ndarray) -> None:
    if not (decay <= 0).all():
        raise BadInput(op, "decay", f"{decay[~(decay <= 0)][0]:g}", "numbers up to 0: a state that grows has no bound")


def check_ring(op: str, ring: np.ndarray, width: int) -> None:
    if ring.shape[2] != width:
        raise BadInput(op, "ring", f"rows of {ring.shape[2]}", f"rows of {width}: k, u and G of all heads")


def _check(
    q: np.ndarray, v: np.ndarray, decay: np.ndarray, state: np.ndarray, ring: np.ndarray,
    qo_indptr: np.ndarray, positions: np.ndarray, slots: np.ndarray, **_: Any,
) -> None:  # fmt: skip
    if q.shape[1] == 0 or v.shape[1] % q.shape[1]:
        raise BadInput(OP, "v", f"{v.shape[1]} heads", f"a multiple of the {q.shape[1]} heads of k")
    check_decay(OP, decay)
    check_ring(OP, ring, ring_width(*q.shape[1:], *v.shape[1:]))
    check_runs(OP, qo_indptr, positions, slots, len(state))


@define_op(
    inputs=[
        Input("q", "T Hk K", STATES, "queries, normalised"),
        Input("k", "T Hk K", STATES, "keys, normalised"),
        Input("v", "T H V", STATES, "values"),
        Input("a", "T H", STATES, "what the decay gate is made of"),
        Input("b", "T H", STATES, "what the strength of an update is made of"),
        Input("decay", "H", STATES, "-exp(A_log)"),
        Input("dt_bias", "H", STATES, "added to a"),
        state_input("state", "N H K V", "S of every slot at its last boundary"),
        state_input("ring", "N 16 W", "k, u and G of every slot since its last boundary"),
        QO_INDPTR,
        POSITIONS,
        SLOTS,
    ],
    attrs=[
        Attr("scale", float, 1.0, "multiplies q"),
        Attr("v_heads", str, "grouped", "heads of v that share one of k: 'grouped', neighbours, or 'tiled'", _v_heads),
    ],
    results=[
        Result("o", "T H V", "=v"),
        Result("state", "", "=state", alias_of="state"),
        Result("ring", "", "=ring", alias_of="ring"),
    ],
    freedom="order of sums in float32; operands of sums over K in bfloat16; the device's elementary functions",
    cases=lambda: DELTA_CASES,
    invariant_axes=("T", "B", "N"),
    check=_check,
    make_inputs=delta_inputs,
    equivalents=slot_equivalents,
    space=lambda: DELTA_SPACE,
    operations=lambda q, v, **_: v.size * q.shape[2] * 6,
    smallest=-123,
)
def gated_delta_rule(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    decay: np.ndarray,
    dt_bias: np.ndarray,
    state: np.ndarray,
    ring: np.ndarray,
    qo_indptr: np.ndarray,
    positions: np.ndarray,
    slots: np.ndarray,
    *,
    scale: float = 1.0,
    v_heads: str = "grouped",
) -> tuple[np.ndarray, ...]:
    """The gated delta rule, S += k (beta (v - k . S)) after a decay, and o = q . S, in chunks of 16 positions."""
    heads = key_heads(q.shape[1], v.shape[1], v_heads)
    gates = settle(decay * softplus(settle(a + dt_bias)))
    beta = sigmoid(b)
    scaled = settle(q * F(scale))
    o = np.zeros(v.shape, np.float32)

    def make_u(chunk: Chunk, first: int, *, rows: slice) -> None:
        rest, weights = v[rows] - chunk.against_state(k[rows], first), chunk.against_rows(k[rows], first)
        for i in range(len(rest)):
            for s in range(first + i):
                rest[i] -= weights[i, s, :, None] * chunk.u[s]
            chunk.u[first + i] = settle(beta[rows][i, :, None] * settle(rest[i]))

    for run in runs(qo_indptr, positions, slots):
        o[run.rows] = walk(run, state[run.slot], ring[run.slot], heads, scaled, k, gates, make_u)
    return o, state, ring
