"""A prompt's prefill, ready to be run node by node: the model's graph and its inputs on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend
from samebits.backends.reference import host_tensor
from samebits.backends.support import check_tier, supports
from samebits.core.errors import BadInput, Unavailable, Unsupported
from samebits.core.format import HostTensor
from samebits.core.step import StepBatch, lay_out
from samebits.core.tiers import Tier
from samebits.engine.plan import tiers_to_try
from samebits.engine.weights import load_weight
from samebits.graph import Graph
from samebits.loaders.obtain import obtain
from samebits.models.checkpoint import FileCheckpoint, build_step, open_checkpoint
from samebits.models.parts import Limits
from samebits.passes import run_pipeline

PAGE_SIZE = 16
MAX_TOKENS = 4096  # the reference's attention takes time and memory that grow with the square
DEFAULT_PROMPT = "The capital of France is"


def open_model(model: str) -> FileCheckpoint:
    """The checkpoint that a name, a path or an address in the cache means; BadInput otherwise."""
    return open_checkpoint(obtain(model))


def parse_tokens(where: str, text: str) -> list[int]:
    """The ids of "1,2,3"; BadInput for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise BadInput(where, "--tokens", repr(text[:80]), "token ids such as 1,2,3")
    return [int(part) for part in parts]


def choose_tokens(checkpoint: FileCheckpoint, prompt: str | None, tokens: str | None) -> tuple[int, ...]:
    """The ids of a prompt, or those given as "1,2,3"; a short sentence where there is neither."""
    if prompt is not None and tokens is not None:
        raise BadInput("prompt", "--prompt and --tokens", "both", "one of them")
    if tokens is None:
        ids = checkpoint.tokenizer().encode(DEFAULT_PROMPT if prompt is None else prompt)
    else:
        ids = parse_tokens("prompt", tokens)
    config = checkpoint.config
    largest = min(config.context_len, MAX_TOKENS)
    if not 1 <= len(ids) <= largest:
        raise BadInput("prompt", "tokens", len(ids), f"1 to {largest}")
    wrong = next((i for i in ids if not 0 <= i < config.vocab_size), None)
    if wrong is not None:
        raise BadInput("prompt", "token id", wrong, f"0 to {config.vocab_size - 1}")
    return tuple(ids)


def step_graph(checkpoint: FileCheckpoint, num_tokens: int) -> Graph:
    """The model's step for one sequence of at most `num_tokens` tokens."""
    limits = Limits(num_tokens, 1, -(-num_tokens // PAGE_SIZE), PAGE_SIZE, max_positions=num_tokens)
    return build_step(checkpoint, limits).graph


@dataclass(frozen=True)
class Prefill:
    """The step that computes a whole prompt in pages 0, 1, ...; only the last token's logits are asked for."""

    checkpoint: FileCheckpoint
    tokens: tuple[int, ...]

    def batch(self) -> StepBatch:
        count = len(self.tokens)
        table = np.arange(-(-count // PAGE_SIZE), dtype=np.int32)[None, :]
        return lay_out(
            token_ids=np.array(self.tokens, np.int32),
            starts=np.zeros(1, np.int32),
            counts=np.array([count], np.int32),
            out_rows=np.array([count - 1], np.int32),
            page_size=PAGE_SIZE,
            tables=table,
            rows=np.zeros(1, np.int32),
            window_tables={layer.window: table for layer in self.checkpoint.config.layers if layer.window},
        )

    def loader(self, graph: Graph) -> Callable[[str], HostTensor]:
        """What gives a graph's input by name: the step's arrays, zeroed caches, weights from the file."""
        steps, specs = self.batch().arrays(), {v.name: v.spec for v in graph.inputs}

        def load(name: str) -> HostTensor:
            if name in steps:
                return steps[name]
            if graph.kinds.get(name) == "cache":
                return host_tensor(specs[name])
            return load_weight(self.checkpoint, name, specs[name], graph.joined)

        return load


def device_of(found: Found) -> Backend:
    if found.backend is None:
        raise Unavailable(found.reason)
    return found.backend


def rewritten(graph: Graph, found: Found, tier: Tier) -> Graph:
    """The graph after the passes, as this backend's kernels at this tier shape it."""
    return run_pipeline(graph, supports(device_of(found), tier))


def resolve_tier(found: Found, graph: Graph, asked: Tier | None) -> Tier:
    """The tier asked for, or the strongest of portable and invariant, that the backend has for every node itself.

    Unsupported names the op that has no kernel: a comparison of backends has no use for a fallback.
    """
    if found.backend is None or found.caps is None:
        raise Unavailable(found.reason)
    problem = ""
    for tier in tiers_to_try(found, asked):
        try:
            check_tier(found.backend, found.caps, tier)
        except Unsupported as error:
            problem = problem or str(error)
            continue
        ask = supports(found.backend, tier)
        refused = next(((n.op.name, why) for n in graph.nodes if (why := ask(n))), None)
        if refused is None:
            return tier
        problem = problem or f"{found.name} cannot give {tier.label}: {refused[0]}: {refused[1]}"
    raise Unsupported(problem)


def graph_and_tier(graph: Graph, found: Found, asked: Tier | None, fused: bool) -> tuple[Graph, Tier]:
    """What runs: the graph as it is, or after the passes, and its tier. Unsupported names an op without a kernel."""
    if not fused:
        return graph, resolve_tier(found, graph, asked)
    problem: Unsupported | None = None
    for tier in tiers_to_try(found, asked):
        after = rewritten(graph, found, tier)
        try:
            return after, resolve_tier(found, after, tier)
        except Unsupported as error:
            problem = problem or error
    raise problem or Unsupported(f"{found.name}: no tier to try")
