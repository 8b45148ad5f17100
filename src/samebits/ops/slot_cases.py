"""Cases of the ops with states in slots: batches by name, inputs, and the other ways to ask for the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.ops.equivalents import Equivalent, Results
from samebits.ops.record import Case, Op
from samebits.ops.slots import CHUNK
from samebits.ops.space import Row, Space, choice, size
from samebits.ops.spaces import MAKING, number
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
    "many": tuple((i, 1 + i % 3) for i in range(33)),
    "nobody": (),
}
VALUES = ("normal", "zeros", "tiny", "zero-stretches", "wide", "bounds", "faint", "equal", "mixed")
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


def _batch(case: Case) -> Batch:
    return BATCHES[case.extra["batch"]]


def _num_tokens(batch: Batch) -> int:
    return sum(n for _, n in batch)


def _memory(case: Case, stream: Stream, indices: dict[str, np.ndarray], dims: dict[str, tuple[int, ...]]) -> Any:
    """State and ring: what a step may read holds numbers, all else is poison."""
    batch, kind = _batch(case), case.extra.get("values", "normal")
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
            falls = own.child("gates").uniform(-0.5, 0.0, (live, num_heads))
            ring[slot, :live, -num_heads:] = np.cumsum(falls, axis=0, dtype=np.float32)
    return state, ring


def _heads(case: Case, names: str) -> tuple[int, ...]:
    return tuple(int(case.dims[n]) for n in names.split())


def _gating(case: Case, stream: Stream, num_heads: int) -> dict[str, np.ndarray]:
    decay = -np.abs(stream.child("decay").normal((num_heads,), case.extra.get("decay", 1.0)))
    return {"decay": decay.astype(np.float32), "dt_bias": stream.child("dt_bias").normal((num_heads,))}


def delta_inputs(_: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    hk, h, k, v = _heads(case, "Hk H K V")
    batch, kind = _batch(case), case.extra.get("values", "normal")
    tokens, indices = _num_tokens(batch), _indices(batch, stream)
    ring_width = hk * k + h * v + h
    state, ring = _memory(case, stream, indices, {"state": (h, k, v), "ring": (ring_width,)})
    size_of_key = np.float32(k**-0.5)  # about normalised
    return {
        "q": contents(kind, stream.child("q"), (tokens, hk, k), "f32") * size_of_key,
        "k": contents(kind, stream.child("k"), (tokens, hk, k), "f32") * size_of_key,
        "v": contents(kind, stream.child("v"), (tokens, h, v), "f32"),
        "a": stream.child("a").normal((tokens, h)),
        "b": contents(kind, stream.child("b"), (tokens, h), "f32"),
        **_gating(case, stream, h),
        "state": state,
        "ring": ring,
        **indices,
    }


def ssm_inputs(_: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    groups, h, s, p = _heads(case, "G H S P")
    batch, kind = _batch(case), case.extra.get("values", "normal")
    tokens, indices = _num_tokens(batch), _indices(batch, stream)
    state, ring = _memory(case, stream, indices, {"state": (h, s, p), "ring": (groups * s + h * p + h,)})
    return {
        "x": contents(kind, stream.child("x"), (tokens, h, p), "f32"),
        "dt": stream.child("dt").normal((tokens, h)),
        "B": contents(kind, stream.child("B"), (tokens, groups, s), "f32") * np.float32(s**-0.5),
        "C": contents(kind, stream.child("C"), (tokens, groups, s), "f32") * np.float32(s**-0.5),
        **_gating(case, stream, h),
        "state": state,
        "ring": ring,
        **indices,
        **({"D": stream.child("D").normal((h,))} if "D" in case.given else {}),
    }


def conv_inputs(_op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    channels, taps = _heads(case, "C taps")
    batch, kind = _batch(case), case.extra.get("values", "normal")
    tokens, indices = _num_tokens(batch), _indices(batch, stream)
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
        **({"bias": stream.child("bias").normal((channels,))} if "bias" in case.given else {}),
    }


def _delta_case(
    name: str, batch: str, heads: tuple[int, ...] = (2, 4, 16, 16), full: bool = False, **attrs: Any
) -> Case:
    dims = dict(zip(("Hk", "H", "K", "V"), heads, strict=True))
    return Case(name, dims, {"scale": heads[2] ** -0.5, **attrs}, extra={"batch": batch}, full=full)


DELTA_CASES = [
    *(_delta_case(batch, batch) for batch in BATCHES if batch not in ("long", "many")),
    _delta_case("tiled", "mixed", v_heads="tiled"),
    _delta_case("odd-sizes", "mixed", (1, 3, 12, 20)),
    _delta_case("head-60-100", "ends", (2, 2, 60, 100)),
    _delta_case("qwen3-next-decode", "decode", (16, 32, 128, 128), full=True),
    _delta_case("qwen3-next", "mixed", (2, 4, 128, 128)),
    _delta_case("long", "long", full=True),
]


def _ssm_case(name: str, batch: str, heads: tuple[int, ...] = (2, 4, 16, 8), full: bool = False, **attrs: Any) -> Case:
    dims = dict(zip(("G", "H", "S", "P"), heads, strict=True))
    return Case(name, dims, attrs, extra={"batch": batch}, given=("D",), full=full)


SSM_CASES = [
    *(_ssm_case(batch, batch) for batch in BATCHES if batch not in ("long", "many")),
    _ssm_case("limits", "mixed", dt_min=0.1, dt_max=0.7),
    _ssm_case("odd-sizes", "mixed", (1, 3, 20, 12)),
    _ssm_case("mamba-2", "mixed", (1, 2, 128, 64)),
    _ssm_case("mamba-2-decode", "decode", (1, 24, 128, 64), full=True),
    _ssm_case("long", "long", full=True),
]


def _conv_case(name: str, batch: str, channels: int = 40, taps: int = 4, full: bool = False, **attrs: Any) -> Case:
    dims = {"C": channels, "taps": taps, "J": taps - 1}
    return Case(name, dims, {"activation": "silu", **attrs}, extra={"batch": batch}, given=("bias",), full=full)


CONV_CASES = [
    *(_conv_case(batch, batch) for batch in BATCHES if batch != "long"),
    _conv_case("three-taps", "mixed", taps=3, activation="none"),
    _conv_case("nine-taps", "ends", taps=9),
    _conv_case("two-taps", "ends", taps=2),
    _conv_case("qwen3-next", "mixed", 8192),
    _conv_case("long", "long", full=True),
]


def _tokens(row: Row) -> int:
    return max(1, _num_tokens(BATCHES[str(row["batch"])]))


def _space(
    factors: tuple[Any, ...], names: tuple[str, ...], cost: Any, case: Any, fits: Any = lambda row: True
) -> Space:
    batch = choice("batch", *BATCHES, least="first")
    values = choice("values", *VALUES)

    def whole(row: Row) -> dict[str, Any]:
        dims = {name: number(row, name) for name in names}
        extra = {"batch": row["batch"], "values": row["values"], "decay": 20.0 if row.get("decay") == "fast" else 1.0}
        return {"dims": dims, "attrs": {}, "formats": {}, "given": (), "extra": extra} | case(row, dims)

    return Space((batch, *factors, values), whole, cost, fits)


def _head_cost(row: Row, k: str, v: str, keys: str) -> int:
    """Operations, and what making the inputs and the memory of all slots costs."""
    heads, width, depth = number(row, keys) * number(row, "share"), number(row, k), number(row, v)
    slots = len(BATCHES[str(row["batch"])]) + 3
    return heads * (_tokens(row) * (width * depth * 4 + CHUNK * (width + depth)) + MAKING * slots * width * depth)


DECAY = choice("decay", "slow", "fast")
DELTA_SPACE = _space(
    (
        size("Hk", 16, usual=2),
        size("share", 4, usual=2),
        size("K", 256, usual=32),
        size("V", 256, usual=32),
        choice("v_heads", "grouped", "tiled"),
        DECAY,
    ),
    ("Hk", "K", "V"),
    lambda row: _head_cost(row, "K", "V", "Hk"),
    lambda row, dims: {
        "dims": {**dims, "H": number(row, "Hk") * number(row, "share")},
        "attrs": {"scale": number(row, "K") ** -0.5, "v_heads": row["v_heads"]},
    },
)
LIMITS: dict[str, dict[str, float]] = {"none": {}, "both": {"dt_min": 0.2, "dt_max": 0.9}}
SSM_SPACE = _space(
    (
        size("G", 8, usual=2),
        size("share", 16, usual=2),
        size("S", 256, usual=32),
        size("P", 128, usual=32),
        choice("D", "none", "given"),
        choice("limits", *LIMITS),
        DECAY,
    ),
    ("G", "S", "P"),
    lambda row: _head_cost(row, "S", "P", "G"),
    lambda row, dims: {
        "dims": {**dims, "H": number(row, "G") * number(row, "share")},
        "attrs": LIMITS[str(row["limits"])],
        "given": ("D",) if row["D"] == "given" else (),
    },
)
CONV_SPACE = _space(
    (
        size("C", 16_384, usual=64),
        size("taps", 9, least=2, usual=4),
        choice("bias", "none", "given"),
        choice("activation", "none", "silu"),
    ),
    ("C", "taps"),
    lambda row: number(row, "C") * (_tokens(row) * (MAKING + 4 * number(row, "taps")) + MAKING * number(row, "taps")),
    lambda row, dims: {
        "dims": {**dims, "J": number(row, "taps") - 1},
        "attrs": {"activation": row["activation"]},
        "given": ("bias",) if row["bias"] == "given" else (),
    },
)


def _is_per_token(op: Op, name: str) -> bool:
    return any(t.name == name and t.dims_choices[0].split()[0] == "T" for t in op.inputs)


def _call(
    op: Op, inputs: dict[str, Any], runs: list[tuple[int, int, int]], memory: dict[str, np.ndarray]
) -> dict[str, Any]:
    """The inputs of a call over (first row, rows, slot) of sequences, with copies of this memory."""
    rows = np.concatenate([np.arange(r, r + n) for r, n, _ in runs] or [np.zeros(0, np.int64)]).astype(np.int64)
    counts = np.array([n for _, n, _ in runs], np.int64)
    return {
        **{name: x[rows] if _is_per_token(op, name) else x for name, x in inputs.items()},
        "qo_indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "slots": np.array([slot for _, _, slot in runs], np.int32),
        **{name: x.copy() for name, x in memory.items()},
    }


def _live(name: str, memory: np.ndarray, slot: int, stop: int) -> np.ndarray:
    """What a sequence keeps after position `stop`: rows of a ring that nobody reads any more are left out."""
    return memory[slot, : stop % CHUNK] if name == "ring" else memory[slot]


def slot_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """Sequences alone, reversed, in other slots, cut in two, and resumed at a boundary from their state alone."""
    names = op.writes
    memory = {name: inputs[name] for name in names}
    indptr, num_slots = inputs["qo_indptr"].tolist(), len(memory[names[0]])
    whole = [(a, b - a, s) for a, b, s in zip(indptr[:-1], indptr[1:], inputs["slots"].tolist(), strict=True)]
    runs = [run for run in whole if run[1]]
    if not runs:
        return
    first = {row: int(inputs["positions"][row]) for row, _, _ in runs}

    def kept(results: Results, places: list[tuple[int, int]]) -> list[np.ndarray]:
        """What is left in slots after the positions, for each name in one row."""
        return [
            np.concatenate([_live(name, np.asarray(result), slot, stop).reshape(-1) for slot, stop in places])
            for name, result in zip(names, results[1:], strict=True)
        ]

    def rows_of(chosen: list[tuple[int, int, int]]) -> np.ndarray:
        return np.concatenate([np.arange(r, r + n) for r, n, _ in chosen]).astype(np.int64)

    def after(chosen: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        return [(slot, first[row] + n) for row, n, slot in chosen]

    def one_call(check: str, detail: str, chosen: list[tuple[int, int, int]], moved: dict[int, int]) -> Equivalent:
        target = {name: x.copy() for name, x in memory.items()}
        for old, new in moved.items():
            for name in names:
                target[name][new] = memory[name][old]
        moved_runs = [(row, n, moved.get(slot, slot)) for row, n, slot in chosen]

        def compute(execute: Any) -> Results:
            results = execute(_call(op, inputs, moved_runs, target))
            return (results[0], *kept(results, after(moved_runs)))

        return Equivalent(
            check, detail, compute, lambda r: (np.asarray(r[0])[rows_of(chosen)], *kept(r, after(chosen)))
        )

    for run in runs[:3]:
        yield one_call("batch-size", f"the sequence of slot {run[2]} alone", [run], {})
    yield one_call("order", "sequences reversed", runs[::-1], {})
    turned = {slot: (slot + 1) % num_slots for slot in range(num_slots)}
    yield one_call("slots", "every sequence in another slot", runs, turned)

    def cut(check: str, detail: str, places: dict[int, int], is_resumed: bool) -> Equivalent:
        """Rows before the places in one call, the others in a second; resumed ones with their states alone."""
        before = [(r, places.get(r, n), s) for r, n, s in runs]
        behind = [(r + places[r], n - places[r], s) for r, n, s in runs if places.get(r, n) < n]

        def compute(execute: Any) -> Results:
            start = execute(_call(op, inputs, before, memory))
            middle = {name: np.asarray(x).copy() for name, x in zip(names, start[1:], strict=True)}
            if is_resumed:
                _forget(middle, [slot for _, _, slot in behind])
            end = execute(_call(op, inputs, behind, middle))
            out = np.zeros((indptr[-1], *np.asarray(start[0]).shape[1:]), np.asarray(start[0]).dtype)
            out[rows_of(before)], out[rows_of(behind)] = start[0], end[0]
            return (out, *kept(end, after(runs)))

        return Equivalent(check, detail, compute, lambda r: (r[0], *kept(r, after(runs))))

    longest = max(n for _, n, _ in runs)
    for place in sorted({1, longest // 2, longest - 1}):
        places = {r: place for r, n, _ in runs if place < n}
        if place and places:
            yield cut("split", f"cut after {place} tokens", places, is_resumed=False)
    boundaries = {r: CHUNK - first[r] % CHUNK for r, n, _ in runs if CHUNK - first[r] % CHUNK < n}
    if boundaries:
        yield cut("resume", "resumed at the first boundary", boundaries, is_resumed=True)


def _forget(memory: dict[str, np.ndarray], slots: list[int]) -> None:
    """Leaves what a snapshot at a boundary holds: no ring, and of a carry the boundary's."""
    for slot in slots:
        if "ring" in memory:
            memory["ring"][slot] = POISON
        if "carry" in memory:
            memory["carry"][slot, 0] = POISON
