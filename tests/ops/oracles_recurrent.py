"""Oracles of the ops with states in slots: token by token in float64, as papers write them, without chunks."""

from __future__ import annotations

import numpy as np
from oracles import Expect, wide

from samebits.ops.record import Case

CHUNK = 16


def sequences(i: dict) -> list[tuple[list[int], int]]:
    """(rows of the batch, slot) of every sequence with tokens."""
    bounds = zip(i["qo_indptr"][:-1].tolist(), i["qo_indptr"][1:].tolist(), i["slots"].tolist(), strict=True)
    return [(list(range(a, b)), slot) for a, b, slot in bounds if b > a]


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class Recurrence:
    """One sequence: S now, S at the last boundary, and what is kept since then; `size` is of what was added up."""

    def __init__(self, i: dict, slot: int, first: int, k_shape: tuple[int, int], heads: np.ndarray) -> None:
        self.ring, self.heads, self.position = wide(i["ring"][slot]), heads, first
        self.state = wide(i["state"][slot]) if first else np.zeros(i["state"].shape[1:])
        self.k_shape, self.u_shape = k_shape, (len(heads), self.state.shape[2])
        self.total = np.zeros(len(heads))
        self.now, self.written = self.state.copy(), []
        for t in range(first % CHUNK):
            k, u, total = self.parts(self.ring[t])
            self.now = self.now * np.exp(total - self.total)[:, None, None] + k[heads][:, :, None] * u[:, None, :]
            self.total = total
        self.size = np.abs(self.now).max(axis=1, initial=0)

    def parts(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        k_end = self.k_shape[0] * self.k_shape[1]
        u_end = k_end + self.u_shape[0] * self.u_shape[1]
        return row[:k_end].reshape(self.k_shape), row[k_end:u_end].reshape(self.u_shape), row[u_end:]

    def decay(self, g: np.ndarray) -> None:
        if self.position % CHUNK == 0:
            self.total, self.written = np.zeros(len(self.heads)), []
        self.total = self.total + g
        self.now = self.now * np.exp(g)[:, None, None]

    def take(self, k: np.ndarray, u: np.ndarray) -> None:
        self.now = self.now + k[self.heads][:, :, None] * u[:, None, :]
        self.size = np.maximum(self.size, np.abs(self.now).max(axis=1) + np.abs(u))
        self.ring[self.position % CHUNK] = np.concatenate([k.ravel(), u.ravel(), self.total])
        self.written.append(self.position % CHUNK)
        self.position += 1
        if self.position % CHUNK == 0:
            self.state, self.written = self.now.copy(), []

    def read(self, q: np.ndarray) -> np.ndarray:
        return np.einsum("hk,hkv->hv", q[self.heads], self.now)


def expected(i: dict, out: np.ndarray, unit: np.ndarray, ended: dict[int, Recurrence]) -> list[Expect]:
    state, ring = (
        Expect(wide(i["state"]), np.zeros(i["state"].shape)),
        Expect(wide(i["ring"]), np.zeros(i["ring"].shape)),
    )
    for slot, r in ended.items():
        state.value[slot], state.unit[slot] = r.state, r.size[:, None, :]
        for t in r.written:
            ring.value[slot, t] = r.ring[t]
            k_end, u_end = np.prod(r.k_shape), np.prod(r.k_shape) + np.prod(r.u_shape)
            ring.unit[slot, t, k_end:u_end] = r.size.ravel()
            ring.unit[slot, t, u_end:] = np.abs(r.total) + 1e-3
    return [Expect(out, unit), state, ring]


def gated_delta_rule(i: dict, case: Case) -> list[Expect]:
    q, k, v, b = (wide(i[n]) for n in ("q", "k", "v", "b"))
    num_keys, num_heads = q.shape[1], v.shape[1]
    heads = np.array(
        [h // (num_heads // num_keys) if i.get("v_heads") != "tiled" else h % num_keys for h in range(num_heads)]
    )
    gates = wide(i["decay"]) * softplus(wide(i["a"]) + wide(i["dt_bias"]))
    out, unit, ended = np.zeros(v.shape), np.zeros(v.shape), {}
    for rows, slot in sequences(i):
        r = ended[slot] = Recurrence(i, slot, int(i["positions"][rows[0]]), q.shape[1:], heads)
        for t in rows:
            r.decay(gates[t])
            r.take(k[t], sigmoid(b[t])[:, None] * (v[t] - r.read(k[t])))
            out[t] = r.read(q[t] * i["scale"])
            unit[t] = r.size * (1 + np.abs(q[t] * i["scale"]).sum(axis=-1)[heads][:, None])
    return expected(i, out, unit, ended)


def ssm_scan(i: dict, case: Case) -> list[Expect]:
    x, b, c = (wide(i[n]) for n in ("x", "B", "C"))
    heads = np.arange(x.shape[1]) // (x.shape[1] // b.shape[1])
    dt = np.clip(softplus(wide(i["dt"]) + wide(i["dt_bias"])), i.get("dt_min", 0.0), i.get("dt_max", 1e30))
    skip = wide(i["D"])[:, None] if "D" in i else 0.0
    out, unit, ended = np.zeros(x.shape), np.zeros(x.shape), {}
    for rows, slot in sequences(i):
        r = ended[slot] = Recurrence(i, slot, int(i["positions"][rows[0]]), b.shape[1:], heads)
        for t in rows:
            r.decay(dt[t] * wide(i["decay"]))
            r.take(b[t], dt[t][:, None] * x[t])
            out[t] = r.read(c[t]) + skip * x[t]
            unit[t] = r.size * (1 + np.abs(c[t]).sum(axis=-1)[heads][:, None]) + np.abs(skip * x[t])
    return expected(i, out, unit, ended)


def causal_conv(i: dict, case: Case) -> list[Expect]:
    x, weight, carry = wide(i["x"]), wide(i["weight"]), wide(i["carry"])
    num_taps = weight.shape[1]
    out, unit = np.zeros(x.shape), np.zeros(x.shape)
    for rows, slot in sequences(i):
        first = int(i["positions"][rows[0]])
        seen = (
            np.zeros((num_taps - 1, x.shape[1])) if first == 0 else carry[slot, 1 if first % CHUNK == 0 else 0].copy()
        )
        for position, t in enumerate(rows, first):
            seen = np.concatenate([seen, x[t : t + 1]])
            terms = weight.T * seen[-num_taps:]
            total = terms.sum(axis=0) + (wide(i["bias"]) if "bias" in i else 0.0)
            unit[t] = np.abs(terms).sum(axis=0) + np.abs(total)
            out[t] = total * sigmoid(total) if i.get("activation") == "silu" else total
            carry[slot, 0] = seen[len(seen) - num_taps + 1 :]
            if (position + 1) % CHUNK == 0:
                carry[slot, 1] = carry[slot, 0]
    return [Expect(out, unit), Expect(carry)]
