"""plan_memory: one arena for all values that nodes define, places reused when their value is dead.

Sizes are those at the upper bounds of symbolic dimensions, so a plan holds for every step. A value written in
place lies where the old one lay; what is written into a graph input needs no place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from samebits.core.errors import SamebitsError
from samebits.core.format import spec_bytes
from samebits.core.shapes import TensorSpec
from samebits.graph import Graph
from samebits.graph.uses import memory_roots, state_values
from samebits.passes.place import Place, Placement

ALIGNMENT = 256


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets by value name, and the size of the arena. Values in a graph input's memory are not in it."""

    offsets: dict[str, int]
    total_bytes: int


@dataclass
class _Buffer:
    """Memory shared by a value and all that is written over it; needed from `first` to `last`, both included."""

    size: int
    first: int
    last: int
    values: list[str]


def plan_memory(
    graph: Graph,
    placement: Placement | None = None,
    side: Place = "device",
    alignment: int = ALIGNMENT,
    shares: Mapping[str, str] | None = None,
    together: Iterable[Sequence[int]] = (),
) -> MemoryPlan:
    """Offsets for the values on one side of a placement, all on the device if none is given.

    Largest first, each into the smallest gap between places that are taken while it lives.
    shares    value -> the value in whose memory it lies, as a view; it gets no place of its own
    together  nodes that run without waiting for each other: what one reads, none of them may overwrite
    """
    buffers = _buffers(graph, placement, side, alignment, shares or {})
    ends = {i: max(nodes) for nodes in together if nodes for i in range(min(nodes), max(nodes) + 1)}
    for buffer in buffers:
        buffer.last = ends.get(buffer.last, buffer.last)
    placed: list[tuple[int, int, _Buffer]] = []
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.first)):
        first, last = buffer.first, buffer.last  # the first token waits for this: no call for each pair
        taken = sorted((at, end) for at, end, other in placed if first <= other.last and other.first <= last)
        start = _best_gap(taken, buffer.size)
        placed.append((start, start + buffer.size, buffer))
    offsets = {name: at for at, _, buffer in placed for name in buffer.values if name not in (shares or {})}
    return MemoryPlan(offsets, max((end for _, end, _ in placed), default=0))


def _best_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size`; the end of all that is taken if none does."""
    end, best, best_size = 0, -1, 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best < 0 or gap < best_size):
            best, best_size = end, gap
        end = max(end, stop)
    return end if best < 0 else best


def _buffers(
    graph: Graph, placement: Placement | None, side: Place, alignment: int, shares: Mapping[str, str]
) -> list[_Buffer]:
    """All memory that one side needs. A copy that arrives is a value of its own there."""
    uses, state = graph.uses, state_values(graph)
    buffers: dict[str, _Buffer] = {}

    def add(name: str, spec: TensorSpec, first: int) -> None:
        aligned = -(-spec_bytes(spec) // alignment) * alignment
        buffers[name] = _Buffer(aligned, first, first, [name])

    arrivals = [c for c in placement.copies if c.to == side] if placement else []
    specs = {v.name: v.spec for v in (*graph.inputs, *(o for n in graph.nodes for o in n.outputs))}
    for copy in arrivals:
        add(copy.value, specs[copy.value], 0 if copy.is_constant else copy.before)
    for index, node in enumerate(graph.nodes):
        if (placement.places[index] if placement else "device") == side:
            written = {**{new.name: old.name for old, new in node.writes}, **shares}
            for value in node.outputs:
                if written.get(value.name) in buffers:
                    buffers[value.name] = buffers[written[value.name]]
                    buffers[value.name].values.append(value.name)
                elif value.name not in state:
                    add(value.name, value.spec, index)
    constants = {c.value for c in arrivals if c.is_constant}
    for name, buffer in buffers.items():  # a view keeps its base alive
        end = len(graph.nodes) if name in constants else max(uses.get(name, (buffer.first,)))
        buffer.last = max(buffer.last, end)
    return list({id(b): b for b in buffers.values()}.values())


def check_plan(graph: Graph, plan: MemoryPlan) -> None:
    """Raises SamebitsError where two values that are alive at one node overlap. For plans of a whole graph."""
    uses, state, roots = graph.uses, state_values(graph), memory_roots(graph)
    live: dict[str, tuple[int, int]] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.outputs:
            if value.name not in state:
                start = plan.offsets[value.name]
                live[value.name] = (start, start + spec_bytes(value.spec))
        for a, (start, stop) in live.items():
            if not 0 <= start <= stop <= plan.total_bytes:
                raise SamebitsError(f"node {index}, {node.op.name}: %{a} lies outside the arena")
            for b, (other_start, other_stop) in live.items():
                if roots[a] != roots[b] and start < other_stop and other_start < stop:
                    raise SamebitsError(f"node {index}, {node.op.name}: %{a} and %{b} overlap")
        live = {name: at for name, at in live.items() if max(uses.get(name, (-1,))) > index}
