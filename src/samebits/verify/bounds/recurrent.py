"""Recurrences with states in slots: variances of what bfloat16 operands move, token by token beside the values.

What `fast` leaves free: sums over K in any order, of operands with 8 bits or more (bfloat16); sums over the rows of a
chunk in float32; the device's exponentials. A state keeps what its updates were moved, less what decays; a delta rule's
update takes back a part of it, since it reads the state it writes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from samebits.ops.delta import key_heads
from samebits.ops.recurrence import split_ring
from samebits.ops.slots import CHUNK, Run, runs
from samebits.verify.bounds.expected import Expected, exactly
from samebits.verify.bounds.near import SMALLEST, UNIT, Near, sigmoid, softplus
from samebits.verify.bounds.products import DEVIATIONS
from samebits.verify.bounds.rows import silu

OPERAND = 2.0**-8  # half an ulp of bfloat16
# Variances in units of a value squared: the rounding of one operand, uniform over the numbers of a binade, and float32
# arithmetic of gates and sums, as if independent.
ROUNDED = (0.45 * OPERAND) ** 2
FLOAT32 = (64 * UNIT) ** 2


class Sequence:
    """One sequence's state S [H, K, V] in float64, with variances.

    terms     [H, K, V]: the sum of squares of what S adds up since its last boundary, of which a rounding is a part
    largest   [H, V]: the largest square of a key times that of an update or of the state so far; settled factors of
              such products lose 2^-50
    keys      [H]: the sum of squares of the keys since the last boundary
    variance  [H, V]: of the error of each column of S, as a squared length
    """

    def __init__(self, run: Run, state: np.ndarray, ring: np.ndarray, heads: np.ndarray, key: tuple[int, int]) -> None:
        num_heads, _, value_dim = state.shape
        self.heads, self.position = heads, run.first
        self.state = state.astype(np.float64) if run.first else np.zeros(state.shape)
        self.terms, self.variance = self.state**2, np.zeros((num_heads, value_dim))
        self.largest = self.terms.sum(axis=1)
        self.total, self.keys = np.zeros(num_heads), np.zeros(num_heads)
        keys, us, totals = (part.astype(np.float64) for part in split_ring(ring, key, (num_heads, value_dim)))
        for t in range(run.first % CHUNK):
            self.decay(totals[t] - self.total)
            self.update(keys[t, heads], us[t])

    def decay(self, gate: np.ndarray) -> None:
        self.total = self.total + gate
        factor = np.exp(np.minimum(gate, 0.0))[:, None]
        # beside a large sum a small gate is lost: then float32 decays less than the gate says
        loosest = np.exp(np.minimum(gate + 4 * UNIT * np.abs(self.total), 0.0))[:, None]
        more = (loosest - factor) ** 2 * self.terms.sum(axis=1)
        self.state = self.state * factor[..., None]
        self.terms = self.terms * factor[..., None] ** 2
        # an exponential of a difference of sums of gates: the larger they are, the more its rounding moves
        lost = FLOAT32 * (1 + self.total[:, None] ** 2)
        self.variance = self.variance * loosest**2 + more + lost * self.terms.sum(axis=1)

    def update(self, k: np.ndarray, u: np.ndarray) -> None:
        """S += k u of keys [H, K] by heads and u [H, V]."""
        self.state = self.state + k[:, :, None] * u[:, None, :]
        self.terms = self.terms + k[:, :, None] ** 2 * u[:, None, :] ** 2
        self.largest = np.maximum(self.largest, (1 + (k**2).sum(axis=1)[:, None]) * u**2)
        self.variance = self.variance + 2 * ROUNDED * (k**2).sum(axis=1)[:, None] * u**2
        self.keys = self.keys + (k**2).sum(axis=1)

    def advance(self) -> None:
        """Count the token; at a boundary the state is one number again.

        An update that has decayed below 2^-50 by then is settled before its key multiplies it.
        """
        self.position += 1
        if self.position % CHUNK == 0:
            self.variance = self.variance + SMALLEST**2 * self.keys[:, None]
            self.keys = np.zeros_like(self.keys)
            self.terms, self.total = self.state**2, np.zeros_like(self.total)

    def read(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(q . S [H, V], the variance of its roundings) of rows q [H, K].

        Operands that are all alike are rounded alike: then the sum is wrong by as much as each of them.
        """
        value, squares = np.einsum("hk,hkv->hv", q, self.state), q**2
        variance = 2 * ROUNDED * np.einsum("hk,hkv->hv", squares, self.terms) + (OPERAND * value / DEVIATIONS) ** 2
        return value, variance + (4 * SMALLEST) ** 2 * (1 + squares.sum(axis=1)[:, None]) * (1 + self.largest)

    def carried(self, q: np.ndarray) -> np.ndarray:
        """The variance of q . S by the error of S itself."""
        result: np.ndarray = (q**2).sum(axis=1)[:, None] * self.variance
        return result


class Memory:
    """Expected states and rings of a call; slots of no sequence stay as they are."""

    def __init__(self, state: np.ndarray, ring: np.ndarray) -> None:
        self.state, self.ring = exactly(state), exactly(ring)

    def write_row(self, slot: int, at: int, k: np.ndarray, u: Near, total: np.ndarray) -> None:
        row = np.concatenate([k.reshape(-1), u.value.reshape(-1), total])
        gates = 2 * UNIT * (64 + 16 * np.abs(total)) * (1 + np.abs(total))
        error = np.concatenate([np.zeros(k.size), u.error.reshape(-1), gates])
        self.ring.values[slot, at], self.ring.error[slot, at] = row, error

    def write_state(self, slot: int, sequence: Sequence) -> None:
        self.state.values[slot] = sequence.state
        error = bound(sequence.variance[:, None, :] + FLOAT32 * sequence.terms)
        self.state.error[slot] = np.broadcast_to(error, sequence.state.shape)

    def keep_ring(self, slot: int, before: np.ndarray) -> None:
        """A sequence that ends at a boundary leaves its ring as it was."""
        self.ring.values[slot], self.ring.error[slot] = before, 0.0


def bound(variance: np.ndarray) -> np.ndarray:
    """Return six standard deviations and the smallest number that is not settled."""
    result: np.ndarray = 2 * DEVIATIONS * np.sqrt(variance) + 2.0**-49
    return result


def walk(
    q: np.ndarray,
    k: np.ndarray,
    gates: np.ndarray,
    heads: np.ndarray,
    state: np.ndarray,
    ring: np.ndarray,
    all_runs: list[Run],
    make_u: Callable[[int, np.ndarray, Sequence], tuple[np.ndarray, ...]],
) -> tuple[Expected, Memory]:
    """Outputs and memory of a call, token by token. make_u(t, k, sequence) gives u [H, V], the variance
    that is new in it, and that with what the state's error brings."""
    shape = (len(q), state.shape[1], state.shape[3])
    out, error = np.zeros(shape), np.zeros(shape)
    memory = Memory(state, ring)
    q, k = q.astype(np.float64), k.astype(np.float64)
    for run in all_runs:
        sequence = Sequence(run, state[run.slot], ring[run.slot], heads, k.shape[1:])
        last = run.stop - run.stop % CHUNK
        rows = []
        stored = sequence.state if run.first % CHUNK == 0 else None
        for t in range(run.rows.start, run.rows.stop):
            sequence.decay(gates[t])
            keys = k[t, heads]
            u, variance, whole = make_u(t, keys, sequence)
            sequence.update(keys, u)
            sequence.variance = sequence.variance + (keys**2).sum(axis=1)[:, None] * variance
            value, rounding = sequence.read(q[t, heads])
            out[t], error[t] = value, bound(rounding + sequence.carried(q[t, heads]))
            if sequence.position >= last:
                rows.append((sequence.position % CHUNK, k[t], Near(u, bound(whole)), sequence.total))
            sequence.advance()
            if sequence.position % CHUNK == 0:
                stored = sequence.state
                memory.write_state(run.slot, sequence)
        if stored is not None and run.stop < CHUNK:  # a sequence that starts leaves zeros until its first boundary
            memory.state.values[run.slot], memory.state.error[run.slot] = (0.0 if run.first == 0 else stored), 0.0
        for at, key, made, total in rows:
            memory.write_row(run.slot, at, key, made, total)
    return Expected(out, error), memory


def gated_delta_rule(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, a: np.ndarray, b: np.ndarray, decay: np.ndarray, dt_bias: np.ndarray,
    state: np.ndarray, ring: np.ndarray, qo_indptr: np.ndarray, positions: np.ndarray, slots: np.ndarray,
    *, scale: float, v_heads: str,
) -> tuple[Expected, ...]:  # fmt: skip
    heads = key_heads(q.shape[1], v.shape[1], v_heads)
    gates = decay.astype(np.float64) * softplus(Near.of(a) + Near.of(dt_bias)).value
    beta = sigmoid(Near.of(b)).value

    def make_u(t: int, keys: np.ndarray, sequence: Sequence) -> tuple[np.ndarray, ...]:
        strength = beta[t][:, None]
        found, variance = sequence.read(keys)
        # an update along k takes a part of the error along k back, unless it is larger than twice what it corrects
        kept = 1 - strength * (keys**2).sum(axis=1)[:, None]
        u = strength * (v[t] - found)
        direct = strength**2 * (variance + FLOAT32 * v[t].astype(np.float64) ** 2)
        whole = direct + strength**2 * sequence.carried(keys)
        sequence.variance = sequence.variance * np.maximum(1.0, kept**2)
        return u, direct, whole

    scaled = q * np.float32(scale)
    out, memory = walk(scaled, k, gates, heads, state, ring, runs(qo_indptr, positions, slots), make_u)
    return out, memory.state, memory.ring


def ssm_scan(
    x: np.ndarray, dt: np.ndarray, B: np.ndarray, C: np.ndarray, decay: np.ndarray, dt_bias: np.ndarray,
    state: np.ndarray, ring: np.ndarray, qo_indptr: np.ndarray, positions: np.ndarray, slots: np.ndarray,
    D: np.ndarray | None, *, dt_min: float, dt_max: float,
) -> tuple[Expected, ...]:  # fmt: skip
    heads = key_heads(B.shape[1], x.shape[1], "grouped")
    steps = softplus(Near.of(dt) + Near.of(dt_bias)).clipped(float(np.float32(dt_min)), float(np.float32(dt_max)))
    gates = steps.value * decay
    entered = (steps[..., None] * Near.of(x)).settled()

    def make_u(t: int, keys: np.ndarray, sequence: Sequence) -> tuple[np.ndarray, ...]:
        return entered.value[t], entered.error[t] ** 2, entered.error[t] ** 2

    y, memory = walk(C, B, gates, heads, state, ring, runs(qo_indptr, positions, slots), make_u)
    if D is not None:
        skipped = D[:, None].astype(np.float64) * x
        y = Expected(y.values + skipped, y.error + 8 * UNIT * np.abs(skipped))
    return y, memory.state, memory.ring


def causal_conv(
    x: np.ndarray, weight: np.ndarray, carry: np.ndarray, qo_indptr: np.ndarray, positions: np.ndarray,
    slots: np.ndarray, bias: np.ndarray | None, *, activation: str,
) -> tuple[Near, ...]:  # fmt: skip
    """Only the rows of y are bound; the carry holds inputs as they are."""
    num_taps = weight.shape[1]
    terms = np.zeros((*x.shape, num_taps))
    for run in runs(qo_indptr, positions, slots):
        own = carry[run.slot]
        before = np.zeros_like(own[0]) if run.first == 0 else own[int(run.first % CHUNK == 0)]
        inputs = np.concatenate([before, x[run.rows]]).astype(np.float64)
        for i in range(num_taps):
            terms[run.rows, :, i] = weight[:, i] * inputs[i : i + run.count]
    total = Near.of(terms).sum()[..., 0]
    total = (total if bias is None else total + Near.of(bias)).settled()
    return (silu(total) if activation == "silu" else total,)
