"""Graphs as text that can be diffed: one line per value, names that a change elsewhere does not move.

A value is named after its scope, its op and its number among those: `layers.3.gemm.2`. The scope is the numbered
prefix of an input's name (`layers.3` of `layers.3.attn.q`), taken over from what a node reads: its own named
inputs first, else the last scope among its arguments. So a node more in layer 3 renames nothing in layer 4.
"""

from __future__ import annotations

import re

from samebits.graph.ir import Graph, Node, node_text

SCOPE = re.compile(r"^((?:[^.]+\.)*?[^.]*\d[^.]*)\.")


def print_graph(graph: Graph) -> str:
    """Inputs with their kind, nodes in order, results; names as the module text says."""
    names = _canonical_names(graph)
    lines = ["graph"]
    for value in graph.inputs:
        made_of = f" = {' | '.join(graph.joined[value.name])}" if value.name in graph.joined else ""
        lines.append(f"  {graph.kinds.get(value.name, 'step')} {value}{made_of}")
    lines += [f"  {node_text(node, names)}" for node in graph.nodes]
    lines += [f"  return %{names.get(v.name, v.name)}" for v in graph.outputs]
    return "\n".join(lines)


def diff_graphs(before: Graph, after: Graph) -> str:
    """What changed, as a unified diff of the two texts; empty if nothing did."""
    old, new = print_graph(before).splitlines(), print_graph(after).splitlines()
    import difflib  # for people who look at passes, not for a model that runs

    return "\n".join(difflib.unified_diff(old, new, "before", "after", n=0, lineterm=""))


def _canonical_names(graph: Graph) -> dict[str, str]:
    """Value name -> printed name, for values that nodes define."""
    scopes: dict[str, str] = {}
    for value in graph.inputs:
        found = SCOPE.match(value.name)
        if found:
            scopes[value.name] = f"{found[1]}."
    own = set(scopes)
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for node in graph.nodes:
        scope = _scope_of(node, scopes, own)
        for value in node.outputs:
            label = f"{scope}{node.op.name}"
            names[value.name] = f"{label}.{counts.setdefault(label, 0)}"
            counts[label] += 1
            if scope:
                scopes[value.name] = scope
    return names


def _scope_of(node: Node, scopes: dict[str, str], own: set[str]) -> str:
    """The scope of the inputs that carry one in their name; else that of the latest argument."""
    arguments = [v.name for v in node.inputs.values()]
    for name in arguments:
        if name in own:
            return scopes[name]
    order = list(dict.fromkeys(scopes.values()))  # scopes in order of appearance
    return max((scopes[n] for n in arguments if n in scopes), key=order.index, default="")
