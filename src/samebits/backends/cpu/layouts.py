"""Which caches native kernels want in a layout of their own: split ones that only append and attention touch."""

from __future__ import annotations

from samebits.backends.cpu.buffers import CACHE_LAYOUTS, ROW_MAJOR
from samebits.core.shapes import TensorSpec, upper
from samebits.graph import Graph, Node
from samebits.graph.uses import memory_roots

LANE_TOKENS = 16  # side by side in a group of keys, ops/cache.h
FORMATS_IN_LANES = ("f16", "bf16", "q8_0")


def _fits(spec: TensorSpec) -> bool:
    if len(spec.shape) != 4 or spec.format not in FORMATS_IN_LANES:
        return False
    return all(isinstance(d, int) for d in spec.shape) and upper(spec.shape[1]) % LANE_TOKENS == 0


def _wish(node: Node, argument: str) -> str:
    """The layout that a node would read this argument in."""
    is_split = CACHE_LAYOUTS.keys() <= set(node.op.caches) & node.inputs.keys()
    if not is_split or node.attrs.get("layout", "NHD") != "NHD":
        return ROW_MAJOR
    if argument not in CACHE_LAYOUTS or not _fits(node.inputs[argument].spec):
        return ROW_MAJOR
    return CACHE_LAYOUTS[argument]


def cache_layouts(graph: Graph) -> dict[str, str]:
    """Graph input -> private layout, for the caches all of whose users want the same one."""
    roots = memory_roots(graph)
    wishes: dict[str, set[str]] = {}
    for node in graph.nodes:
        for argument, value in node.inputs.items():
            if graph.kinds.get(roots[value.name]) == "cache":
                wishes.setdefault(roots[value.name], set()).add(_wish(node, argument))
    agreed = {name: next(iter(found)) for name, found in wishes.items() if len(found) == 1}
    return {name: layout for name, layout in agreed.items() if layout != ROW_MAJOR}
