"""Several nodes in one graph: defects between them, of barriers, memory, aliases and attrs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from planted import Results, stored
from planted_base import EVERY_OP, Arguments, Defect, DefectiveExecutable, Scene, shown_by
from planted_scenes import append, floats, ints

from samebits.core.format import copy_tensor
from samebits.core.shapes import TensorSpec
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of


def rows(build: Callable[..., Any], num_runs: int = 1, fmt: str = "f32") -> Scene:
    """A graph over x [3, 8], whose outputs build(b, x) gives; every run has other values."""
    b = OpBuilder()
    outputs = build(b, b.input("x", TensorSpec((3, 8), fmt)))
    graph = b.finish(*outputs) if isinstance(outputs, tuple) else b.finish(outputs)
    return Scene(graph, tuple({"x": floats(3, 8, seed=i, fmt=fmt)} for i in range(num_runs)))


def chain(b: Any, x: Any, num_nodes: int = 2) -> Any:
    for i in range(num_nodes):
        x = b.scale(x, factor=1.5) if i % 2 else b.soft_cap(x, cap=3.0)
    return x


def fork(b: Any, x: Any) -> Any:
    """The first value is read by the node after next."""
    left = b.scale(x, factor=2.0)
    right = b.soft_cap(x, cap=1.0)
    return b.add(right, left)


class Graphs(Defect):
    ops = EVERY_OP


def made_by(run: DefectiveExecutable, name: str) -> int | None:
    """The number of the node that makes a value; None for an input of the graph."""
    return next((i for i, n in enumerate(run.graph.nodes) for v in n.outputs if v.name == name), None)


class MissingBarrier(Graphs):
    """Starts a node before the one in front has written its result: the node reads that of the run before."""

    distance = 1
    first_node = 0
    witness = shown_by(rows, chain, num_runs=2)
    twin = shown_by(rows, chain)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        early = dict(arguments)
        for name, value in run.node(number).inputs.items():
            maker = made_by(run, value.name)
            if maker is not None and number - maker == self.distance and number >= self.first_node:
                before = run.kept.get(value.name)
                run.kept[value.name] = copy_tensor(arguments[name])
                if before is not None and before.shape == arguments[name].shape:
                    early[name] = before
        return run.kernel(number, early)


class BarrierForNeighboursOnly(MissingBarrier):
    """Waits for the node directly in front, and not for the one before that."""

    distance = 2
    witness = shown_by(rows, fork, num_runs=2)
    twin = shown_by(rows, chain, num_runs=2)


def turned(num_rows: int) -> Scene:
    """Heads of 4 tokens, turned by a table of this many rows that the node before makes; two runs."""
    b = OpBuilder()
    heads = b.split_heads(b.input("x", TensorSpec((4, 8), "f32")), heads=1)
    pos_ids = b.input("pos_ids", TensorSpec((4,), "i32"))
    table = b.split_heads(b.scale(b.input("table", TensorSpec((num_rows, 8), "f32")), factor=0.5), heads=4)
    runs = [{"x": floats(4, 8), "table": floats(num_rows, 8, seed=i), "pos_ids": ints(3, 2, 1, 0)} for i in (1, 2)]
    return Scene(b.finish(b.rope(heads, pos_ids, table)), tuple(runs))


class BarrierByRowCount(Graphs):
    """Omits the barrier between nodes with the same number of rows: a table's rows are those of the run before."""

    ops = ("rope",)
    witness = shown_by(turned, 4)
    twin = shown_by(turned, 5)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        name, table = run.node(number).inputs["table"].name, arguments["table"]
        if made_by(run, name) is None or len(table) != len(arguments["x"]):
            return run.kernel(number, arguments)
        before = run.kept.get(name, table[:0])
        run.kept[name] = copy_tensor(table)
        late = min(len(before), len(table))
        return run.kernel(number, {**arguments, "table": np.concatenate([before[:late], table[late:]])})


class BarrierLostAfterSixteen(MissingBarrier):
    """Has sixteen events, so that nodes from the seventeenth on wait for nothing."""

    first_node = 16
    witness = shown_by(rows, lambda b, x: chain(b, x, 17), num_runs=2)
    twin = shown_by(rows, lambda b, x: chain(b, x, 16), num_runs=2)


class ReusedAfterFirstUse(Graphs):
    """Frees a value's memory once one node has read the value, although others read it later."""

    witness = shown_by(rows, lambda b, x: reused(b, x, True))
    twin = shown_by(rows, lambda b, x: reused(b, x, False))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        late = dict(arguments)
        for name, value in run.node(number).inputs.items():
            uses, maker = run.graph.uses[value.name], made_by(run, value.name)
            between = range(uses[0] + 1, number) if maker is not None else ()
            for node in (run.node(i) for i in between):
                if node.outputs[0].spec == value.spec and not node.writes:
                    late[name] = run.values[node.outputs[0].name]
        return run.kernel(number, late)


def reused(b: Any, x: Any, late: bool) -> Any:
    """A value that is read at once and, perhaps, again two nodes later."""
    first = b.scale(x, factor=2.0)
    second = b.soft_cap(first, cap=1.0)
    third = b.scale(second, factor=3.0)
    return b.add(third, first if late else second)


class OutputMemoryReused(Graphs):
    """Frees the memory of a graph's output after the last node that reads the output."""

    witness = shown_by(rows, lambda b, x: inner_output(b, x, 2))
    twin = shown_by(rows, lambda b, x: inner_output(b, x, 1))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results = run.kernel(number, arguments)
        for value in run.graph.outputs:
            uses = run.graph.uses[value.name]
            dead = len(uses) > 1 and number > uses[-2]
            if dead and run.node(number).outputs[0].spec == value.spec and value.name in run.values:
                stored(run.values[value.name])[...] = stored(results[0])
        return results


def inner_output(b: Any, x: Any, after: int) -> Any:
    """An output with a reader, and nodes after it."""
    inner = b.scale(x, factor=2.0)
    return inner, chain(b, inner, after)


def step(second: bool = True) -> Scene:
    """A token appended to a cache of 5, and attention over the cache after it, or before."""
    inputs = {k: v for k, v in append([4]).runs[0].items() if isinstance(v, np.ndarray)}
    inputs |= {"q": floats(1, 1, 8, seed=8), "qo_indptr": ints(0, 1)}
    b = OpBuilder()
    v = {name: b.input(name, spec_of(x)) for name, x in inputs.items()}
    table = {n: v[n] for n in ("kv_last_page_len", "kv_indptr", "kv_indices")}

    def attended(k: Any, values: Any) -> Any:
        return b.paged_attention(v["q"], k, v["qo_indptr"], v_cache=values, **table)

    early = None if second else attended(v["k_cache"], v["v_cache"])
    cells = {n: v[n] for n in ("key", "value", "batch_indices", "positions", "k_cache", "v_cache")}
    new = b.append_paged_kv_cache(**cells, **table)
    return Scene(b.finish(attended(*new) if second else early, *new), (inputs,))


class AliasNotSeen(Graphs):
    """Reads a cache before the node in front has appended to it."""

    witness = shown_by(step)
    twin = shown_by(step, second=False)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        node = run.node(number)
        for old, new in node.writes:
            run.kept[new.name] = copy_tensor(run.values[old.name])
        if node.op.name == "paged_attention":
            early = {name: run.kept[v.name] for name, v in node.inputs.items() if v.name in run.kept}
            arguments = {**arguments, **early}
        return run.kernel(number, arguments)


class WritesHoisted(Graphs):
    """Moves an append before a node that reads the cache as it was."""

    witness = shown_by(step, second=False)
    twin = shown_by(step)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        names = {value.name for value in run.node(number).inputs.values()}
        for i, node in enumerate(run.graph.nodes[number + 1 :], start=number + 1):
            ready = all(value.name in run.values for value in node.inputs.values())
            if ready and node.op.name == "append_paged_kv_cache" and names & {old.name for old, _ in node.writes}:
                run.kernel(i, {name: run.values[value.name] for name, value in node.inputs.items()})
        return run.kernel(number, arguments)
