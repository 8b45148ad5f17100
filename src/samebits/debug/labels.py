"""Names for a graph's values that people know: the weight a product reads, or the layer and the op.

"layers.3.attn.q" is what reads that weight, "layers.3.k_cache" the cache after its update, and "layers.3/rope.1" the
second rope of layer 3. A value belongs to the layer of the weights and caches its node reads, else to the last layer
among its arguments. Nothing depends on node numbers, so a change in one layer renames nothing in another.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from samebits.graph import Graph, Node
from samebits.graph.uses import memory_roots
from samebits.models.parts import ROPE_TABLE

LAYER = re.compile(r"^((?:[^.]+\.)*?(\d+))\.")
BEFORE, AFTER = "embed", "output"  # stages outside the layers


@dataclass(frozen=True)
class Label:
    """A value's name, and the stage it belongs to: "embed", "layers.3" or "output"."""

    text: str
    stage: str
    layer: int | None

    @property
    def within(self) -> str:
        """The name without its layer's number, equal in equal layers."""
        return self.text.removeprefix(self.stage) if self.layer is not None else self.text


Place = tuple[float, str]  # order of a stage among the others, its name


def label_values(graph: Graph) -> dict[str, Label]:
    """A label, unique in the graph, for every value that a node defines."""
    places: dict[str, Place] = {v.name: _layer_of(v.name) for v in graph.inputs if LAYER.match(v.name)}
    roots = memory_roots(graph)
    named = frozenset(name for name in graph.weights if not name.startswith(ROPE_TABLE))
    labels: dict[str, Label] = {}
    taken: set[str] = set()
    counts: Counter[str] = Counter()
    is_inside = False  # whether a layer has begun
    for node in graph.nodes:
        place = _place_of(node, places, named, is_inside)
        is_inside = is_inside or _layer_number(place) is not None
        for i, value in enumerate(node.outputs):
            is_cache = graph.kinds.get(roots[value.name]) == "cache"
            text = roots[value.name] if is_cache else _weight_name(node, named) if i == 0 else None
            if text is None or text in taken:
                base = f"{place[1]}/{node.op.name}"
                text = f"{base}.{counts[base]}"
                counts[base] += 1
            taken.add(text)
            places[value.name] = place
            labels[value.name] = Label(text, place[1], _layer_number(place))
    return labels


def _layer_number(place: Place) -> int | None:
    return int(place[0]) if 0 <= place[0] < math.inf else None


def _layer_of(name: str) -> Place:
    found = LAYER.match(name)
    return (float(found[2]), found[1]) if found else (-1.0, BEFORE)


def _place_of(node: Node, places: dict[str, Place], named: frozenset[str], is_inside: bool) -> Place:
    arguments = [v.name for v in node.inputs.values()]
    own = [name for name in arguments if name in named]
    layered = [places[name] for name in own if name in places]
    if layered:
        return layered[0]
    if own:
        return (math.inf, AFTER) if is_inside else (-1.0, BEFORE)
    return max((places[name] for name in arguments if name in places), default=(-1.0, BEFORE))


def _weight_name(node: Node, named: frozenset[str]) -> str | None:
    """The first weight the node reads; of a joined one "layers.0.attn.q+k+v"."""
    name = next((v.name for v in node.inputs.values() if v.name in named), None)
    if name is None or "+" not in name:
        return name
    first, *others = name.split("+")
    prefix = first[: first.rfind(".") + 1]
    return "+".join([first, *(part.removeprefix(prefix) for part in others)])
