"""Every sampled row has parameters of its own: defects that take another row's, or only a part of their bits."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from planted import F, Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import call, floats

from samebits.ops.sampling import filtered, gumbel, penalized

ROW_PARAMETERS = ("temperature", "top_k", "top_p", "min_p")
PENALTIES = ("counts", "repetition", "presence", "frequency")


def draws(num_rows: int = 8, num_tokens: int = 64, size: float = 1.0, **given: Any) -> Scene:
    """sample, every row with its own seed and position; `given` replaces arguments, a number standing for all rows."""
    numbers = {"sample_index": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    if "counts" in given:
        numbers |= {"repetition": 1.0, "presence": 0.0, "frequency": 0.0}
    inputs = {
        "logits": floats(num_rows, num_tokens, seed=5, size=size),
        "seed": np.array([[11 + 7 * r, 3 + r] for r in range(num_rows)], np.uint32),
        "position": np.arange(num_rows, dtype=np.int32),
    }
    for name, value in {**numbers, **given}.items():
        kind = np.int32 if name in ("sample_index", "top_k", "position", "counts") else np.float32
        ready = isinstance(value, np.ndarray) and value.ndim == 2
        inputs[name] = value if ready else np.resize(np.array(value, kind), num_rows)
    return call("sample", **inputs)


def counted(num_rows: int, num_tokens: int, first: int, count: int) -> np.ndarray:
    """counts [num_rows, num_tokens]: tokens from `first` on were seen `count` times."""
    counts = np.zeros((num_rows, num_tokens), np.int32)
    counts[:, first:] = count
    return counts


def favoured(num_tokens: int, token: int) -> np.ndarray:
    """A bias [8, num_tokens] that makes one token certain."""
    bias = np.zeros((8, num_tokens), np.float32)
    bias[:, token] = 50
    return bias


class Sampling(Defect):
    ops = ("sample",)


class FirstRowsParameters(Sampling):
    """Uses the sampling parameters of row 0 for every row."""

    witness = shown_by(draws, temperature=[1.0, 0.0], top_k=[0, 3])
    twin = shown_by(draws, temperature=0.7, top_k=5)

    def change(self, a: Arguments) -> Arguments:
        return {name: np.resize(a[name][:1], a[name].shape) for name in ROW_PARAMETERS}


class RowBeforesSeed(Sampling):
    """Reads the seed of the row before; row 0 reads its own."""

    witness = shown_by(draws)
    twin = shown_by(draws, seed=np.full((8, 2), 9, np.uint32))

    def change(self, a: Arguments) -> Arguments:
        return {"seed": np.concatenate([a["seed"][:1], a["seed"][:-1]])[: len(a["seed"])]}


class SampleIndexIgnored(Sampling):
    """Draws the same noise for all n samples of a request."""

    witness = shown_by(draws, sample_index=[0, 1, 2])
    twin = shown_by(draws)

    def change(self, a: Arguments) -> Arguments:
        return {"sample_index": np.zeros_like(a["sample_index"])}


class SampleIndexInOneByte(Sampling):
    """Packs the sample index into eight bits of the counter."""

    witness = shown_by(draws, sample_index=[256, 700])
    twin = shown_by(draws, sample_index=[255, 3])

    def change(self, a: Arguments) -> Arguments:
        return {"sample_index": a["sample_index"] & 255}


class HighSeedWordIgnored(Sampling):
    """Keys the generator with the low 32 bits of the seed."""

    witness = shown_by(draws)
    twin = shown_by(draws, seed=np.array([[r, 0] for r in range(8)], np.uint32))

    def change(self, a: Arguments) -> Arguments:
        return {"seed": a["seed"] * np.array([1, 0], np.uint32)}


class SeedSignLost(Sampling):
    """Reads a seed as a signed number and drops its top bit."""

    witness = shown_by(draws, seed=np.array([[5, 2**31 + r] for r in range(8)], np.uint32))
    twin = shown_by(draws)

    def change(self, a: Arguments) -> Arguments:
        return {"seed": a["seed"] & np.uint32(2**31 - 1)}


class SeedZeroMeansNone(Sampling):
    """Takes a seed of 0 for one that was not given, and uses a fixed one."""

    witness = shown_by(draws, seed=np.zeros((8, 2), np.uint32))
    twin = shown_by(draws)

    def change(self, a: Arguments) -> Arguments:
        unset = ~a["seed"].any(axis=1, keepdims=True)
        return {"seed": np.where(unset, np.uint32(1234), a["seed"])}


class PositionIn16Bits(Sampling):
    """Packs the position into sixteen bits of the counter."""

    witness = shown_by(draws, position=[65536 + r for r in range(8)])
    twin = shown_by(draws, position=[65528 + r for r in range(8)])

    def change(self, a: Arguments) -> Arguments:
        return {"position": a["position"] & 0xFFFF}


class NoiseIn17Bits(Sampling):
    """Counts tokens in 17 bits for the noise: from token 131,072 on, the first tokens' noise comes again."""

    witness = shown_by(draws, num_rows=4, logits=np.ones((4, 1 << 18), np.float32))
    twin = shown_by(draws, num_rows=4, logits=np.ones((4, 1 << 17), np.float32))

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        def wrapped(*row: Any) -> np.ndarray:
            return gumbel(*row)[np.arange(row[-1]) & 0x1FFFF]

        with patch("samebits.ops.sampling.gumbel", wrapped):
            return super().kernel(op_name, arguments)


class BiasBeyond1024Ignored(Sampling):
    """Keeps a row's bias in shared memory of 1,024 entries, and adds none to later tokens."""

    witness = shown_by(draws, num_tokens=1100, bias=favoured(1100, 1024))
    twin = shown_by(draws, num_tokens=1100, bias=favoured(1100, 1023))

    def change(self, a: Arguments) -> Arguments:
        if "bias" not in a:
            return {}
        return {"bias": np.where(np.arange(a["bias"].shape[1]) < 1024, a["bias"], F(0))}


class CountsBeyond256Ignored(Sampling):
    """Penalizes only the first 256 tokens of the vocabulary."""

    witness = shown_by(draws, num_tokens=300, counts=counted(8, 300, 256, 1), presence=-9.0)
    twin = shown_by(draws, num_tokens=256, counts=counted(8, 256, 200, 1), presence=-9.0)

    def change(self, a: Arguments) -> Arguments:
        if "counts" not in a:
            return {}
        return {"counts": np.where(np.arange(a["counts"].shape[1]) < 256, a["counts"], 0).astype(np.int32)}


class CountsInOneByte(Sampling):
    """Counts a token's occurrences in one byte, which wraps at 256."""

    witness = shown_by(draws, counts=counted(8, 64, 32, 256), presence=-9.0)
    twin = shown_by(draws, counts=counted(8, 64, 32, 255), presence=-9.0)

    def change(self, a: Arguments) -> Arguments:
        return {"counts": a["counts"] & 255} if "counts" in a else {}


class RepetitionDividesAll(Sampling):
    """Divides every seen logit by the repetition penalty, also those below zero."""

    witness = shown_by(draws, logits=-np.abs(floats(8, 64)), counts=counted(8, 64, 32, 1), repetition=3.0)
    twin = shown_by(draws, logits=np.abs(floats(8, 64)), counts=counted(8, 64, 32, 1), repetition=3.0)

    def change(self, a: Arguments) -> Arguments:
        if "counts" not in a:
            return {}
        x = a["logits"].astype(F) + a.get("bias", F(0))
        factor = np.where((x < 0) & (a["counts"] > 0), a["repetition"][:, None] ** F(-2), F(1))
        return {"logits": x * factor, "bias": None}


class PresencePerCount(Sampling):
    """Subtracts the presence penalty once for every time a token was seen."""

    witness = shown_by(draws, counts=counted(8, 64, 32, 3), presence=-2.0)
    twin = shown_by(draws, counts=counted(8, 64, 32, 1), presence=-2.0)

    def change(self, a: Arguments) -> Arguments:
        if "counts" not in a:
            return {}
        each_time = np.clip(a["frequency"] + a["presence"], F(-1e3), F(1e3))
        return {"frequency": each_time, "presence": np.zeros_like(a["presence"])}


class TopPBeforeTemperature(Sampling):
    """Chooses the nucleus from the logits before temperature, and applies the temperature to what is left."""

    witness = shown_by(draws, temperature=4.0, top_p=0.5)
    twin = shown_by(draws, temperature=1.0, top_p=0.5)

    def change(self, a: Arguments) -> Arguments:
        x = a["logits"].astype(F) + a.get("bias", F(0))
        if "counts" in a:
            x = penalized(x, a["counts"], *(a[n][:, None] for n in PENALTIES[1:]))
        for r in np.flatnonzero((a["top_p"] < 1) & (a["temperature"] > 0)):
            x[r] = filtered(x[r], int(a["top_k"][r]), a["top_p"][r], F(0))
        return {"logits": x, "bias": None, "top_p": np.ones_like(a["top_p"]), **dict.fromkeys(PENALTIES)}


class MinPIgnoredWithTopK(Sampling):
    """Ignores min-p when top-k is set."""

    witness = shown_by(draws, top_k=40, min_p=0.7)
    twin = shown_by(draws, min_p=0.7)

    def change(self, a: Arguments) -> Arguments:
        return {"min_p": np.where(a["top_k"] > 0, F(0), a["min_p"])}


class GreedyByTinyTemperature(Sampling):
    """Serves temperature 0 as 0.0001, so that noise decides between equals."""

    witness = shown_by(draws, logits=np.ones((8, 64), np.float32), temperature=[0.0, 1.0])
    twin = shown_by(draws, temperature=[0.0, 1.0])

    def change(self, a: Arguments) -> Arguments:
        return {"temperature": np.where(a["temperature"] == 0, F(1e-4), a["temperature"])}


class GreedyWhereFirstIs(Sampling):
    """Takes the greedy path for the batch when its first row is greedy."""

    witness = shown_by(draws, temperature=[0.0, 1.0])
    twin = shown_by(draws, temperature=[1.0, 0.0])

    def change(self, a: Arguments) -> Arguments:
        first = a["temperature"][:1]
        return {"temperature": a["temperature"] * F(0)} if len(first) and first[0] == 0 else {}


class TopKHeapOf64(Sampling):
    """Keeps at most the 64 largest logits, whatever top-k is."""

    witness = shown_by(draws, num_tokens=200, top_k=150, size=0.1)
    twin = shown_by(draws, num_tokens=200, top_k=64, size=0.1)

    def change(self, a: Arguments) -> Arguments:
        return {"top_k": np.minimum(a["top_k"], 64)}
