"""Which kernel every node of a model's step gets on a backend, and which op keeps it from a stronger tier."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from samebits.backends.discovery import Found, get
from samebits.backends.support import candidates, check_tier, op_call, supports
from samebits.core.errors import Unsupported
from samebits.core.tiers import Tier
from samebits.debug.labels import Label, label_values
from samebits.debug.prepare import device_of, rewritten
from samebits.engine.plan import tiers_to_try
from samebits.graph import Graph, Node
from samebits.models.reading import Reading, reading
from samebits.ops import OPS
from samebits.passes import place

FALLBACK = "reference"
TIERS = (Tier.PORTABLE, Tier.INVARIANT, Tier.FAST)


@dataclass(frozen=True)
class NodePlan:
    """A node and the kernel it gets. Without one, `kernel`, `language` and `tier` are None and `refused` says why."""

    label: str
    stage: str
    layer: int | None
    within: str  # the label without the layer's number
    op: str
    results: tuple[str, ...]
    weight: str | None  # format and shape of the first constant it reads
    kernel: str | None
    language: str | None
    tier: str | None  # the tier the kernel claims
    refused: tuple[str, ...]  # reasons of the kernels before it

    @property
    def look(self) -> tuple[object, ...]:
        """All that is shown of the node except its layer's number: equal layers look equal."""
        return (self.within, self.op, self.results, self.weight, self.kernel, self.tier, self.refused)


@dataclass(frozen=True)
class Obstacle:
    """Why a tier cannot be given: an op, how many of its nodes, the reason; an empty op stands for the device."""

    op: str
    num_nodes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.op} x{self.num_nodes}: {self.reason}" if self.op else self.reason


@dataclass(frozen=True)
class Verdict:
    """Whether the model gets a tier, and what stands in the way.

    `fallback` says what would run on the reference instead, or why that does not help.
    """

    tier: str
    obstacles: tuple[Obstacle, ...]
    fallback: str = ""
    falls_back: bool = False

    @property
    def is_given(self) -> bool:
        """Whether a run gets the tier: by the backend's own kernels, or with stateless ops on the reference."""
        return not self.obstacles or self.falls_back


@dataclass(frozen=True)
class Explanation:
    """`tier` is what the model gets, or None; nodes are shown at that tier, or at the one that was refused."""

    architecture: str
    backend: str
    device: str
    fused: bool
    asked: str | None
    tier: str | None
    shown_tier: str
    verdicts: tuple[Verdict, ...]
    nodes: tuple[NodePlan, ...]
    reading: Reading

    def problem(self) -> str:
        """One line on the tier that was refused; nothing where the model gets one."""
        refused = next((v for v in self.verdicts if v.tier == self.shown_tier and not v.is_given), None)
        if self.tier is not None or refused is None:
            return ""
        return f"{self.backend} cannot give {refused.tier}: {refused.obstacles[0]}"

    def totals(self) -> dict[str, Counter[str]]:
        """Op -> how many of its nodes each kernel serves."""
        found: dict[str, Counter[str]] = {}
        for node in self.nodes:
            found.setdefault(node.op, Counter())[node.kernel or "no kernel"] += 1
        return found

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "totals": {op: dict(kernels) for op, kernels in self.totals().items()}}


def explain(graph: Graph, architecture: str, found: Found, asked: Tier | None, fused: bool) -> Explanation:
    """The kernels of a graph, rewritten for the backend first where `fused`. Nothing is run."""
    tried = tiers_to_try(found, asked)
    graphs = {tier: rewritten(graph, found, tier) if fused else graph for tier in {*tried, *TIERS}}
    verdicts = {tier: _verdict(found, graphs[tier], tier) for tier in sorted(graphs, reverse=True)}
    own = [tier for tier in tried if not verdicts[tier].obstacles]
    given = next((tier for tier in (*own, *tried) if verdicts[tier].is_given), None)
    shown = tried[0] if given is None else given
    labels = label_values(graphs[shown])
    nodes = (_plan(found, node, labels[node.outputs[0].name], graphs[shown], shown) for node in graphs[shown].nodes)
    return Explanation(
        architecture=architecture,
        backend=found.name,
        device=found.caps.device if found.caps else "",
        fused=fused,
        asked=asked.label if asked is not None else None,
        tier=given.label if given is not None else None,
        shown_tier=shown.label,
        verdicts=tuple(verdicts.values()),
        nodes=tuple(nodes),
        reading=reading(graphs[shown]),
    )


def _plan(found: Found, node: Node, label: Label, graph: Graph, tier: Tier) -> NodePlan:
    op = OPS[node.op.name]
    kernel, reasons = candidates(device_of(found), op_call(op, node.specs, node.attrs, tier))
    weight = next((v.spec for v in node.inputs.values() if v.name in graph.weights), None)
    return NodePlan(
        label=label.text,
        stage=label.stage,
        layer=label.layer,
        within=label.within,
        op=op.name,
        results=tuple(str(v.spec) for v in node.outputs),
        weight=str(weight) if weight else None,
        kernel=kernel.name if kernel else None,
        language=kernel.language if kernel else None,
        tier=kernel.tier.label if kernel else None,
        refused=tuple(reasons),
    )


def _verdict(found: Found, graph: Graph, tier: Tier) -> Verdict:
    device = device_of(found)
    if found.caps is not None:
        try:
            check_tier(device, found.caps, tier)
        except Unsupported as error:
            return Verdict(tier.label, (Obstacle("", len(graph.nodes), str(error)),))
    ask = supports(device, tier)
    refused = Counter((node.op.name, why) for node in graph.nodes if (why := ask(node)))
    obstacles = tuple(Obstacle(op, count, why) for (op, why), count in refused.items())
    if not obstacles:
        return Verdict(tier.label, ())
    text, helps = _fallback(found, graph, tier)
    return Verdict(tier.label, obstacles, text, helps)


def _fallback(found: Found, graph: Graph, tier: Tier) -> tuple[str, bool]:
    """What placement would send to the reference, or why it cannot; and whether it helps."""
    try:
        placement = place(graph, supports(device_of(found), tier), supports(device_of(get(FALLBACK)), tier))
    except Unsupported as error:
        return f"none: {error}", False
    sent = Counter(n.op.name for n, side in zip(graph.nodes, placement.places, strict=True) if side == "fallback")
    copies = sum(not c.is_constant for c in placement.copies)
    return f"{', '.join(f'{op} x{n}' for op, n in sent.items())} on {FALLBACK}, {copies} copies per step", True
