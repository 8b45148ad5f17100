"""Refusals and crashes in the place of answers: what claims a kernel must run it, however it is asked."""

from __future__ import annotations

from planted import Results
from planted_base import EVERY_OP, Arguments, Defect, DefectiveExecutable, PlantedCrash, Scene, shown_by
from planted_scenes import call, floats, repeated

from samebits.backends.interface import Buffer, View
from samebits.backends.reference import ReferenceExecutable
from samebits.core.errors import Unsupported
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.ops.build import OpBuilder


def chain(num_nodes: int, num_rows: int | Sym = 3) -> Scene:
    """Scalings of x [rows, 8], one after another."""
    b = OpBuilder()
    value = b.input("x", TensorSpec((num_rows, 8), "f32"))
    for _ in range(num_nodes):
        value = b.scale(value, factor=1.5)
    return Scene(b.finish(value), ({"x": floats(3, 8)},))


def added(num_rows: int) -> Scene:
    return call("add", x=floats(num_rows, 4), y=floats(num_rows, 4, seed=1))


def in_a_team(num_threads: int) -> Scene:
    scene = added(3)
    return Scene(scene.graph, scene.runs, threads=(num_threads,))


class SeveralNodesRefused(Defect):
    """Compiles single ops alone, although `samebits support` says that it has them all."""

    ops = EVERY_OP
    witness = shown_by(chain, 2)
    twin = shown_by(chain, 1)

    def compile(self, graph: Graph, tier: Tier) -> ReferenceExecutable:
        if len(graph.nodes) > 1:
            raise Unsupported("planted: one node at a time")
        return super().compile(graph, tier)


class SecondRunRefused(Defect):
    """Runs once and asks to be compiled anew."""

    ops = EVERY_OP
    witness = shown_by(lambda: repeated(added(3), {"y": floats(3, 4, seed=2)}))
    twin = shown_by(added, 3)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        if run.num_runs > 1:
            raise Unsupported("planted: this executable has run")
        return run.kernel(number, arguments)


class RaisesAt33Rows(Defect):
    """Has no room for the second tile of 32 rows."""

    ops = ("add", "mul", "rms_norm")
    witness = shown_by(added, 33)
    twin = shown_by(added, 32)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        if len(arguments["x"]) == 33:
            raise PlantedCrash("no room for tile 1")
        return super().kernel(op_name, arguments)


class RaisesWhenBoundAgain(Defect):
    """Loses its handle when other memory is bound after a run."""

    ops = EVERY_OP
    witness = shown_by(lambda: repeated(added(3), {"x": floats(5, 4), "y": floats(5, 4)}))
    twin = shown_by(lambda: repeated(added(3), {"x": floats(3, 4, seed=2)}))

    def resolve(self, run: DefectiveExecutable, name: str, buffer: Buffer | View) -> Buffer | View:
        if run.num_runs:
            raise PlantedCrash("invalid handle")
        return buffer


class RaisesOnSeveralThreads(Defect):
    """Cannot start the second thread of its team."""

    ops = ("gemm", "softmax", "add")
    witness = shown_by(lambda: in_a_team(2))
    twin = shown_by(lambda: in_a_team(1))

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        if self.threads > 1:
            raise PlantedCrash("pthread_create: resource temporarily unavailable")
        return super().kernel(op_name, arguments)


class OpenSizesRefusedAtRun(Defect):
    """Compiles for open sizes, and refuses to run at every size but the largest."""

    ops = EVERY_OP
    witness = shown_by(lambda: chain(1, Sym("T", 5)))
    twin = shown_by(chain, 1)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        for value in run.graph.inputs:
            for size, given in zip(value.spec.shape, run.bound[value.name].shape, strict=True):
                if isinstance(size, Sym) and given < size.limit:
                    raise Unsupported(f"planted: {size.name} = {given}")
        return run.kernel(number, arguments)
