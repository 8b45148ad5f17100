"""sample: one row of logits after another, filtered and drawn from.

Without a bias and penalties, which change logits before the draw: `when` refuses those, and since the op touches no
cache, the engine runs them on its fallback and says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits_toy import device as dev
from samebits_toy.memory import Window

F = np.float32


def unshaped(call: OpCall) -> str | None:
    asked = [name for name in ("bias", "counts") if name in call.inputs]
    return f"toy-tiles sample has no {' and no '.join(asked)}" if asked else None


@dev.table.implements("sample", tier=Tier.PORTABLE, when=unshaped)
def sample(
    logits: Window,
    seed: Window,
    sample_index: Window,
    position: Window,
    temperature: Window,
    top_k: Window,
    top_p: Window,
    min_p: Window,
    **refused: Any,
) -> tuple[np.ndarray]:
    keys = seed.gather(np.arange(seed.num_rows))
    counters = np.stack([sample_index.vector(), position.vector()], axis=1).astype(np.uint32)
    heats, filters = temperature.vector(), (top_k.vector(), top_p.vector(), min_p.vector())
    noises = noise(keys, counters, logits.shape[1]) if heats.any() else None
    tokens = np.zeros(logits.num_rows, np.int32)
    for b in range(logits.num_rows):
        x = dev.unpack(logits, np.array([b]))[0]
        check(x)
        if noises is not None and heats[b] > 0:
            x = dev.settle(dev.mul(x, dev.recip(heats[b : b + 1])))
            is_kept = kept(x, *(parameter[b] for parameter in filters))
            x = np.where(is_kept, dev.add(x, noises[b]), F(-np.inf))
        tokens[b] = np.argmax(x)  # the lowest id among equals
    return (tokens,)


def check(x: np.ndarray) -> None:
    """Logits come from the step before, so nobody has looked at them yet."""
    if np.isnan(x).any() or not np.isfinite(x.max(initial=-np.inf)):
        raise BadInput("sample", "logits", "NaN, +Inf or no token to choose", "a finite logit in every row")


def kept(x: np.ndarray, top_k: int, top_p: np.float32, min_p: np.float32) -> np.ndarray:
    """What top-k, then top-p, then min-p leave: bool [V]. Masses are integers, so that their sum has no order."""
    ranked = np.argsort(-x, kind="stable")[: top_k or len(x)]
    weights = dev.exp(dev.add(x[ranked], -x[ranked[0]]))
    is_in = weights >= min_p
    if top_p < 1:
        mass = np.rint(dev.mul(weights, F(2.0**28))).astype(np.int64)
        before = np.cumsum(mass) - mass
        is_in &= (before * 2**16 < int(np.rint(top_p * F(2.0**16))) * int(mass.sum())) | (before == 0)
    keep = np.zeros(len(x), bool)
    keep[ranked[is_in]] = True
    return keep


def noise(keys: np.ndarray, counters: np.ndarray, num_tokens: int) -> np.ndarray:
    """Gumbel noise: float32 [rows, num_tokens], a row's a function of its seed, sample, position and token id alone."""
    row_keys = dev.threefry((keys[:, :1], keys[:, 1:]), (counters[:, :1], counters[:, 1:]))
    words, _ = dev.threefry(row_keys, (np.arange(num_tokens, dtype=np.uint32), np.zeros(1, np.uint32)))
    return -dev.log(-dev.log(dev.to_uniform(words)))
