"""Graphs of several nodes to be verified: steps of tiny models, some written out, and seeded random ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from samebits.core.shapes import TensorSpec
from samebits.graph import Graph
from samebits.models import ARCHITECTURES
from samebits.models.gemma3 import LOCAL_TABLE
from samebits.models.parts import ROPE_TABLE, ModelParts
from samebits.models.parts.decoder import Decoder, Layer
from samebits.models.parts.rope import Rope
from samebits.verify.random_graphs import random_chains, random_graph, random_rows
from samebits.verify.scenes import LIMITS, VOCAB, Arrays, drawn_steps, script_steps
from samebits.verify.stated_graphs import STATED

HIDDEN, FFN, HEAD = 256, 256, 32  # a superblock of 256 is the widest
NUM_ROWS, NUM_CHAINS, NUM_CHAINS_QUICK, NUM_RANDOM, NUM_RANDOM_QUICK = 2, 32, 16, 48, 24


@dataclass(frozen=True)
class TinyModel:
    """Two layers of an architecture. Formats by the last part of a weight's name, else `weights`."""

    architecture: str
    weights: str
    cache: tuple[str, str]
    num_heads: int = 4
    num_kv_heads: int = 2
    formats: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> Decoder:
        return Decoder(
            **{
                "num_layers": 2,
                "hidden_size": HIDDEN,
                "ffn_size": FFN,
                "num_heads": self.num_heads,
                "num_kv_heads": self.num_kv_heads,
                "head_size": HEAD,
                "vocab_size": VOCAB,
                "context_len": LIMITS.max_positions,
                "rms_eps": 1e-5,
                "ropes": {ROPE_TABLE: Rope(10000.0, HEAD)},
                "layers": (Layer(), Layer()),
                "query_scalar": float(HEAD),
                **self.features,
            }
        )

    def spec(self, name: str) -> TensorSpec | None:
        """What the model's builder asks: a weight's spec, None for one that the model does not have."""
        shape = ARCHITECTURES[self.architecture].shapes(self.config()).get(name)
        if shape is None:
            return None
        last = name.rpartition(".")[2]
        return TensorSpec(shape, self.formats.get(last, self.weights) if len(shape) > 1 else "f32")

    def graph(self, seed: int) -> Graph:
        """The graph of a step; the seed changes values only."""
        limits = replace(LIMITS, k_format=self.cache[0], v_format=self.cache[1])
        return ARCHITECTURES[self.architecture].build(ModelParts(self.config(), self.spec, limits)).graph


GEMMA2 = {
    "attn_soft_cap": 20.0,
    "final_soft_cap": 15.0,
    "layers": (Layer(9), Layer()),
    "embed_scale": 16.0,
    "activation": "gelu_tanh",
    "is_tied": True,
}
GEMMA3 = {
    "layers": (Layer(9, LOCAL_TABLE), Layer()),
    "ropes": {ROPE_TABLE: Rope(10000.0, HEAD), LOCAL_TABLE: Rope(100.0, HEAD)},
    "embed_scale": 16.0,
    "activation": "gelu_tanh",
    "is_tied": True,
}
MISTRAL = {"layers": (Layer(11), Layer(11)), "rope_is_interleaved": True}
MODELS = {
    "llama-q4_0": TinyModel("llama", "q4_0", ("f16", "f16"), features={"is_tied": True}),
    "qwen3-q8_0": TinyModel("qwen3", "q8_0", ("q8_0", "q8_0"), 6, 2),
    "gemma2-bf16": TinyModel("gemma2", "bf16", ("f16", "bf16"), features=GEMMA2),
    "gemma3-q8_0": TinyModel("gemma3", "q8_0", ("f16", "f16"), features=GEMMA3),
    "qwen2-q4_k": TinyModel("qwen2", "q4_k", ("q8_0", "q4_0"), 8, 1, {"v": "q6_k"}, {"has_qkv_bias": True}),
    "mistral-mixed": TinyModel("mistral", "q5_k", ("f32", "f16"), 8, 4, {"embed": "f16", "head": "q6_k"}, MISTRAL),
}


@dataclass(frozen=True)
class GraphCase:
    """A graph by name; `make(seed)` builds it. Cases with `full` are left out of a quick run.

    is_fed  its step inputs are those of a model's step, which a device may take in one copy
    script  the steps that a seed gives
    """

    id: str
    make: Callable[[int], Graph]
    full: bool = False
    is_fed: bool = False
    script: Callable[[int], list[Arrays]] = script_steps


GRAPH_CASES: tuple[GraphCase, ...] = (
    *(GraphCase(name, model.graph, is_fed=True) for name, model in MODELS.items()),
    *(GraphCase(name, make) for name, make in STATED.items()),
    *(GraphCase(f"rows-{number}", partial(random_rows, number)) for number in range(NUM_ROWS)),
    *(
        GraphCase(
            f"chains-{number}",
            partial(random_chains, number),
            full=number >= NUM_CHAINS_QUICK,
            script=partial(drawn_steps, f"chains-{number}"),
        )
        for number in range(NUM_CHAINS)
    ),
    *(
        GraphCase(f"random-{number}", partial(random_graph, number), full=number >= NUM_RANDOM_QUICK)
        for number in range(NUM_RANDOM)
    ),
)
