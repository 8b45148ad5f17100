"""An explanation for people: equal layers once, totals, tiers and what stands in their way."""

from __future__ import annotations

from samebits.debug.explain import Explanation, NodePlan, Verdict
from samebits.debug.text import aligned, size_text
from samebits.models.reading import Reading

SHOWN_OBSTACLES = 8
SHOWN_CHARS = 200  # shown of a reason; --json has all of it


def as_text(e: Explanation, every_layer: bool = False) -> str:
    graph = "after the passes" if e.fused else "as the model states it"
    lines = [f"{e.architecture} on {e.backend} ({e.device}), {len(e.nodes)} nodes, {graph}, kernels at {e.shown_tier}"]
    lines += _reading(e.reading)
    groups = [[stage] for stage in stages(e)] if every_layer else equal_stages(e)
    heads = [heading(group) for group in groups]
    cells = [[_cells(node) for node in group[0]] for group in groups]
    texts = iter(aligned([row for rows in cells for row in rows], "  "))
    for head, group in zip(heads, groups, strict=True):
        lines += ["", head]
        for node in group[0]:
            lines.append(next(texts))
            lines += [f"      refused: {_short(reason)}" for reason in node.refused]
    lines += ["", *_totals(e), "", *_tiers(e)]
    return "\n".join(lines)


def _reading(r: Reading) -> list[str]:
    """What a token reads, and the experts that it chooses."""
    lines = [f"{size_text(r.weight_bytes)} of weights, of which a token reads {size_text(r.active_bytes)}"]
    if r.num_mixtures:
        lines.append(f"mixtures of experts: {r.num_mixtures}, in each a token chooses {r.top_k} of {r.num_experts}")
    return lines


def stages(e: Explanation) -> list[list[NodePlan]]:
    """The nodes of every stage, in the order in which the stages begin."""
    found: dict[str, list[NodePlan]] = {}
    for node in e.nodes:
        found.setdefault(node.stage, []).append(node)
    return list(found.values())


def equal_stages(e: Explanation) -> list[list[list[NodePlan]]]:
    """Stages that look the same together, in the order of their first."""
    groups: dict[tuple[object, ...], list[list[NodePlan]]] = {}
    for stage in stages(e):
        groups.setdefault(tuple(node.look for node in stage), []).append(stage)
    return list(groups.values())


def heading(group: list[list[NodePlan]]) -> str:
    """ "layers.0", or "layers.0-4,6 x6" of several."""
    first = group[0][0]
    if len(group) == 1:
        return first.stage
    numbers = [stage[0].layer or 0 for stage in group]
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    shown = ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"{first.stage.removesuffix(str(first.layer))}{shown} x{len(group)}"


def _cells(node: NodePlan) -> tuple[str, ...]:
    name = node.within.lstrip("./")
    kernel = f"{node.kernel}: {node.tier}" if node.kernel else "NO KERNEL"
    return (name, node.op, " ".join(node.results), node.weight or "", kernel)


def _totals(e: Explanation) -> list[str]:
    rows = [("op", "nodes", "kernels")]
    for op, kernels in e.totals().items():
        rows.append((op, str(kernels.total()), ", ".join(f"{name} x{n}" for name, n in kernels.items())))
    return aligned(rows)


def _tiers(e: Explanation) -> list[str]:
    alike: dict[object, list[Verdict]] = {}
    for verdict in e.verdicts:
        alike.setdefault((verdict.obstacles, verdict.fallback), []).append(verdict)
    lines = [line for verdicts in alike.values() for line in _verdict(verdicts)]
    default = "" if e.asked else " by default"
    return [*lines, f"the model gets {e.tier}{default}" if e.tier else f"the model does not get {e.shown_tier}"]


def _verdict(alike: list[Verdict]) -> list[str]:
    v, names = alike[0], ", ".join(v.tier for v in alike)
    if not v.obstacles:
        return [f"{names}: yes"]
    lines = [f"{names}: {'with a fallback' if v.falls_back else 'no'}"]
    lines += [f"  {_short(str(obstacle))}" for obstacle in v.obstacles[:SHOWN_OBSTACLES]]
    if len(v.obstacles) > SHOWN_OBSTACLES:
        lines.append(f"  and {len(v.obstacles) - SHOWN_OBSTACLES} more")
    return [*lines, f"  fallback: {_short(v.fallback)}"] if v.fallback else lines


def _short(text: str) -> str:
    """The beginning and the end: a node's text names the op first, and the reason last."""
    half = SHOWN_CHARS // 2
    return text if len(text) <= SHOWN_CHARS else f"{text[:half]} ... {text[-half:]}"
