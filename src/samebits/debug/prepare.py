"""A prompt's prefill, ready to be run node by node: the model's graph and its inputs on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend
from samebits.backends.reference import host_tensor
from samebits.backends.support import check_tier
from samebits.core.errors import BadInput, Unavailable, Unsupported
from samebits.core.format import HostTensor
from samebits.core.tiers import Tier
from samebits.engine.plan import supports, tiers_to_try
from samebits.engine.weights import load_weight, make_rope_table, weight_spec
from samebits.graph import Graph
from samebits.loaders import FileCheckpoint, open_checkpoint
from samebits.loaders.cache import resolve
from samebits.models import build_model
from samebits.models.parts import ROPE_TABLE, Limits
from samebits.passes import run_pipeline
from samebits.scheduler.step import StepBatch

PAGE_SIZE = 16
MAX_TOKENS = 4096  # the reference's attention takes time and memory that grow with the square
DEFAULT_PROMPT = "The capital of France is"


def open_model(model: str) -> FileCheckpoint:
    """The checkpoint that a name, a path or an address in the cache means; BadInput otherwise."""
    return open_checkpoint(resolve(model))


def choose_tokens(checkpoint: FileCheckpoint, prompt: str | None, tokens: str | None) -> tuple[int, ...]:
    """The ids of a prompt, or those given as "1,2,3"; a short sentence where there is neither."""
    if prompt is not None and tokens is not None:
        raise BadInput("prompt", "--prompt and --tokens", "both", "one of them")
    if tokens is None:
        ids = checkpoint.tokenizer().encode(DEFAULT_PROMPT if prompt is None else prompt)
    else:
        try:
            ids = [int(text) for text in tokens.split(",")]
        except ValueError:
            raise BadInput("prompt", "--tokens", repr(tokens[:80]), "token ids such as 1,2,3") from None
    hp = checkpoint.hyperparameters
    largest = min(hp.context_len, MAX_TOKENS)
    if not 1 <= len(ids) <= largest:
        raise BadInput("prompt", "tokens", len(ids), f"1 to {largest}")
    wrong = next((i for i in ids if not 0 <= i < hp.vocab_size), None)
    if wrong is not None:
        raise BadInput("prompt", "token id", wrong, f"0 to {hp.vocab_size - 1}")
    return tuple(ids)


def step_graph(checkpoint: FileCheckpoint, num_tokens: int) -> Graph:
    """The model's step for one sequence of at most `num_tokens` tokens."""
    limits = Limits(num_tokens, 1, -(-num_tokens // PAGE_SIZE), PAGE_SIZE, max_positions=num_tokens)
    hp = checkpoint.hyperparameters
    return build_model(checkpoint.architecture, hp, weight_spec(checkpoint), limits)


@dataclass(frozen=True)
class Prefill:
    """The step that computes a whole prompt in pages 0, 1, ...; only the last token's logits are asked for."""

    checkpoint: FileCheckpoint
    tokens: tuple[int, ...]

    def batch(self) -> StepBatch:
        count = len(self.tokens)
        pages = -(-count // PAGE_SIZE)

        def ints(*values: int) -> np.ndarray:
            return np.array(values, np.int32)

        return StepBatch(
            token_ids=ints(*self.tokens),
            positions=ints(*range(count)),
            batch_indices=ints(*[0] * count),
            qo_indptr=ints(0, count),
            kv_indptr=ints(0, pages),
            kv_indices=ints(*range(pages)),
            kv_last_page_len=ints(count - (pages - 1) * PAGE_SIZE),
            out_rows=ints(count - 1),
        )

    def loader(self, graph: Graph) -> Callable[[str], HostTensor]:
        """What gives a graph's input by name: the step's arrays, zeroed caches, weights from the file."""
        steps, specs = asdict(self.batch()), {v.name: v.spec for v in graph.inputs}

        def load(name: str) -> HostTensor:
            if name in steps:
                return steps[name]
            if graph.kinds.get(name) == "cache":
                return host_tensor(specs[name])
            if name == ROPE_TABLE:
                return make_rope_table(self.checkpoint, len(self.tokens))
            return load_weight(self.checkpoint, name, graph.joined)

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
