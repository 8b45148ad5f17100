"""Several nodes in one graph: defects in what a node does with a value that another node made."""

from __future__ import annotations

import numpy as np
from planted import Results, stored
from planted_base import Arguments, DefectiveExecutable, Scene, shown_by
from planted_graphs import Graphs, made_by, rows
from planted_scenes import floats, ints

from samebits.core.format import FORMATS
from samebits.core.shapes import TensorSpec
from samebits.graph import Node
from samebits.ops.build import OpBuilder


def adds_to_itself(node: Node) -> bool:
    return node.op.name == "add" and node.inputs["x"] == node.inputs["y"]


class SumWithItselfInPlace(Graphs):
    """Adds a value to itself in the value's own memory, although a later node reads the value again."""

    ops = ("add",)
    witness = shown_by(rows, lambda b, x: b.mul(b.add(h := b.scale(x, factor=2.0), h), h))
    twin = shown_by(rows, lambda b, x: b.mul(b.add(h := b.scale(x, factor=2.0), x), h))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results = run.kernel(number, arguments)
        name = run.node(number).inputs["x"].name
        if adds_to_itself(run.node(number)) and made_by(run, name) is not None:
            stored(run.values[name])[...] = stored(results[0])
        return results


class SumFormedTwice(Graphs):
    """Fuses a sum into the norm behind it, in place, and forms it twice: a value added to itself counts four times."""

    ops = ("rms_norm",)
    witness = shown_by(rows, lambda b, x: (t := b.add(h := b.scale(x, factor=2.0), h), b.rms_norm(t)))
    twin = shown_by(rows, lambda b, x: (t := b.add(b.scale(x, factor=2.0), x), b.rms_norm(t)))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        results, name = run.kernel(number, arguments), run.node(number).inputs["x"].name
        maker = made_by(run, name)
        if maker is not None and adds_to_itself(run.node(maker)):
            stored(run.values[name])[...] *= 2
        return results


def taken(fmt: str) -> Scene:
    """Rows of a float16 result, in a format."""
    b = OpBuilder()
    x, ids = b.input("x", TensorSpec((3, 8), "f16")), b.input("ids", TensorSpec((2,), "i32"))
    graph = b.finish(b.embedding(b.scale(x, factor=2.0), ids, format=fmt))
    return Scene(graph, ({"x": floats(3, 8, fmt="f16"), "ids": ints(2, 0)},))


class TakenRowsKeepTheirBits(Graphs):
    """Copies 16-bit rows of a result as they are, also where the other 16-bit format is asked for."""

    ops = ("embedding",)
    witness = shown_by(taken, "bf16")
    twin = shown_by(taken, "f16")

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        (result,), table = run.kernel(number, arguments), run.node(number).inputs["table"]
        dtype = FORMATS[table.spec.format].dtype
        if made_by(run, table.name) is None or dtype is None or dtype.itemsize != result.dtype.itemsize:
            return (result,)
        return (np.ascontiguousarray(arguments["table"][arguments["ids"]]).view(result.dtype),)
