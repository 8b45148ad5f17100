"""Memory for the values between nodes: buffers that are used again when their value is dead."""

from __future__ import annotations

from collections.abc import Mapping

from samebits.backends.webgpu.buffers import stored_bytes
from samebits.graph import Graph
from samebits.graph.uses import memory_roots, state_values


def assign(graph: Graph, shares: Mapping[str, str]) -> tuple[dict[str, int], list[int]]:
    """(value -> number of its buffer, bytes of each buffer), sizes at the symbols' upper bounds.

    A buffer is never both read and written by one node but by an update in place: WebGPU binds it in one way only.
    shares   value -> the value in whose memory it lies, as a view; it has no buffer of its own
    Values in a graph input's memory are not in it.
    """
    roots, state = memory_roots(graph), state_values(graph)

    def owner(name: str) -> str:
        name = roots[name]
        return roots[shares[name]] if name in shares else name

    last: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        for value in (*node.inputs.values(), *node.outputs):
            last[owner(value.name)] = number
    for value in graph.outputs:
        last[owner(value.name)] = len(graph.nodes)

    places: dict[str, int] = {}
    sizes: list[int] = []
    free: list[int] = []
    for number, node in enumerate(graph.nodes):
        for value in node.outputs:
            name = owner(value.name)
            if name in state or name in places:
                continue
            needed = stored_bytes(value.spec)
            places[name] = _take(free, sizes, needed)
        free += [places[name] for name, end in last.items() if end == number and name in places]
    values = [v.name for node in graph.nodes for v in node.outputs]
    return {name: places[owner(name)] for name in values if owner(name) in places}, sizes


def _take(free: list[int], sizes: list[int], needed: int) -> int:
    """The smallest free buffer that is large enough, else the largest free one, made larger, else a new one."""
    enough = [n for n in free if sizes[n] >= needed]
    if enough:
        number = min(enough, key=lambda n: sizes[n])
    elif free:
        number = max(free, key=lambda n: sizes[n])
    else:
        sizes.append(needed)
        return len(sizes) - 1
    free.remove(number)
    sizes[number] = max(sizes[number], needed)
    return number
