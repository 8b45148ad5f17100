"""What architectures share: the step's inputs, weights by name, and the blocks they are composed of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import overload

from samebits.cache import pages_for_window
from samebits.core.errors import BadInput
from samebits.core.shapes import TensorSpec
from samebits.core.step import PAGES, SLOTS, pages_name, step_specs
from samebits.graph import Graph, Value
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.state import Paged, Slot, tensor_names, window_groups
from samebits.ops.build import OpBuilder
from samebits.ops.paged import stored_elements

SLOT_PAGE_SIZE = 16  # recurrent layers move their state on at the ends of pages
LEAST_SNAPSHOTS, MOST_SNAPSHOTS = 16, 64  # a large hybrid's take tens of megabytes each


@dataclass(frozen=True)
class Limits:
    """The largest step a graph is built for, and the cache it works on."""

    max_tokens: int
    max_sequences: int
    num_pages: int
    page_size: int = 16
    max_positions: int = 8192
    k_format: str = "f16"
    v_format: str = "f16"

    @property
    def sizes(self) -> dict[str, int]:
        """The largest value of each symbol of a step's arrays."""
        tokens = dict.fromkeys(("T", "R"), self.max_tokens)
        return {**tokens, "B": self.max_sequences, "NI": self.max_table_entries}

    @property
    def formats(self) -> tuple[str, str]:
        """Of keys and of values."""
        return self.k_format, self.v_format

    def num_window_pages(self, window: int) -> int:
        """Pages of the layers that look back over so many positions where others look back over more."""
        return pages_for_window(window, self.page_size, self.max_sequences, self.max_tokens, self.num_pages)

    @property
    def num_snapshots(self) -> int:
        """Slots beside those of running sequences, for states that prefixes can be resumed from."""
        return min(max(self.max_sequences, LEAST_SNAPSHOTS), MOST_SNAPSHOTS)

    @property
    def num_slots(self) -> int:
        """Of all: running sequences' first, then snapshots'."""
        return self.max_sequences + self.num_snapshots

    @property
    def max_table_entries(self) -> int:
        """Of all page tables in a step: sequences that share a prefix list its pages each."""
        return self.max_sequences * -(-self.max_len // self.page_size)

    @property
    def max_len(self) -> int:
        """The most tokens of a sequence: positions of the rotary tables, as far as there are pages."""
        return min(self.max_positions, self.num_pages * self.page_size)


@dataclass(frozen=True)
class StepGraph:
    """A model's step: its graph, and what it keeps of a sequence, by name.

    windows   of the groups of layers that share page tables, in the order of a step's groups; None: all positions.
              A model without paged states has page tables all the same: they name prefixes
    """

    graph: Graph
    states: Mapping[str, Paged | Slot]
    windows: tuple[int | None, ...]

    @property
    def slot_tensors(self) -> tuple[str, ...]:
        """The graph's inputs that hold states in slots; the step reads `slots` where there are any."""
        return self._slots(lambda state: True)

    @property
    def resumable_tensors(self) -> tuple[str, ...]:
        """Those among them that hold the state at the last boundary."""
        return self._slots(lambda state: state.is_resumable)

    def _slots(self, is_meant: Callable[[Slot], bool]) -> tuple[str, ...]:
        named = self.states.items()
        return tuple(tensor_names(name, s)[0] for name, s in named if isinstance(s, Slot) and is_meant(s))


def state_specs(state: Paged | Slot, limits: Limits, windows: tuple[int | None, ...]) -> tuple[TensorSpec, ...]:
    """Return the specs of the tensors that hold a state of all sequences. `windows` are those of all page tables."""
    if isinstance(state, Slot):
        return (TensorSpec((limits.num_slots, *state.shape), "f32"),)
    num_pages = limits.num_pages if state.window == windows[0] else limits.num_window_pages(state.window or 0)
    return tuple(
        TensorSpec((num_pages, limits.page_size, *heads, stored_elements(width, fmt)), fmt)
        for (*heads, width), fmt in zip(state.rows, limits.formats, strict=False)
    )


class ModelParts:
    """A model's graph under construction. `weight_spec(name)` is None for a tensor the checkpoint lacks."""

    def __init__(self, config: Decoder, weight_spec: Callable[[str], TensorSpec | None], limits: Limits) -> None:
        self.config, self.limits, self.b = config, limits, OpBuilder()
        self._weight_spec = weight_spec
        self._weights: dict[str, Value] = {}
        self._states: dict[str, Paged | Slot] = {}
        self._written: list[Value] = []  # states as the step leaves them
        self._windows = window_groups(layer.window for layer in config.layers)
        specs = step_specs(limits.sizes, [w for w in self._windows[1:] if w])
        self.step = {name: self.b.input(name, spec) for name, spec in specs.items()}
        self.rope_tables = {
            name: self.b.input(name, TensorSpec((limits.max_positions, rope.dims // 2, 2), "f32"), kind="weight")
            for name, rope in config.ropes.items()
        }

    def weight(self, name: str) -> Value:
        """The weight's value, an input of the graph under the checkpoint's name."""
        if name not in self._weights:
            spec = self._weight_spec(name)
            if spec is None:
                raise BadInput("model", f"tensor {name}", "nothing", "a tensor of the checkpoint")
            self._weights[name] = self.b.input(name, spec, kind="weight")
        return self._weights[name]

    def has(self, name: str) -> bool:
        return self._weight_spec(name) is not None

    @overload
    def state(self, name: str, state: Paged) -> tuple[Value, Value | None]: ...

    @overload
    def state(self, name: str, state: Slot) -> Value: ...

    def state(self, name: str, state: Paged | Slot) -> tuple[Value, Value | None] | Value:
        """Declares what is kept of every sequence: fresh inputs for its keys, NHD, and its values, or for its slots."""
        self._states[name] = state
        return self._slots(name, state) if isinstance(state, Slot) else self._pages(name, state)

    def _pages(self, name: str, state: Paged) -> tuple[Value, Value | None]:
        specs = zip(tensor_names(name, state), state_specs(state, self.limits, self._windows), strict=True)
        values = [self.b.input(tensor, spec, kind="cache") for tensor, spec in specs]
        return values[0], values[1] if len(values) > 1 else None

    def _slots(self, name: str, state: Slot) -> Value:
        """The tensor of all slots; `step` has the array that says which is whose from now on."""
        if self.limits.page_size != SLOT_PAGE_SIZE:
            needed = f"{SLOT_PAGE_SIZE}: this model's states move on every {SLOT_PAGE_SIZE} positions"
            raise BadInput("model", "page_size", self.limits.page_size, needed)
        if SLOTS.name not in self.step:
            self.step[SLOTS.name] = self.b.input(SLOTS.name, SLOTS.spec(self.limits.sizes))
        (tensor,) = tensor_names(name, state)
        (spec,) = state_specs(state, self.limits, self._windows)
        return self.b.input(tensor, spec, kind="cache")

    def written(self, *states: Value) -> None:
        """States as the step leaves them: outputs of the graph, so that no pass takes them for unused."""
        self._written += states

    def sequences(self) -> dict[str, Value]:
        """The step's arrays that say whose each token is, where, and which slot its sequence has."""
        return {name: self.step[name] for name in ("qo_indptr", "positions", SLOTS.name)}

    def page_table(self, state: Paged) -> dict[str, Value]:
        """The step's arrays that say where a state's pages are."""
        pages = pages_name(None if state.window == self._windows[0] else state.window)
        return {PAGES: self.step[pages], **{n: self.step[n] for n in ("kv_last_page_len", "kv_indptr")}}

    def embed(self) -> Value:
        """Token embeddings, scaled where the model asks for it."""
        rows = self.b.embedding(self.weight("embed"), self.step["token_ids"])
        return self.scaled(rows, self.config.embed_scale)

    def scaled(self, x: Value, factor: float | str) -> Value:
        """x * factor, or x itself where that is 1. A name is that of one of the configuration's factors."""
        factor = self.config.factors.get(factor, 1.0) if isinstance(factor, str) else factor
        return x if factor == 1 else self.b.scale(x, factor=factor)

    def norm(self, x: Value, name: str) -> Value:
        return self.b.rms_norm(x, self.weight(name), eps=self.config.rms_eps)

    def linear(self, x: Value, name: str) -> Value:
        """x @ weight^T, plus the bias where the checkpoint has one."""
        y = self.b.gemm(x, self.weight(name))
        return self.b.add(y, self.weight(f"{name}_bias")) if self.has(f"{name}_bias") else y

    def attention(self, x: Value, layer: int) -> Value:
        """Projections, rope, append, attention and the output projection of one layer."""
        b, c, name = self.b, self.config, f"layers.{layer}.attn"
        q = b.split_heads(self.linear(x, f"{name}.q"), heads=c.num_heads)
        k = b.split_heads(self.linear(x, f"{name}.k"), heads=c.num_kv_heads)
        v = b.split_heads(self.linear(x, f"{name}.v"), heads=c.num_kv_heads)
        if self.has(f"{name}.q_norm"):
            q, k = self.norm(q, f"{name}.q_norm"), self.norm(k, f"{name}.k_norm")
        if (rope := c.layers[layer].rope) is not None:
            turn, is_interleaved = (self.step["positions"], self.rope_tables[rope]), c.rope_is_interleaved
            q, k = (b.rope(h, *turn, interleave=is_interleaved) for h in (q, k))
        rows, window = (c.num_kv_heads, c.head_size), c.layers[layer].window
        state = Paged((rows, rows), window)
        k_cache, v_cache = self.state(f"layers.{layer}", state)
        pages = self.page_table(state)
        places = {n: self.step[n] for n in ("batch_indices", "positions")}
        k_cache, v_cache = b.append_paged_kv_cache(k, v, k_cache=k_cache, v_cache=v_cache, **places, **pages)
        self.written(k_cache, v_cache)
        a = b.paged_attention(
            q,
            k_cache,
            self.step["qo_indptr"],
            v_cache=v_cache,
            sinks=self.weight(f"{name}.sinks") if self.has(f"{name}.sinks") else None,
            v_dim=c.head_size,
            sm_scale=1.0 / math.sqrt(c.query_scalar),
            logits_soft_cap=c.attn_soft_cap or 0.0,
            window_left=(window or 0) - 1,
            **pages,
        )
        merged = b.merge_heads(a)
        if self.has(f"{name}.gate"):
            merged = b.sigmoid_and_mul(merged, self.linear(x, f"{name}.gate"))
        return self.linear(merged, f"{name}.o")

    def gated_ffn(self, x: Value, layer: int, part: str = "ffn") -> Value:
        """down(activation(gate(x)) * up(x)), of the layer's tensors below `part`."""
        name = f"layers.{layer}.{part}"
        both = self.b.concat_columns(self.linear(x, f"{name}.gate"), self.linear(x, f"{name}.up"))
        return self.linear(self.gated(both), f"{name}.down")

    def gated(self, both: Value) -> Value:
        """activation(gate) * up, which lie side by side."""
        if self.config.activation == "silu":
            return self.b.silu_and_mul(both)
        return self.b.gelu_and_mul(both, form="tanh")

    def finish(self, hidden: Value) -> StepGraph:
        """Outputs: logits of the rows asked for, their hidden states, then all states as they are written."""
        b, c = self.b, self.config
        rows = b.embedding(self.norm(hidden, "norm"), self.step["out_rows"])
        head = "head" if self.has("head") else "embed"
        logits = self.scaled(self.linear(rows, head), c.logit_scale)
        if c.final_soft_cap:
            logits = b.soft_cap(logits, cap=c.final_soft_cap)
        return StepGraph(b.finish(logits, rows, *self._written), self._states, self._windows)
