"""What the planted defects share: a backend with places to go wrong, and the scenes that show that it does.

A defect is the reference with one thing wrong. It states
  ops      what it touches
  witness  a scene on which its bits are not the reference's
  twin     a scene much like it on which they are
  tier     what its kernels claim, if not portable: it must be caught at that tier
and changes one of
  change   arguments of a call, on their way into the definition
  spoil    results of a call, on their way out
  launch   a node of a run: whatever goes wrong between runs and between nodes
Nothing in a defect looks at the names of cases or at seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from planted import Planted, Results, defined

from samebits.backends.interface import Backend, Buffer, View
from samebits.backends.reference import ReferenceExecutable, resolved
from samebits.core.errors import Unsupported
from samebits.core.format import HostTensor, Packed, store
from samebits.core.shapes import Sym, upper
from samebits.core.tiers import Tier
from samebits.graph import Graph, Node
from samebits.ops import OPS
from samebits.ops.evaluate import spec_of

Arguments = dict[str, Any]
EVERY_OP = tuple(op.name for op in OPS)


class PlantedCrash(Exception):
    """What a defect raises whose fault is that it raises."""


@dataclass(frozen=True)
class Rows:
    """Rows start .. stop - 1 of a tensor, bound as a view of it; inputs that name the same tensor share its memory."""

    whole: np.ndarray
    start: int
    stop: int


@dataclass(frozen=True)
class Scene:
    """A graph that is compiled once and run with one set of inputs after another.

    runs     what is copied in before each run; what a run leaves out stays. Inputs that keep their size keep their
             memory, others, and rows of a larger tensor, are bound anew
    outputs  what the memory bound for outputs holds before the first run; None binds none
    threads  host threads for each run in turn, the last number for all that follow
    """

    graph: Graph
    runs: tuple[dict[str, HostTensor | Rows], ...]
    outputs: float | None = None
    threads: tuple[int, ...] = (1,)

    def play(self, backend: Backend) -> list[HostTensor]:
        """The graph's outputs after each run, at the tier that a planted backend claims."""
        executable = backend.compile(self.graph, backend.tier if isinstance(backend, Planted) else Tier.PORTABLE)
        if self.outputs is not None:
            for value in self.graph.outputs:
                memory = backend.alloc(value.spec)
                backend.copy_in(memory, np.full(value.spec.shape, self.outputs, np.float32))
                executable.bind(value.name, memory)
        memories: dict[str | int, Buffer | View] = {}
        seen: list[HostTensor] = []
        for number, given in enumerate(self.runs):
            backend.set_threads(self.threads[min(number, len(self.threads) - 1)])
            for name, tensor in given.items():
                held = memories.get(name)
                if isinstance(tensor, Rows):
                    base = self._held(backend, memories, id(tensor.whole), tensor.whole)
                    memories[name] = backend.view(base, ("slice", 0, tensor.start, tensor.stop))
                else:
                    memories[name] = self._held(backend, memories, name, tensor)
                if memories[name] is not held:
                    executable.bind(name, memories[name])
            executable.prepare(self._dims(memories))
            executable.run()
            backend.sync()
            seen += [backend.copy_out(executable.output(i)) for i in range(len(self.graph.outputs))]
        return seen

    @staticmethod
    def _held(backend: Backend, memories: dict[str | int, Buffer | View], key: str | int, host: HostTensor) -> Buffer:
        """Memory with the tensor in it: that under the key where it has the size, new one otherwise."""
        memory = memories.get(key)
        if not isinstance(memory, Buffer) or memory.spec != spec_of(host):
            memory = memories[key] = backend.alloc(spec_of(host))
        backend.copy_in(memory, host)
        return memory

    def _dims(self, memories: dict[str | int, Buffer | View]) -> dict[str, int]:
        """The symbols of the graph's inputs, by what is bound."""
        dims = {}
        for value in self.graph.inputs:
            for dim, size in zip(value.spec.shape, memories[value.name].spec.shape, strict=True):
                if isinstance(dim, Sym):
                    dims[dim.name] = upper(size)
        return dims


Scenes = Scene | list[Scene]


def play(backend: Backend, scenes: Scenes) -> list[tuple[tuple[int, ...], bytes]]:
    """Return shape and bytes of all that the scenes give, one after another on one backend.

    A refusal or a planted crash is the only result of the scenes: its text in place of bytes.
    """
    given = scenes if isinstance(scenes, list) else [scenes]
    try:
        results = [x for scene in given for x in scene.play(backend)]
    except (PlantedCrash, Unsupported) as error:
        return [((), str(error).encode())]
    return [(x.shape, (x.data if isinstance(x, Packed) else x).tobytes()) for x in results]


def shown_by(build: Callable[..., Scenes], *args: Any, **kwargs: Any) -> staticmethod:
    """A witness or a twin that is built when it is asked for."""
    return staticmethod(partial(build, *args, **kwargs))


class Defect(Planted):
    """The reference with one thing wrong. See the top of this file."""

    klass: ClassVar[str]
    witness: ClassVar[Callable[[], Scenes]]
    twin: ClassVar[Callable[[], Scenes]]
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
    num_binds of each name
    values    by name, as far as the run has come
    """

    def __init__(self, backend: Defect, graph: Graph, tier: Tier) -> None:
        super().__init__(backend, graph, tier)
        self._defect = backend
        self.kept: dict[Any, Any] = {}
        self.num_binds: Counter[str] = Counter()
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
        self.num_binds[name] += 1
        super().bind(name, self._defect.resolve(self, name, buffer))

    def run(self) -> None:
        self.num_runs += 1
        self._bound = {name: resolved(buffer, "planted", name) for name, buffer in self._memory.items()}
        self._values = dict(self._bound)
        for number, node in enumerate(self._graph.nodes):
            arguments = {name: self._values[value.name] for name, value in node.inputs.items()}
            launch = self._defect.launch if node.op.name in self._defect.ops else DefectiveExecutable.kernel
            results = launch(self, number, arguments)
            for value, result in zip(node.outputs, results, strict=True):
                self._values[value.name] = store(self._bound.get(value.name), result)
