"""Equivalents of the ops with states in slots: other batches, slots, splits and resumptions, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.ops.equivalents import Equivalent, Execute, Results
from samebits.ops.record import Op
from samebits.ops.slot_cases import POISON
from samebits.ops.slots import CHUNK

Memory = dict[str, np.ndarray]


@dataclass(frozen=True)
class Part:
    """Tokens of one sequence: rows row .. row + count - 1 of the case, from position `first` on, in a slot."""

    row: int
    count: int
    slot: int
    first: int

    @property
    def stop(self) -> int:
        return self.first + self.count

    def cut(self, place: int) -> tuple[Part, Part]:
        """The first `place` tokens, and the others."""
        behind = Part(self.row + place, self.count - place, self.slot, self.first + place)
        return Part(self.row, place, self.slot, self.first), behind


@dataclass(frozen=True)
class Scene:
    """A case: its inputs, and the memory that its sequences find."""

    op: Op
    inputs: dict[str, Any]
    memory: Memory

    def parts(self) -> list[Part]:
        """Of the sequences with tokens, each whole."""
        indptr, slots = self.inputs["qo_indptr"].tolist(), self.inputs["slots"].tolist()
        bounds = zip(indptr[:-1], indptr[1:], slots, strict=True)
        return [Part(a, b - a, slot, int(self.inputs["positions"][a])) for a, b, slot in bounds if b > a]

    def call(self, parts: list[Part], memory: Memory) -> dict[str, Any]:
        """The inputs of a call over these parts, with copies of this memory."""
        rows, per_token = rows_of(parts), [t.name for t in self.op.inputs if t.dims_choices[0].split()[0] == "T"]
        return {
            **{name: x[rows] if name in per_token else x for name, x in self.inputs.items()},
            "qo_indptr": np.cumsum([0, *(part.count for part in parts)], dtype=np.int32),
            "slots": np.array([part.slot for part in parts], np.int32),
            **{name: x.copy() for name, x in memory.items()},
        }

    def kept(self, results: Results, parts: list[Part]) -> list[np.ndarray]:
        """What is left in the slots of these parts, for each name in one row; no ring rows that nobody reads."""
        return [
            np.concatenate(
                [
                    (np.asarray(x)[p.slot, : p.stop % CHUNK] if name == "ring" else np.asarray(x)[p.slot]).reshape(-1)
                    for p in parts
                ]
            )
            for name, x in zip(self.memory, results[1:], strict=True)
        ]

    def elsewhere(self, check: str, detail: str, parts: list[Part], moved: dict[int, int]) -> Equivalent:
        """These sequences in one call, some of them in other slots."""
        memory = {name: x.copy() for name, x in self.memory.items()}
        for old, new in moved.items():
            for name, x in self.memory.items():
                memory[name][new] = x[old]
        there = [Part(p.row, p.count, moved.get(p.slot, p.slot), p.first) for p in parts]

        def compute(execute: Execute) -> Results:
            results = execute(self.call(there, memory))
            return (results[0], *self.kept(results, there))

        def expect(results: Results) -> Results:
            return (np.asarray(results[0])[rows_of(parts)], *self.kept(results, parts))

        return Equivalent(check, detail, compute, expect)

    def cut(self, check: str, detail: str, places: dict[int, int], is_resumed: bool) -> Equivalent:
        """Tokens before the places, by slot, in one call, the others in a second; resumed ones with states alone."""
        parts = self.parts()
        pairs = [p.cut(places.get(p.slot, p.count)) for p in parts]
        before, behind = [a for a, _ in pairs], [b for _, b in pairs if b.count]

        def compute(execute: Execute) -> Results:
            start = execute(self.call(before, self.memory))
            memory = {name: np.asarray(x).copy() for name, x in zip(self.memory, start[1:], strict=True)}
            if is_resumed:
                forget(memory, [part.slot for part in behind])
            end = execute(self.call(behind, memory))
            out = np.concatenate([np.asarray(start[0]), np.asarray(end[0])])
            order = np.argsort(np.concatenate([rows_of(before), rows_of(behind)]))
            return (out[order], *self.kept(end, parts))

        return Equivalent(check, detail, compute, lambda results: (results[0], *self.kept(results, parts)))


def rows_of(parts: list[Part]) -> np.ndarray:
    """The rows of the case that they are."""
    return np.concatenate([np.arange(p.row, p.row + p.count) for p in parts])


def forget(memory: Memory, slots: list[int]) -> None:
    """Leaves what a snapshot at a boundary holds: no ring, and of a carry the boundary's."""
    if "ring" in memory:
        memory["ring"][slots] = POISON
    if "carry" in memory:
        memory["carry"][slots, 0] = POISON


def slot_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """Sequences alone, reversed, in other slots, cut in two, and resumed at a boundary from their state alone."""
    scene = Scene(op, inputs, {name: inputs[name] for name in op.writes})
    parts, num_slots = scene.parts(), len(inputs[op.writes[0]])
    if not parts:
        return
    for part in [parts[i] for i in sorted({0, len(parts) // 2, len(parts) - 1})]:
        yield scene.elsewhere("batch-size", f"the sequence of slot {part.slot} alone", [part], {})
    yield scene.elsewhere("order", "sequences reversed", parts[::-1], {})
    turned = {slot: (slot + 1) % num_slots for slot in range(num_slots)}
    yield scene.elsewhere("slots", "every sequence in another slot", parts, turned)
    longest = max(part.count for part in parts)
    for place in sorted({1, longest // 2, longest - 1} - {0}):
        if places := {part.slot: place for part in parts if place < part.count}:
            yield scene.cut("split", f"cut after {place} tokens", places, is_resumed=False)
    to_boundary = {part.slot: CHUNK - part.first % CHUNK for part in parts}
    if boundaries := {part.slot: to_boundary[part.slot] for part in parts if to_boundary[part.slot] < part.count}:
        yield scene.cut("resume", "resumed at the first boundary", boundaries, is_resumed=True)
