"""Cases of the ops with states in slots: batches by name, and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.ops.record import Case, Op
from samebits.ops.slots import CHUNK
from samebits.ops.values import contents

Batch = tuple[tuple[int, int], ...]  # (position of the first token, tokens) of every sequence
BATCHES: dict[str, Batch] = {
    "decode": ((5, 1), (0, 1), (16, 1), (15, 1), (31, 1), (100, 1)),
    "first": ((0, 1),),
    "prompt": ((0, 33),),
    "page": ((0, 16), (16, 16)),
    "resumed": ((64, 73), (48, 1), (32, 17)),
    "mixed": ((0, 20), (17, 1), (30, 3), (47, 1), (7, 40)),
    "ends": ((13, 3), (14, 3), (15, 33), (1, 15), (1, 14)),
    "idle": ((3, 0), (7, 1), (0, 0)),
    "long": ((0, 145), (9, 200)),
    "many": tuple((i % 32, 1 + i % 3) for i in range(33)),  # the last one is new, as is the first
    "crowd": tuple((7 * i, 1) for i in range(300)),
    "book": ((0, 1500),),
    "library": ((0, 4100),),  # more chunks than a byte counts
    "prompts": ((0, 40), (0, 33), (16, 37), (0, 1)),  # new sequences that cross several boundaries at once
    "far": ((1 << 30, 20), ((1 << 24) + 13, 5)),
    "nobody": (),
}
LARGE = ("long", "many", "crowd", "book", "library", "prompts")  # batches that drawn cases have
GATE_TAILS = "tails"  # contents of which only gates have a part
POISON = np.float32(np.nan)  # in memory that no kernel may read


def _indices(batch: Batch, stream: Stream) -> dict[str, np.ndarray]:
    """qo_indptr, positions and slots; a few slots are nobody's."""
    counts = [n for _, n in batch]
    positions = [np.arange(first, first + n) for first, n in batch]
    slots = stream.child("slots").permutation(len(batch) + 3)[: len(batch)]
    return {
        "qo_indptr": np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int32),
        "positions": np.concatenate([*positions, np.zeros(0)]).astype(np.int32),
        "slots": slots.astype(np.int32),
    }


def _gate(kind: str, stream: Stream, shape: tuple[int, ...]) -> np.ndarray:
    """Return what is read by a gate or added at the end: bell-shaped, outside float16 where everything is, or where
    softplus is close to its limits."""
    return contents(kind if kind in ("beyond", "tiny", GATE_TAILS) else "normal", stream, shape, "f32")


def _kind(case: Case) -> str:
    """Return what all but the gates holds."""
    kind = str(case.extra.get("values", "normal"))
    return "normal" if kind == GATE_TAILS else kind


def _key(kind: str, stream: Stream, shape: tuple[int, ...]) -> np.ndarray:
    """Return keys of the delta rule. They multiply the state once per token, so none is beyond float16: it would
    overflow."""
    return contents("normal" if kind == "beyond" else kind, stream, shape, "f32")


def _batch(case: Case) -> Batch:
    return BATCHES[case.extra["batch"]]


def num_tokens(batch: Batch) -> int:
    return sum(n for _, n in batch)


def _memory(
    case: Case, stream: Stream, indices: dict[str, np.ndarray], dims: dict[str, tuple[int, ...]], num_keys: int = 0
) -> Any:
    """Return state and ring: what a step may read holds numbers, all else is poison. The first `num_keys` columns of a
    ring are keys of the delta rule."""
    batch, kind = _batch(case), _kind(case)
    state = np.full((len(batch) + 3, *dims["state"]), POISON, np.float32)
    ring = np.full((len(batch) + 3, CHUNK, dims["ring"][0]), POISON, np.float32)
    num_heads = dims["state"][0]
    for (first, _), slot in zip(batch, indices["slots"].tolist(), strict=True):
        own = stream.child(f"slot {slot}")
        if first >= CHUNK:
            state[slot] = contents(kind, own.child("state"), dims["state"], "f32")
        elif first:
            state[slot] = 0
        live = first % CHUNK
        if live:
            ring[slot, :live] = contents(kind, own.child("ring"), (live, dims["ring"][0]), "f32") * np.float32(0.3)
            if kind == "beyond":
                ring[slot, :live, :num_keys] = _key(kind, own.child("keys"), (live, num_keys)) * np.float32(0.3)
            falls = own.child("gates").uniform(-0.5, 0.0, (live, num_heads))
            ring[slot, :live, -num_heads:] = np.cumsum(falls, axis=0, dtype=np.float32)
    return state, ring


def _heads(case: Case, names: str) -> tuple[int, ...]:
    return tuple(int(case.dims[n]) for n in names.split())


def _gating(case: Case, stream: Stream, num_heads: int) -> dict[str, np.ndarray]:
    decay = -np.abs(_gate(_kind(case), stream.child("decay"), (num_heads,)) * np.float32(case.extra.get("decay", 1.0)))
    return {"decay": decay, "dt_bias": _gate(case.extra.get("values", "normal"), stream.child("dt_bias"), (num_heads,))}


def delta_inputs(_: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    hk, h, k, v = _heads(case, "Hk H K V")
    batch, kind = _batch(case), _kind(case)
    tokens, indices = num_tokens(batch), _indices(batch, stream)
    ring_width = hk * k + h * v + h
    state, ring = _memory(case, stream, indices, {"state": (h, k, v), "ring": (ring_width,)}, hk * k)
    size_of_key = np.float32(k**-0.5)  # about normalised
    return {
        "q": contents(kind, stream.child("q"), (tokens, hk, k), "f32") * size_of_key,
        "k": _key(kind, stream.child("k"), (tokens, hk, k)) * size_of_key,
        "v": contents(kind, stream.child("v"), (tokens, h, v), "f32"),
        "a": _gate(case.extra.get("values", "normal"), stream.child("a"), (tokens, h)),
        "b": contents(kind, stream.child("b"), (tokens, h), "f32"),
        **_gating(case, stream, h),
        "state": state,
        "ring": ring,
        **indices,
    }


def ssm_inputs(_: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    groups, h, s, p = _heads(case, "G H S P")
    batch, kind = _batch(case), _kind(case)
    tokens, indices = num_tokens(batch), _indices(batch, stream)
    state, ring = _memory(case, stream, indices, {"state": (h, s, p), "ring": (groups * s + h * p + h,)})
    return {
        "x": contents(kind, stream.child("x"), (tokens, h, p), "f32"),
        "dt": _gate(case.extra.get("values", "normal"), stream.child("dt"), (tokens, h)),
        "B": contents(kind, stream.child("B"), (tokens, groups, s), "f32") * np.float32(s**-0.5),
        "C": contents(kind, stream.child("C"), (tokens, groups, s), "f32") * np.float32(s**-0.5),
        **_gating(case, stream, h),
        "state": state,
        "ring": ring,
        **indices,
        **({"D": _gate(kind, stream.child("D"), (h,))} if "D" in case.given else {}),
    }


def conv_inputs(_op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    channels, taps = _heads(case, "C taps")
    batch, kind = _batch(case), _kind(case)
    tokens, indices = num_tokens(batch), _indices(batch, stream)
    carry = np.full((len(batch) + 3, 2, taps - 1, channels), POISON, np.float32)
    for (first, _), slot in zip(batch, indices["slots"].tolist(), strict=True):
        own = contents(kind, stream.child(f"slot {slot}"), (2, taps - 1, channels), "f32")
        if first % CHUNK:
            carry[slot, 0, -first:] = own[0, -first:]
            carry[slot, 0, :-first] = 0
        if first >= CHUNK:
            carry[slot, 1] = own[1]
    return {
        "x": contents(kind, stream.child("x"), (tokens, channels), "f32"),
        "weight": contents(kind, stream.child("weight"), (channels, taps), "f32"),
        "carry": carry,
        **indices,
        **(
            {"bias": _gate(case.extra.get("values", "normal"), stream.child("bias"), (channels,))}
            if "bias" in case.given
            else {}
        ),
    }


def _delta_case(
    name: str, batch: str, heads: tuple[int, ...] = (2, 4, 16, 16), full: bool = False, **attrs: Any
) -> Case:
    dims = dict(zip(("Hk", "H", "K", "V"), heads, strict=True))
    return Case(name, dims, {"scale": heads[2] ** -0.5, **attrs}, extra={"batch": batch}, full=full)


DELTA_CASES = [
    *(_delta_case(batch, batch) for batch in BATCHES if batch not in LARGE),
    _delta_case("tiled", "mixed", v_heads="tiled"),
    _delta_case("odd-sizes", "mixed", (1, 3, 12, 20)),
    _delta_case("head-60-100", "ends", (2, 2, 60, 100)),
    _delta_case("head-96-80", "ends", (1, 2, 96, 80)),
    _delta_case("head-112-48", "resumed", (1, 2, 112, 48)),
    _delta_case("qwen3-next-decode", "decode", (16, 32, 128, 128), full=True),
    _delta_case("qwen3-next", "mixed", (2, 4, 128, 128)),
    _delta_case("many-columns", "ends", (2, 8, 128, 128)),  # more than a large GPU's programs take 16 at a time
    _delta_case("long", "long", full=True),
]


def _ssm_case(name: str, batch: str, heads: tuple[int, ...] = (2, 4, 16, 8), full: bool = False, **attrs: Any) -> Case:
    dims = dict(zip(("G", "H", "S", "P"), heads, strict=True))
    return Case(name, dims, attrs, extra={"batch": batch}, given=("D",), full=full)


SSM_CASES = [
    *(_ssm_case(batch, batch) for batch in BATCHES if batch not in LARGE),
    _ssm_case("limits", "mixed", dt_min=0.1, dt_max=0.7),
    _ssm_case("odd-sizes", "mixed", (1, 3, 20, 12)),
    _ssm_case("mamba-2", "mixed", (1, 2, 128, 64)),
    _ssm_case("state-48", "resumed", (1, 2, 48, 24)),
    _ssm_case("state-176", "ends", (1, 2, 176, 16)),
    _ssm_case("many-columns", "ends", (1, 20, 64, 64)),
    _ssm_case("mamba-2-decode", "decode", (1, 24, 128, 64), full=True),
    _ssm_case("long", "long", full=True),
]


def _conv_case(name: str, batch: str, channels: int = 40, taps: int = 4, full: bool = False, **attrs: Any) -> Case:
    dims = {"C": channels, "taps": taps, "J": taps - 1}
    return Case(name, dims, {"activation": "silu", **attrs}, extra={"batch": batch}, given=("bias",), full=full)


CONV_CASES = [
    *(_conv_case(batch, batch) for batch in BATCHES if batch not in LARGE),
    _conv_case("three-taps", "mixed", taps=3, activation="none"),
    _conv_case("nine-taps", "ends", taps=9),
    _conv_case("two-taps", "ends", taps=2),
    _conv_case("qwen3-next", "mixed", 8192),
    _conv_case("long", "long", full=True),
]
