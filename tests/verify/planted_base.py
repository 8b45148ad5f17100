"""What the planted defects share: a backend with places to go wrong, and the scenes that show that it does.

A defect is the reference with one thing wrong. It states
  ops      what it touches
  witness  a scene on which its bits are not the reference's
  twin     a scene much like it on which they are; absent where nothing runs right
and changes one of
  change   arguments of a call, on their way into the definition
  spoil    results of a call, on their way out
  launch   a node of a run: whatever goes wrong between runs and between nodes
Nothing in a defect looks at the names of cases or at seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from planted import Planted, Results, defined

from samebits.backends.interface import Backend, Buffer, View
from samebits.backends.reference import ReferenceExecutable
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed, store
from samebits.core.shapes import Sym, upper
from samebits.core.tiers import Tier
from samebits.graph import Graph, GraphBuilder, Node
from samebits.ops import OPS, bind
from samebits.ops.evaluate import spec_of
from samebits.ops.paged import stored_elements
from samebits.ops.rope import rope_table

Arguments = dict[str, Any]
EVERY_OP = tuple(op.name for op in OPS)


@dataclass(frozen=True)
class Scene:
    """A graph that is compiled once and run with one set of inputs after another.

    runs     what is copied in before each run; what a run leaves out stays. Inputs that keep their size keep their
             memory, others are bound anew
    outputs  what the memory bound for outputs holds before the first run; None binds none
    threads  host threads for each run in turn, the last number for all that follow
    """

    graph: Graph
    runs: tuple[dict[str, HostTensor], ...]
    outputs: float | None = None
    threads: tuple[int, ...] = (1,)

    def play(self, backend: Backend) -> list[HostTensor]:
        """The graph's outputs after each run."""
        executable = backend.compile(self.graph, Tier.PORTABLE)
        if self.outputs is not None:
            for value in self.graph.outputs:
                memory = backend.alloc(value.spec)
                backend.copy_in(memory, np.full(value.spec.shape, self.outputs, np.float32))
                executable.bind(value.name, memory)
        memories: dict[str, Buffer] = {}
        seen: list[HostTensor] = []
        for number, given in enumerate(self.runs):
            backend.set_threads(self.threads[min(number, len(self.threads) - 1)])
            for name, tensor in given.items():
                fits = name in memories and memories[name].spec == spec_of(tensor)
                memory = memories[name] if fits else backend.alloc(spec_of(tensor))
                backend.copy_in(memory, tensor)
                if not fits:
                    executable.bind(name, memory)
                memories[name] = memory
            executable.prepare(self._dims(memories))
            executable.run()
            backend.sync()
            seen += [backend.copy_out(executable.output(i)) for i in range(len(self.graph.outputs))]
        return seen

    def _dims(self, memories: dict[str, Buffer]) -> dict[str, int]:
        """The symbols of the graph's inputs, by what is bound."""
        dims = {}
        for value in self.graph.inputs:
            for dim, size in zip(value.spec.shape, memories[value.name].spec.shape, strict=True):
                if isinstance(dim, Sym):
                    dims[dim.name] = upper(size)
        return dims


Scenes = Scene | list[Scene]


def play(backend: Backend, scenes: Scenes) -> list[tuple[tuple[int, ...], bytes]]:
    """Shape and bytes of all that the scenes give, one after another on one backend."""
    given = scenes if isinstance(scenes, list) else [scenes]
    results = [x for scene in given for x in scene.play(backend)]
    return [(x.shape, (x.data if isinstance(x, Packed) else x).tobytes()) for x in results]


def shown_by(build: Callable[..., Scenes], *args: Any, **kwargs: Any) -> staticmethod:
    """A witness or a twin that is built when it is asked for."""
    return staticmethod(partial(build, *args, **kwargs))


class Defect(Planted):
    """The reference with one thing wrong. See the top of this file."""

    klass: ClassVar[str]
    witness: ClassVar[Callable[[], Scenes]]
    twin: ClassVar[Callable[[], Scenes] | None] = None
    threads = 1

    def __init_subclass__(cls) -> None:
        cls.klass = cls.__module__.split("_")[1]  # planted_rows, planted_rows_sampling

    def compile(self, graph: Graph, tier: Tier) -> ReferenceExecutable:
        return DefectiveExecutable(self, graph, tier)

    def set_threads(self, count: int) -> None:
        self.threads = count

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        results = defined(op_name, {**arguments, **self.change(arguments)})
        self.spoil(arguments, results)
        return results

    def change(self, a: Arguments) -> Arguments:
        """Arguments that take the place of a call's; must not write to them."""
        return {}

    def spoil(self, a: Arguments, results: Results) -> None:
        """Writes to the results of a call."""

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        """The results of node `number`, an op of `ops`; `arguments` are the tensors it reads."""
        return run.kernel(number, arguments)

    def resolve(self, run: DefectiveExecutable, name: str, buffer: Buffer | View) -> Buffer | View:
        """What is bound in the place of `buffer`."""
        return buffer


class DefectiveExecutable(ReferenceExecutable):
    """Asks its backend what becomes of a binding and of a node.

    kept      whatever the defect keeps from run to run
    num_runs  this one included
    values    by name, as far as the run has come
    """

    def __init__(self, backend: Defect, graph: Graph, tier: Tier) -> None:
        super().__init__(backend, graph, tier)
        self._defect = backend
        self.kept: dict[Any, Any] = {}
        self.num_runs = 0

    @property
    def values(self) -> dict[str, HostTensor]:
        return self._values

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def bound(self) -> dict[str, HostTensor]:
        return self._bound

    def node(self, number: int) -> Node:
        return self._graph.nodes[number]

    def kernel(self, number: int, arguments: Arguments, **attrs: Any) -> Results:
        """The node's kernel, with other attrs where given."""
        return self._kernels[number].run(**arguments, **{**self.node(number).attrs, **attrs})

    def bind(self, name: str, buffer: Buffer | View) -> None:
        super().bind(name, self._defect.resolve(self, name, buffer))

    def run(self) -> None:
        self.num_runs += 1
        self._values = dict(self._bound)
        for number, node in enumerate(self._graph.nodes):
            arguments = {name: self._values[value.name] for name, value in node.inputs.items()}
            launch = self._defect.launch if node.op.name in self._defect.ops else DefectiveExecutable.kernel
            results = launch(self, number, arguments)
            for value, result in zip(node.outputs, results, strict=True):
                self._values[value.name] = store(self._bound.get(value.name), result)


def floats(*shape: int, seed: int = 0, fmt: str = "f32", size: float = 1.0) -> Any:
    """Bell-shaped values of that size, in any format."""
    x = (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)
    target = FORMATS[fmt]
    return target.pack(x) if isinstance(target, BlockFormat) else x.astype(target.dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def rows_of(x: np.ndarray) -> np.ndarray:
    """A result [..., K] as a view [rows, K]."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def call(op_name: str, outputs: float | None = None, threads: int = 1, **inputs: Any) -> Scene:
    """One call of an op."""
    bound = bind(OPS[op_name], **inputs)
    builder = GraphBuilder()
    values = {name: builder.input(name, spec) for name, spec in bound.specs.items()}
    graph = builder.finish(builder.add(bound.op, values, bound.attrs, bound.env))
    return Scene(graph, (bound.tensors,), outputs, (threads,))


def repeated(scene: Scene, *later: dict[str, HostTensor], threads: tuple[int, ...] = (1,)) -> Scene:
    """The scene, with more runs in the same executable."""
    return Scene(scene.graph, (*scene.runs, *later), scene.outputs, threads)


def product(t: int, n: int, k: int, fmt: str = "f32", **more: Any) -> Scene:
    """gemm; `more` may hold a bias."""
    return call("gemm", x=floats(t, k), weight=floats(n, k, seed=1, fmt=fmt), **more)


def blocks(t: int, k: int, size: float = 1.0) -> Arguments:
    """Activations in int8 blocks."""
    codes, scales = defined("quantize_q8", {"x": floats(t, k, size=size)})
    return {"codes": codes, "scales": scales}


def rotary(positions: list[int], num_positions: int = 512, head: int = 8, rotary_dim: int = 8, **more: Any) -> Scene:
    """rope of one head at these positions."""
    x = more.pop("x", floats(len(positions), 1, head))
    return call("rope", x=x, pos_ids=ints(*positions), table=rope_table(num_positions, rotary_dim), **more)


def paged(lengths: tuple[int, ...], page_size: int = 16, pages: list[list[int]] | None = None) -> Arguments:
    """The page table of sequences; their pages one after another unless `pages` says otherwise."""
    counts = [-(-n // page_size) for n in lengths]
    edges = np.cumsum([0, *counts])
    listed = np.arange(edges[-1]) if pages is None else np.concatenate([np.array(p, np.int64) for p in pages])
    last = [n - (c - 1) * page_size if c else 0 for n, c in zip(lengths, counts, strict=True)]
    return {"kv_indptr": edges.astype(np.int32), "kv_indices": listed.astype(np.int32), "kv_last_page_len": ints(*last)}


def caches(num_pages: int, page_size: int, heads: int, head: int, v_dim: int, k: str, v: str) -> Arguments:
    shapes = {"k_cache": (head, k), "v_cache": (v_dim, v)}
    return {
        name: floats(num_pages, page_size, heads, stored_elements(size, fmt), seed=seed, fmt=fmt)
        for seed, (name, (size, fmt)) in enumerate(shapes.items(), start=1)
    }


def attention(lengths: tuple[int, ...], queries: tuple[int, ...] | None = None, **more: Any) -> Scene:
    """paged_attention over a split cache in NHD; `more` holds sizes, formats, and further arguments of the op."""
    heads, kv_heads, head = more.pop("heads", 1), more.pop("kv_heads", 1), more.pop("head", 8)
    page_size, k, v = more.pop("page_size", 16), more.pop("k", "f32"), more.pop("v", "f32")
    counts = queries or (1,) * len(lengths)
    table = paged(lengths, page_size, more.pop("pages", None))
    num_pages = max([more.pop("num_pages", 1), *(table["kv_indices"] + 1)])
    tensors = caches(num_pages, page_size, kv_heads, head, more.get("v_dim") or head, k, v)
    q = floats(sum(counts), heads, head, fmt=more.pop("q", "f32"))
    qo_indptr = np.cumsum([0, *counts]).astype(np.int32)
    return call("paged_attention", **{"q": q, "qo_indptr": qo_indptr, **table, **tensors, **more})


def append(positions: list[int], sequences: list[int] | None = None, op_name: str = "append", **more: Any) -> Scene:
    """Tokens into the caches of sequences that end with their last one; `op_name` may name a fused append."""
    sequences = sequences or [0] * len(positions)
    heads, head, page_size = more.pop("heads", 1), more.pop("head", 8), more.pop("page_size", 16)
    lengths = [1 + max(p for p, s in zip(positions, sequences, strict=True) if s == b) for b in sorted(set(sequences))]
    table = paged(tuple(lengths), page_size, more.pop("pages", None))
    num_pages = 1 + int(table["kv_indices"].max())
    tensors = caches(num_pages, page_size, heads, head, head, more.pop("k", "f32"), more.pop("v", "f32"))
    new = {"key": floats(len(positions), heads, head, seed=3), "value": floats(len(positions), heads, head, seed=4)}
    cells = {"batch_indices": ints(*sequences), "positions": ints(*positions), **table, **tensors}
    name = {"append": "append_paged_kv_cache"}.get(op_name, op_name)
    return call(name, **{**new, **cells, **more})
