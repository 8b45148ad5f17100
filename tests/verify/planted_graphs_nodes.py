"""Several nodes in one graph: defects that take one node, value or binding for another. See planted_graphs.py."""

from __future__ import annotations

import numpy as np
from planted import F, Results, defined, stored
from planted_base import Arguments, DefectiveExecutable, Rows, Scene, shown_by
from planted_graphs import Graphs, inner_output, made_by, rows
from planted_scenes import append, floats, ints

from samebits.backends.interface import Buffer, View
from samebits.core.format import copy_tensor
from samebits.core.numerics.rounding import BF16, widen
from samebits.core.shapes import TensorSpec
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of


class AttrsOfTheFirst(Graphs):
    """Keeps one set of attributes per op: a second node of the op runs with the first one's."""

    ops = ("scale", "soft_cap", "rms_norm")
    witness = shown_by(rows, lambda b, x: b.scale(b.scale(x, factor=2.0), factor=3.0))
    twin = shown_by(rows, lambda b, x: b.scale(b.scale(x, factor=2.0), factor=2.0))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        node = run.node(number)
        first = next(n for n in run.graph.nodes if n.op.name == node.op.name)
        return run.kernel(number, arguments, **first.attrs)


def layers(*windows: int) -> Scene:
    """Attention after attention, each with its window, as in models that alternate."""
    inputs = {k: v for k, v in append([4]).runs[0].items() if k not in ("key", "value", "batch_indices", "positions")}
    inputs |= {"q": floats(1, 1, 8, seed=8), "qo_indptr": ints(0, 1)}
    b = OpBuilder()
    v = {name: b.input(name, spec_of(x)) for name, x in inputs.items()}
    rest = {name: value for name, value in v.items() if name != "q"}
    q = v["q"]
    for w in windows:
        q = b.paged_attention(q, **rest, window_left=w)
    return Scene(b.finish(q), (inputs,))


class WindowOfTheFirstLayer(Graphs):
    """Compiles attention once for all layers, with the window of the first one."""

    ops = ("paged_attention",)
    witness = shown_by(layers, 2, -1)
    twin = shown_by(layers, 2, 2)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        first = next(n for n in run.graph.nodes if n.op.name == "paged_attention")
        return run.kernel(number, arguments, window_left=first.attrs["window_left"])


class MergedWithoutAttrs(Graphs):
    """Merges nodes of one op with the same inputs, although their attributes differ."""

    witness = shown_by(rows, lambda b, x: (b.slice_columns(x, start=0, stop=4), b.slice_columns(x, start=4, stop=8)))
    twin = shown_by(rows, lambda b, x: (b.slice_columns(x, start=0, stop=4), b.slice_columns(x, start=4, stop=7)))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        node = run.node(number)
        for same in run.graph.nodes[:number]:
            specs = [v.spec for v in same.outputs] == [v.spec for v in node.outputs]
            if same.op is node.op and same.inputs == node.inputs and specs and not node.op.writes:
                return tuple(copy_tensor(run.values[v.name]) for v in same.outputs)
        return run.kernel(number, arguments)


class SameValueTwice(Graphs):
    """Loads an operand that a node reads twice only once, and takes the next row for the second."""

    ops = ("add", "mul")
    witness = shown_by(rows, lambda b, x: b.mul(x, x))
    twin = shown_by(rows, lambda b, x: b.mul(x, b.scale(x, factor=1.0)))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        if run.node(number).inputs["x"] == run.node(number).inputs["y"]:
            arguments = {**arguments, "y": np.roll(arguments["y"], 1, axis=0)}
        return run.kernel(number, arguments)


def views(*starts: int) -> Scene:
    """mul of two inputs that are rows of one buffer."""
    whole = floats(8, 4)
    b = OpBuilder()
    x, y = (b.input(name, TensorSpec((2, 4), "f32")) for name in "xy")
    x_rows, y_rows = (Rows(whole, start, start + 2) for start in starts)
    return Scene(b.finish(b.mul(x, y)), ({"x": x_rows, "y": y_rows},))


class ViewsOfOneBuffer(Graphs):
    """Keeps bindings by buffer: of two views of one buffer, both become the one that was bound last."""

    witness = shown_by(views, 1, 4)
    twin = shown_by(views, 3, 3)

    def resolve(self, run: DefectiveExecutable, name: str, buffer: Buffer | View) -> Buffer | View:
        base = buffer.base if isinstance(buffer, View) else buffer
        for other, bound in run.kept.items():
            if bound is base and other != name and run.bound[other].shape == buffer.spec.shape:
                super(DefectiveExecutable, run).bind(other, buffer)
        run.kept[name] = base
        return buffer


class SixtyFourValues(Graphs):
    """Has room for 64 values: the 65th overwrites the first."""

    witness = shown_by(rows, lambda b, x: inner_output(b, x, 64))
    twin = shown_by(rows, lambda b, x: inner_output(b, x, 63))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results = run.kernel(number, arguments)
        old = run.node(number - 64).outputs[0] if number >= 64 else None
        if old is not None and old.spec == run.node(number).outputs[0].spec:
            stored(run.values[old.name])[...] = stored(results[0])
        return results


class FusedWithoutRounding(Graphs):
    """Fuses a scale into the add behind it, without rounding the scaled value to its 16-bit format."""

    ops = ("add",)
    witness = shown_by(rows, lambda b, x: b.add(b.scale(x, factor=1.1), x), fmt="bf16")
    twin = shown_by(rows, lambda b, x: b.add(b.scale(x, factor=1.1), x))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        maker = made_by(run, run.node(number).inputs["x"].name)
        before = None if maker is None else run.node(maker)
        if before is None or before.op.name != "scale" or arguments["x"].dtype != BF16:
            return run.kernel(number, arguments)
        scaled = widen(run.values[before.inputs["x"].name]) * F(before.attrs["factor"])
        return (defined("add", {"x": scaled, "y": arguments["y"]})[0].astype(BF16),)


class UnusedResultSkipped(Graphs):
    """Gives a result that nothing reads no memory of its own, and writes it over the first result."""

    ops = ("top_k",)
    witness = shown_by(rows, lambda b, x: b.scale(b.top_k(x, k=2)[0], factor=2.0))
    twin = shown_by(rows, lambda b, x: b.top_k(x, k=2))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        values, indices = run.kernel(number, arguments)
        if run.node(number).outputs[1].name not in run.graph.uses:
            values = indices.astype(values.dtype)
        return values, indices
