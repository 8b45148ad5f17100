"""The oracle of `sample`: Threefry from its published description, everything else in float64."""

from __future__ import annotations

import numpy as np
from oracles import Expect, ranked, wide

from samebits.ops.record import Case

MASK = 0xFFFFFFFF
ROTATE = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key: tuple[int, int], counter: tuple[np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
    """20 rounds, in 64-bit integers cut to 32 bits by hand."""
    k = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA]
    x = [np.asarray(c, np.uint64) for c in counter]
    x = [(a + np.uint64(b)) & np.uint64(MASK) for a, b in zip(x, k[:2], strict=True)]
    for r in range(20):
        turn = ROTATE[r // 4 % 2][r % 4]
        x[0] = (x[0] + x[1]) & np.uint64(MASK)
        x[1] = ((x[1] << np.uint64(turn)) | (x[1] >> np.uint64(32 - turn))) & np.uint64(MASK)
        x[1] = x[1] ^ x[0]
        if r % 4 == 3:
            s = r // 4 + 1
            x[0] = (x[0] + np.uint64(k[s % 3])) & np.uint64(MASK)
            x[1] = (x[1] + np.uint64(k[(s + 1) % 3] + s)) & np.uint64(MASK)
    return x[0], x[1]


def noise(seed: np.ndarray, sample_index: int, position: int, num_tokens: int) -> np.ndarray:
    """-log(-log u) per token, u keyed by (seed, sample, position, token)."""
    row_key = threefry2x32((int(seed[0]), int(seed[1])), (np.uint64(sample_index), position))
    words, _ = threefry2x32((int(row_key[0]), int(row_key[1])), (np.arange(num_tokens), 0))
    u = (np.floor(words / 512) + 0.5) / 2**23
    return -np.log(-np.log(u))


def kept_tokens(x: np.ndarray, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The textbook filters one after the other on one row of scaled logits."""
    order = ranked(x)[: top_k or None]
    p = np.exp(x[order] - x[order[0]])
    p = p / p.sum()
    before = np.cumsum(p) - p
    # off means off: rounding of the sum must not drop a token
    inside = before < top_p if top_p < 1 else np.ones(len(p), bool)
    inside[0] = True
    return {t for t, ok, mass in zip(order, inside, p, strict=True) if ok and mass >= min_p * p[0]}


def sample(i: dict, case: Case) -> list[Expect]:
    x = wide(i["logits"])
    if "bias" in i:
        x = x + wide(i["bias"])
    tokens = []
    for b, row in enumerate(x):
        if "counts" in i:
            count, r = i["counts"][b], float(i["repetition"][b])
            lowered = np.where(row > 0, row / r, row * r) - count * float(i["frequency"][b]) - float(i["presence"][b])
            row = np.where(count > 0, lowered, row)
        if i["temperature"][b] == 0:
            tokens.append(ranked(row)[0])
            continue
        scaled = row / float(i["temperature"][b])
        keep = kept_tokens(scaled, int(i["top_k"][b]), float(i["top_p"][b]), float(i["min_p"][b]))
        drawn = scaled + noise(i["seed"][b], int(i["sample_index"][b]), int(i["position"][b]), len(row))
        tokens.append(max(keep, key=lambda t: (drawn[t], -t)))
    return [Expect(np.array(tokens, np.int64))]
