"""The tiny random model with layers that keep their state in slots, before its attention or instead of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from samebits.core.format import HostTensor
from samebits.core.shapes import TensorSpec
from samebits.graph import Value
from samebits.loaders.tokenizer import Tokenizer
from samebits.models.architecture import Architecture
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint
from samebits.models.parts import ModelParts, StepGraph
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.state import Slot

HIDDEN, HEADS, KEY_HEADS, SIZE, TAPS = 64, 2, 1, 8, 4
CHANNELS = SIZE * (2 * KEY_HEADS + HEADS)  # of q, k and v together
SHAPES = {
    "qkv": (CHANNELS, HIDDEN),
    "conv": (CHANNELS, TAPS),
    "a": (HEADS, HIDDEN),
    "b": (HEADS, HIDDEN),
    "decay": (HEADS,),
    "dt_bias": (HEADS,),
    "out": (HIDDEN, HEADS * SIZE),
}


def delta_net(m: ModelParts, x: Value, layer: int) -> Value:
    """Projections, a short convolution and the gated delta rule."""
    b, name = m.b, f"layers.{layer}.delta"
    step = {n: m.step[n] for n in ("qo_indptr", "positions")}
    carry = m.state(f"{name}.conv", Slot((2, TAPS - 1, CHANNELS), is_resumable=True))
    state = m.state(f"{name}.rule", Slot((HEADS, SIZE, SIZE), is_resumable=True))
    ring = m.state(f"{name}.since", Slot((16, (KEY_HEADS + HEADS) * SIZE + HEADS), is_resumable=False))
    step["slots"] = m.step["slots"]
    mixed, carry = b.causal_conv(m.linear(x, f"{name}.qkv"), m.weight(f"{name}.conv"), carry, **step, activation="silu")
    ends = np.cumsum([0, KEY_HEADS * SIZE, KEY_HEADS * SIZE, HEADS * SIZE]).tolist()
    parts = [b.slice_columns(mixed, start=i, stop=j) for i, j in pairwise(ends)]
    q, k, v = (b.split_heads(p, heads=n) for p, n in zip(parts, (KEY_HEADS, KEY_HEADS, HEADS), strict=True))
    gates = [m.linear(x, f"{name}.{gate}") for gate in "ab"]
    constants = [m.weight(f"{name}.{n}") for n in ("decay", "dt_bias")]
    q, k = b.l2_norm(q, eps=1e-6), b.l2_norm(k, eps=1e-6)
    o, state, ring = b.gated_delta_rule(q, k, v, *gates, *constants, state, ring, **step)
    m.written(carry, state, ring)
    return m.linear(b.merge_heads(o), f"{name}.out")


def build_hybrid(m: ModelParts) -> StepGraph:
    """A layer of each kind."""
    h = m.embed()
    h = m.b.add(h, delta_net(m, m.norm(h, "layers.0.attn_norm"), 0))
    h = m.b.add(h, m.gated_ffn(m.norm(h, "layers.0.ffn_norm"), 0))
    return m.finish(m.b.add(h, m.attention(m.norm(h, "layers.1.attn_norm"), 1)))


def build_without_pages(m: ModelParts) -> StepGraph:
    """No layer looks back at all tokens: pages name prefixes and hold nothing."""
    h = m.embed()
    for layer in range(2):
        h = m.b.add(h, delta_net(m, m.norm(h, f"layers.{layer}.attn_norm"), layer))
    return m.finish(h)


@dataclass(frozen=True)
class HybridCheckpoint:
    """A file's checkpoint with further tensors."""

    file: FileCheckpoint
    architecture: Architecture
    more: dict[str, np.ndarray]

    @property
    def config(self) -> Decoder:
        return self.file.config

    def spec(self, name: str) -> TensorSpec | None:
        return TensorSpec(self.more[name].shape, "f32") if name in self.more else self.file.spec(name)

    def tensor(self, name: str) -> HostTensor:
        return self.more[name] if name in self.more else self.file.tensor(name)

    def release(self, name: str) -> None:
        if name not in self.more:
            self.file.release(name)

    def tokenizer(self) -> Tokenizer:
        return self.file.tokenizer()


def open_hybrid(path: Path, has_pages: bool = True) -> HybridCheckpoint:
    """The tiny random model of `path` as a hybrid, or with recurrent layers alone."""
    file, rng = open_checkpoint(path), np.random.default_rng(5)
    build = build_hybrid if has_pages else build_without_pages
    more = {}
    for layer in range(2):
        for name, shape in SHAPES.items():
            values = rng.normal(0, 1.5 / np.sqrt(shape[-1]), shape).astype(np.float32)
            more[f"layers.{layer}.delta.{name}"] = -np.abs(values) if name == "decay" else values
    return HybridCheckpoint(file, replace(file.architecture, build=build), more)
