"""One run after another: defects in the inputs that an executable keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from planted import F, Results, stored
from planted_base import EVERY_OP, Arguments, Defect, DefectiveExecutable, Rows, Scene, shown_by
from planted_scenes import attention, call, floats, ints, repeated

from samebits.backends.interface import Buffer, View
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, copy_tensor
from samebits.ops import OPS, bind
from samebits.ops.rope import rope_table

GEMM: Arguments = {"x": floats(2, 8), "weight": floats(3, 8, seed=1)}
TURNED: Arguments = {"x": floats(1, 1, 8), "pos_ids": ints(3), "table": rope_table(8, 8)}
RESIDUAL: Arguments = {"x": floats(1, 4), "residual": floats(1, 4, seed=1), "weight": floats(4)}


def twice(op_name: str, first: Arguments, **later: Any) -> Scene:
    """A call, then a run of the same executable with some inputs replaced in their memory."""
    return repeated(call(op_name, **first), later)


def tables(*pages: list[int]) -> Scene:
    """Attention over 20 tokens of a cache of four pages, with one table after another."""
    first, *later = (ints(*p) for p in pages)
    return repeated(attention((20,), pages=[first.tolist()], num_pages=4), *({"kv_indices": p} for p in later))


def run_if_legal(run: DefectiveExecutable, number: int, arguments: Arguments, stale: Arguments) -> Results:
    """The node on stale inputs, or on those given where the stale ones make no call."""
    try:
        bind(OPS[run.node(number).op.name], **{**arguments, **stale, **run.node(number).attrs})
    except BadInput:
        return run.kernel(number, arguments)
    return run.kernel(number, {**arguments, **stale})


class KeptInput(Defect):
    """Keeps an input of the first run for as long as its size stays."""

    argument: str

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        given = arguments.get(self.argument)
        if given is None:
            return run.kernel(number, arguments)
        first = run.kept.setdefault((number, self.argument), copy_tensor(given))
        return run_if_legal(run, number, arguments, {self.argument: first})


class FirstTableKept(KeptInput):
    """Keeps the page table of an executable's first run."""

    ops, argument = ("paged_attention",), "kv_indices"
    witness = shown_by(tables, [0, 1], [2, 3])
    twin = shown_by(tables, [0, 1], [0, 1])


class FirstLastPageKept(KeptInput):
    """Keeps the lengths of the last pages from an executable's first run."""

    ops, argument = ("paged_attention",), "kv_last_page_len"
    witness = shown_by(lambda: repeated(attention((20,)), {"kv_last_page_len": ints(7)}))
    twin = shown_by(lambda: repeated(attention((20,)), {"q": floats(1, 1, 8, seed=9)}))


class FirstWeightKept(KeptInput):
    """Packs the weight at the first run and never again, also when another one is bound."""

    ops, argument = ("gemm", "grouped_gemm"), "weight"
    witness = shown_by(twice, "gemm", GEMM, weight=floats(3, 8, seed=2))
    twin = shown_by(twice, "gemm", GEMM, x=floats(2, 8, seed=2))


class FirstNormWeightKept(KeptInput):
    """Keeps the norm's weight of the first run as a constant."""

    ops, argument = ("rms_norm", "fused_add_rms_norm", "layer_norm"), "weight"
    witness = shown_by(twice, "rms_norm", {"x": floats(2, 8), "weight": floats(8)}, weight=floats(8, seed=2))
    twin = shown_by(twice, "rms_norm", {"x": floats(2, 8), "weight": floats(8)}, x=floats(2, 8, seed=2))


def drawn_again(temperature: float) -> Scene:
    """sample at temperature 1, then at another."""
    rows = {"sample_index": ints(0, 0), "position": ints(4, 5), "top_k": ints(0, 0)}
    numbers = {"temperature": np.ones(2, F), "top_p": np.ones(2, F), "min_p": np.zeros(2, F)}
    seed = np.array([[1, 2], [3, 4]], np.uint32)
    first = call("sample", logits=floats(2, 64), seed=seed, **rows, **numbers)
    return repeated(first, {"temperature": np.full(2, temperature, F)})


class FirstTemperaturesKept(KeptInput):
    """Keeps the temperatures of the first run."""

    ops, argument = ("sample",), "temperature"
    witness = shown_by(drawn_again, 0.0)
    twin = shown_by(drawn_again, 1.0)


class PackedUntilBoundAgain(Defect):
    """Packs a weight when it is bound, and does not see what is copied into it later."""

    ops = ("gemm",)
    witness = shown_by(twice, "gemm", GEMM, weight=floats(3, 8, seed=2))
    twin = shown_by(lambda: [call("gemm", x=floats(2, 8), weight=floats(3, 8, seed=s)) for s in (1, 2)])

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        num_binds = run.num_binds[run.node(number).inputs["weight"].name]
        packed_at, packed = run.kept.get(number, (None, None))
        if packed_at != num_binds:
            run.kept[number] = packed_at, packed = num_binds, copy_tensor(arguments["weight"])
        return run.kernel(number, {**arguments, "weight": packed})


class CachedByMemory(Defect):
    """Keeps a result as long as its inputs are the same memory."""

    ops = ("softmax", "scale")
    witness = shown_by(twice, "softmax", {"x": floats(2, 8)}, x=floats(2, 8, seed=1))
    twin = shown_by(twice, "softmax", {"x": floats(2, 8)})

    def key(self, arguments: Arguments) -> Any:
        return tuple((name, x.ctypes.data, x.shape) for name, x in arguments.items())

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        key = (number, self.key(arguments))
        if key not in run.kept:
            run.kept[key] = tuple(copy_tensor(r) for r in run.kernel(number, arguments))
        return tuple(copy_tensor(r) for r in run.kept[key])


class CachedByFirstElements(CachedByMemory):
    """Keeps a result as long as the first 64 elements of its input stay."""

    witness = shown_by(twice, "softmax", {"x": floats(9, 8)}, x=floats(9, 8) * (np.arange(9) < 8)[:, None].astype(F))
    twin = shown_by(twice, "softmax", {"x": floats(9, 8)}, x=floats(9, 8, seed=1))

    def key(self, arguments: Arguments) -> Any:
        return tuple((name, x.ravel()[:64].tobytes(), x.shape) for name, x in arguments.items())


class WarmUpWritesTwice(Defect):
    """Runs the second step once more to capture it, and adds to a residual in place twice."""

    ops = ("fused_add_rms_norm",)
    witness = shown_by(twice, "fused_add_rms_norm", RESIDUAL, x=floats(1, 4, seed=3))
    twin = shown_by(call, "fused_add_rms_norm", **RESIDUAL)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        if run.num_runs == 2:
            run.kernel(number, arguments)
        return run.kernel(number, arguments)


class IndicesReadAtBind(Defect):
    """Reads integer inputs on the host when they are bound."""

    ops = ("embedding", "rope", "paged_attention")
    witness = shown_by(twice, "embedding", {"table": floats(4, 2), "ids": ints(0, 1)}, ids=ints(3, 2))
    twin = shown_by(twice, "embedding", {"table": floats(4, 2), "ids": ints(0, 1)}, table=floats(4, 2, seed=1))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        at_bind: dict[str, HostTensor] = {}
        for name, x in arguments.items():
            if stored(x).dtype == np.int32:
                num_binds = run.num_binds[run.node(number).inputs[name].name]
                read_at, read = run.kept.get((number, name), (None, None))
                if read_at != num_binds:
                    run.kept[number, name] = read_at, read = num_binds, x.copy()
                at_bind[name] = read
        return run_if_legal(run, number, arguments, at_bind)


def window(*starts: int) -> Scene:
    """scale of two rows of one buffer, beginning at each of these rows in turn."""
    first, whole = call("scale", x=floats(2, 4), factor=2.0), floats(6, 4, seed=1)
    return Scene(first.graph, tuple({"x": Rows(whole, start, start + 2)} for start in starts))


class OffsetOfSecondBindIgnored(Defect):
    """Keeps the first offset of a view when another of its size is bound."""

    ops = EVERY_OP
    witness = shown_by(window, 1, 3)
    twin = shown_by(window, 1, 1)

    def resolve(self, run: DefectiveExecutable, name: str, buffer: Buffer | View) -> Buffer | View:
        if not isinstance(buffer, View) or len(buffer.steps) != 1 or buffer.steps[0][0] != "slice":
            return buffer
        _, axis, start, stop = buffer.steps[0]
        first = run.kept.setdefault((name, axis, stop - start, buffer.base.spec), (start, stop))
        return replace(buffer, steps=(("slice", axis, *first),))


def grouped(seed: int) -> Scene:
    return call("grouped_gemm", x=floats(2, 4), weight=floats(1, 3, 4, seed=seed), seg_indptr=ints(0, 2))


class SharedBetweenExecutables(Defect):
    """Caches packed weights by shape alone, for all executables of a backend."""

    ops = ("grouped_gemm",)
    witness = shown_by(lambda: [grouped(1), grouped(2)])
    twin = shown_by(lambda: [grouped(1), grouped(1)])

    def __init__(self) -> None:
        super().__init__()
        self._packed: dict[tuple[int, ...], HostTensor] = {}

    def change(self, a: Arguments) -> Arguments:
        kept = self._packed.setdefault(a["weight"].shape, copy_tensor(a["weight"]))
        return {"weight": kept} if isinstance(kept, np.ndarray) and kept.dtype == stored(a["weight"]).dtype else {}


class FirstTableOfAnglesKept(Defect):
    """Keeps the angles of an executable's first run as a constant."""

    ops = ("rope",)
    witness = shown_by(twice, "rope", TURNED, table=rope_table(8, 8, theta=1e6))
    twin = shown_by(twice, "rope", TURNED, x=floats(1, 1, 8, seed=1))

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        table = run.kept.setdefault(number, copy_tensor(arguments["table"]))
        is_legal = table.shape == arguments["table"].shape
        return run.kernel(number, {**arguments, "table": table} if is_legal else arguments)
