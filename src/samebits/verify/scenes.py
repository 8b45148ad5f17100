"""What graphs of several nodes are run on: a few steps of a paged batch, and tensors for every input.

The steps are those an engine makes: a part of a prompt, prompts beside decodes, decodes in another order, a smaller
batch and the largest; two sequences share a page, and one takes pages that another gave back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import TensorSpec, joined_axis
from samebits.core.step import PAGES, lay_out, step_specs
from samebits.graph import Graph, Value
from samebits.models.parts import ROPE_TABLE, Limits
from samebits.ops.cases import in_format
from samebits.ops.rope import rope_table
from samebits.verify.harness import filled

Arrays = dict[str, np.ndarray]
NUM_PAGES, PAGE_SIZE, VOCAB = 12, 16, 96
LIMITS = Limits(max_tokens=40, max_sequences=4, num_pages=NUM_PAGES, page_size=PAGE_SIZE, max_positions=64)
SIZES = {"T": LIMITS.max_tokens, "R": LIMITS.max_tokens, "B": LIMITS.max_sequences, "NI": LIMITS.max_table_entries}
STEP_INPUTS = {name: spec.shape[0] for name, spec in step_specs(SIZES).items()}
SCRIPT: tuple[dict[str, int], ...] = (  # new tokens by sequence, in the order of the batch
    {"a": 20},
    {"a": 1, "b": 3, "c": 5},
    {"c": 1, "b": 1, "a": 1},
    {"b": 1},
    {"d": 33, "a": 1, "b": 1, "c": 1},
    {"e": 7, "d": 1},
    {"d": 1, "b": 1},
    {"b": 1, "d": 1},  # as large as the step before
)
SHARES = {"b": "a"}  # b goes on after a's first page
SUCCEEDS = {"e": "c"}  # e gets c's pages; c has ended
SLOT_OF = {"a": 2, "b": 0, "c": 3, "d": 1, "e": 3}
ROW_ORDER = "row_order"  # an input: the numbers of a step's rows, from the last to the first
NUM_DRAWN = 8
POISON = 0xFF  # of cells that hold no token
SLOTS_SUFFIX = ".slots"  # of states in slots: they hold numbers, since b goes on from one that nobody computed here


def script_steps(seed: int) -> list[Arrays]:
    """The int32 arrays of every step, named as a model's inputs."""
    free = [int(page) for page in Stream("scene/pages", seed).permutation(NUM_PAGES)]
    pages: dict[str, list[int]] = {}
    lengths: dict[str, int] = {}
    steps = []
    for number, new in enumerate(SCRIPT):
        for name in new:
            if name not in pages:
                shared = pages[SHARES[name]][:1] if name in SHARES else []
                free[:0] = pages.pop(SUCCEEDS[name]) if name in SUCCEEDS else []
                pages[name], lengths[name] = list(shared), len(shared) * PAGE_SIZE
            lengths[name] += new[name]
            while len(pages[name]) * PAGE_SIZE < lengths[name]:
                pages[name].append(free.pop(0))
        steps.append(_step(new, pages, lengths, Stream(f"scene/tokens{number}", seed)))
    return steps


def drawn_steps(name: str, seed: int) -> list[Arrays]:
    """Return steps of one sequence of 1 .. max_tokens tokens each, for graphs without caches: threads share out another
    number of rows in each step but the last, which has as many as the one before."""
    counts = Stream(f"scene/{name}/rows", seed).integers(1, LIMITS.max_tokens + 1, (NUM_DRAWN,)).tolist()
    pages = {"a": list(range(-(-LIMITS.max_tokens // PAGE_SIZE)))}
    return [
        _step({"a": n}, pages, {"a": n}, Stream(f"scene/{name}/tokens{number}", seed))
        for number, n in enumerate([*counts[:-1], counts[-2]])
    ]


def _step(new: dict[str, int], pages: dict[str, list[int]], lengths: dict[str, int], stream: Stream) -> Arrays:
    counts = np.array(list(new.values()), np.int32)
    ends = np.cumsum(counts, dtype=np.int32)
    tables = np.zeros((LIMITS.max_sequences, NUM_PAGES), np.int32)
    for name in new:
        tables[SLOT_OF[name], : len(pages[name])] = pages[name]
    return lay_out(
        token_ids=stream.integers(0, VOCAB, (int(ends[-1]),)).astype(np.int32),
        starts=np.array([lengths[name] - count for name, count in new.items()], np.int32),
        counts=counts,
        out_rows=np.array([*(ends - 1), 0][: int(ends[-1])], np.int32),  # every sequence's last token, and the first
        page_size=PAGE_SIZE,
        tables=tables,
        rows=np.array([SLOT_OF[name] for name in new], np.int32),
    ).arrays()


def dims_of(arrays: Arrays) -> dict[str, int]:
    """The sizes that a step gives to a graph's symbols."""
    names = {"T": "token_ids", "B": "kv_last_page_len", "NI": "kv_indices", "R": "out_rows"}
    return {symbol: len(arrays[name]) for symbol, name in names.items()}


class Tensors:
    """Every input of a graph as a host tensor: weights drawn by name, caches of poison, a step's arrays."""

    def __init__(self, graph: Graph, seed: int, script: Callable[[int], list[Arrays]] = script_steps) -> None:
        """graph: before any pass, so that joined weights are made of its own. script: the steps that a seed gives."""
        self._seed, self._specs = seed, {v.name: v.spec for v in graph.inputs}
        self._weights: dict[str, HostTensor] = {}
        scripted = script(seed)
        self.steps = [self._complete(graph, arrays, i) for i, arrays in enumerate(scripted)]
        self.dims = [dims_of(arrays) for arrays in scripted]

    def _complete(self, graph: Graph, arrays: Arrays, number: int) -> Arrays:
        """The arrays that the graph reads, its float inputs among them."""
        found = {}
        for value in graph.inputs:
            if value.name in arrays:
                found[value.name] = arrays[value.name]
            elif value.name.startswith(f"{PAGES}."):
                found[value.name] = NUM_PAGES - 1 - arrays[PAGES]  # pages of its own, in another order
            elif value.name == ROW_ORDER:
                found[value.name] = np.arange(dims_of(arrays)["T"], dtype=np.int32)[::-1].copy()
            elif value.name not in graph.kinds:
                shape = value.spec.at(dims_of(arrays)).upper_shape
                found[value.name] = Stream(f"scene/{value.name}/{number}", self._seed).normal(shape)
        return found

    def constant(self, graph: Graph, value: Value) -> HostTensor:
        """A weight of the graph or of what passes made of it, or the first contents of a cache."""
        if graph.kinds.get(value.name) == "cache" and not value.name.endswith(SLOTS_SUFFIX):
            return filled(value.spec, POISON)
        if value.name not in self._weights:
            parts = graph.joined.get(value.name)
            self._weights[value.name] = (
                self._drawn(value.name, value.spec)
                if parts is None
                else joined([self.constant(graph, Value(part, self._specs[part])) for part in parts], value.spec)
            )
        return self._weights[value.name]

    def _drawn(self, name: str, spec: TensorSpec) -> HostTensor:
        shape = spec.upper_shape
        if name.startswith(ROPE_TABLE):
            return rope_table(shape[0], 2 * shape[1], theta=10000.0 if name == ROPE_TABLE else 100.0)
        values = Stream(f"scene/{name}", self._seed).normal(shape)
        if len(shape) == 1:
            return in_format(np.float32(1) + np.float32(0.25) * values, spec.format)
        return in_format(values * np.float32(1.5 / math.sqrt(shape[-1])), spec.format)


def joined(parts: list[HostTensor], spec: TensorSpec) -> HostTensor:
    """The rows of several weights one after another, as the whole's spec says."""
    first, axis = parts[0], joined_axis(spec.shape, parts[0].shape)
    if isinstance(first, Packed):
        return Packed(first.format, np.concatenate([p.data for p in parts if isinstance(p, Packed)], axis), first.scale)
    return np.concatenate([p for p in parts if isinstance(p, np.ndarray)], axis)
