"""place: what the device has no kernel for runs on a fallback, and says so. Never an op on a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from samebits.core.errors import Unsupported
from samebits.graph import Graph, Node
from samebits.graph.uses import cache_values
from samebits.passes.rules import Supports

Place = Literal["device", "fallback"]


@dataclass(frozen=True)
class Copy:
    """A value brought to the other side before node `before`; before = number of nodes: after the last.

    A constant is copied once at load, any other value in every step.
    """

    value: str
    to: Place
    before: int
    is_constant: bool


@dataclass(frozen=True)
class Placement:
    """Where every node runs. Inputs and outputs of the graph are on the device."""

    places: tuple[Place, ...]
    copies: tuple[Copy, ...]
    reasons: tuple[str, ...]  # one line for each node that falls back


def place(graph: Graph, supports: Supports, fallback: Supports | None = None) -> Placement:
    """Every node on the device, or on the fallback where the device does not support it and it touches no cache.

    Unsupported names the first node that can run nowhere, with the reasons.
    """
    caches = cache_values(graph)
    places: list[Place] = []
    reasons: list[str] = []
    for index, node in enumerate(graph.nodes):
        reason = supports(node)
        if reason is None:
            places.append("device")
            continue
        _check_fallback(index, node, reason, caches, fallback)
        places.append("fallback")
        reasons.append(f"node {index}, {node.op.name}: on the fallback: {reason}")
    return Placement(tuple(places), _copies(graph, places), tuple(reasons))


def _check_fallback(index: int, node: Node, reason: str, caches: set[str], fallback: Supports | None) -> None:
    where = f"node {index}, {node}: {reason}"
    touched = [v.name for v in node.inputs.values() if v.name in caches]
    if touched:
        raise Unsupported(f"{where}; it works on the cache %{touched[0]}, which cannot leave the device")
    if fallback is None:
        raise Unsupported(f"{where}; there is no fallback")
    second = fallback(node)
    if second is not None:
        raise Unsupported(f"{where}; fallback: {second}")


def _copies(graph: Graph, places: list[Place]) -> tuple[Copy, ...]:
    """One copy of a value to a side where it is read but not made, before its first use there."""
    here: dict[str, set[Place]] = {v.name: {"device"} for v in graph.inputs}
    copies: list[Copy] = []

    def bring(name: str, to: Place, before: int) -> None:
        if to not in here[name]:
            here[name].add(to)
            copies.append(Copy(name, to, before, name in graph.weights))

    for index, (node, side) in enumerate(zip(graph.nodes, places, strict=True)):
        for value in node.inputs.values():
            bring(value.name, side, index)
        here.update({v.name: {side} for v in node.outputs})
    for value in graph.outputs:
        bring(value.name, "device", len(graph.nodes))
    return tuple(copies)
