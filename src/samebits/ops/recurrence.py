"""The row form of a linear recurrence with decay: one formula for decode, for prompts in any chunks, and for resuming.

In a chunk, S the state [K, V] at its start, G_t the sum of the gates g from its start up to position t:
  o_t = e^G_t (q_t . S) + sum over s <= t of (e^(G_t - G_s) (q_t . k_s)) u_s
  S'  = e^G_L S         + sum over s      of k_s (e^(G_L - G_s) u_s)
What u_t is, the op says. Dot products over K are in head order, sums over the chunk's positions run in order from the
term with S. Every factor of a product is settled. Gates are at most 0, so no exponential exceeds 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from samebits.core.numerics.elementary import exp
from samebits.core.numerics.settling import settle
from samebits.core.numerics.sums import head_dot
from samebits.ops.slots import CHUNK, Run

Heads = np.ndarray  # int [H]: the key head of each value head


class MakeU(Protocol):
    """Fills u of a chunk from row `first` on, for these rows of the batch."""

    def __call__(self, chunk: Chunk, first: int, *, rows: slice) -> None: ...


@dataclass
class Chunk:
    """One sequence's chunk: the state at its start, and rows 0 .. num_rows - 1 of what came since then.

    state [H, K, V], k [16, Hk, K], u [16, H, V], gates [16, H]; all float32, changed in place.
    """

    state: np.ndarray
    k: np.ndarray
    u: np.ndarray
    gates: np.ndarray
    heads: Heads
    num_rows: int = 0

    def decays(self, first: int, stop: int) -> np.ndarray:
        """e^(G_t - G_s) of rows t in first .. stop - 1 and all s < stop: [t, s, H]."""
        return exp(settle(self.gates[first:stop, None] - self.gates[None, :stop]))

    def against_state(self, x: np.ndarray, first: int) -> np.ndarray:
        """e^G_t (x_t . S) of rows x [n, Hk, K] that start at `first`: settled [n, H, V]."""
        rows = x[:, self.heads]
        shape = (len(x), *self.u.shape[1:])
        dots = head_dot(x.shape[-1], shape, lambda d: rows[:, :, d, None] * self.state[None, :, d])
        return settle(exp(self.gates[first : first + len(x)])[..., None] * settle(dots))

    def against_rows(self, x: np.ndarray, first: int) -> np.ndarray:
        """e^(G_t - G_s) (x_t . k_s) of rows x [n, Hk, K] from `first`: settled [n, s, H]; s > t is not used."""
        stop = first + len(x)
        shape = (len(x), stop, x.shape[1])
        dots = head_dot(x.shape[-1], shape, lambda d: x[:, None, :, d] * self.k[None, :stop, :, d])
        return settle(self.decays(first, stop) * settle(dots)[:, :, self.heads])

    def add(self, q: np.ndarray, k: np.ndarray, gates: np.ndarray, make_u: Callable[[Chunk, int], None]) -> np.ndarray:
        """Takes n more rows, which fit, and gives their outputs, settled [n, H, V]; a full chunk moves the state on.

        `make_u(chunk, first)` fills the rows of u, of which k and gates are there.
        """
        first, stop = self.num_rows, self.num_rows + len(q)
        self.k[first:stop] = k
        total = self.gates[first - 1] if first else np.zeros(len(self.heads), np.float32)
        for t in range(first, stop):
            total = self.gates[t] = settle(total + gates[t - first])
        make_u(self, first)
        out, weights = self.against_state(q, first), self.against_rows(q, first)
        for t in range(first, stop):
            for s in range(t + 1):
                out[t - first] += weights[t - first, s, :, None] * self.u[s]
        self.num_rows = stop
        if stop == CHUNK:
            self.move_on()
        return settle(out)

    def move_on(self) -> None:
        """The state at the chunk's end, and an empty chunk after it."""
        decays = self.decays(CHUNK - 1, CHUNK)[0]
        self.state[:] = settle(exp(self.gates[-1])[:, None, None] * self.state)
        for s in range(CHUNK):
            self.state += self.k[s, self.heads, :, None] * settle(decays[s, :, None] * self.u[s])[:, None, :]
        self.state[:] = settle(self.state)
        self.num_rows = 0


def ring_width(num_key_heads: int, key_dim: int, num_heads: int, value_dim: int) -> int:
    """float32 numbers of a ring's row: k of all heads, then u of all heads, then G of all heads."""
    return num_key_heads * key_dim + num_heads * value_dim + num_heads


def split_ring(
    ring: np.ndarray, k_shape: tuple[int, int], u_shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Views of one slot's ring [16, W]: k [16, Hk, K], u [16, H, V], G [16, H]."""
    k_end = k_shape[0] * k_shape[1]
    u_end = k_end + u_shape[0] * u_shape[1]
    k, u = ring[:, :k_end].reshape(CHUNK, *k_shape), ring[:, k_end:u_end].reshape(CHUNK, *u_shape)
    return k, u, ring[:, u_end:]


def walk(
    run: Run,
    state: np.ndarray,
    ring: np.ndarray,
    heads: Heads,
    q: np.ndarray,
    k: np.ndarray,
    gates: np.ndarray,
    make_u: MakeU,
) -> np.ndarray:
    """The outputs [n, H, V] of one sequence's tokens; its state [H, K, V] and ring [16, W] move on in place.

    Only the rows of the last chunk, where it is not full, are written to the ring.
    """
    num_heads, _, value_dim = state.shape
    views = split_ring(ring, (k.shape[1], k.shape[2]), (num_heads, value_dim))
    start = run.first % CHUNK
    parts = np.zeros_like(views[0]), np.zeros_like(views[1]), np.zeros_like(views[2])
    for part, view in zip(parts, views, strict=True):
        part[:start] = view[:start]
    if run.first == 0:
        state[:] = 0
    chunk = Chunk(state, *parts, heads=heads, num_rows=start)
    out = [chunk.add(q[rows], k[rows], gates[rows], partial(make_u, rows=rows)) for rows in run.pieces()]
    written = slice(max(run.first, run.stop - run.stop % CHUNK) % CHUNK, run.stop % CHUNK)
    for part, view in zip(parts, views, strict=True):
        view[written] = part[written]
    return np.concatenate(out)
