"""What architectures share: the step's inputs, weights by name, and the blocks they are composed of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from samebits.cache import pages_for_window
from samebits.core.errors import BadInput
from samebits.core.shapes import TensorSpec
from samebits.core.step import PAGES, pages_name, step_specs
from samebits.graph import Graph, Value
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.state import Paged, tensor_names, window_groups
from samebits.ops.build import OpBuilder
from samebits.ops.paged import stored_elements


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
    def formats(self) -> tuple[str, str]:
        """Of keys and of values."""
        return self.k_format, self.v_format

    def num_window_pages(self, window: int) -> int:
        """Pages of the layers that look back over so many positions where others look back over more."""
        return pages_for_window(window, self.page_size, self.max_sequences, self.max_tokens, self.num_pages)

    @property
    def max_table_entries(self) -> int:
        """Of all page tables in a step: sequences that share a prefix list its pages each."""
        return self.max_sequences * -(-self.max_positions // self.page_size)


@dataclass(frozen=True)
class StepGraph:
    """A model's step: its graph, and what it keeps of a sequence, by name."""

    graph: Graph
    states: Mapping[str, Paged]

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Of the groups of states that share page tables, in the order of a step's groups; None: all positions."""
        return window_groups(state.window for state in self.states.values())


class ModelParts:
    """A model's graph under construction. `weight_spec(name)` is None for a tensor the checkpoint lacks."""

    def __init__(self, config: Decoder, weight_spec: Callable[[str], TensorSpec | None], limits: Limits) -> None:
        self.config, self.limits, self.b = config, limits, OpBuilder()
        self._weight_spec = weight_spec
        self._weights: dict[str, Value] = {}
        self._states: dict[str, Paged] = {}
        self._written: list[Value] = []  # states as the step leaves them
        self._windows = window_groups(layer.window for layer in config.layers)
        sizes = {"T": limits.max_tokens, "R": limits.max_tokens, "B": limits.max_sequences}
        specs = step_specs({**sizes, "NI": limits.max_table_entries}, [w for w in self._windows[1:] if w])
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

    def state(self, name: str, state: Paged) -> tuple[Value, Value | None]:
        """Declares what is kept of every sequence: fresh inputs for its keys, NHD, and its values."""
        self._states[name] = state
        limits = self.limits
        num_pages = limits.num_pages if state.window == self._windows[0] else limits.num_window_pages(state.window or 0)
        values = []
        for tensor, rows, fmt in zip(tensor_names(name, state), state.rows, limits.formats, strict=False):
            *heads, width = rows
            shape = (num_pages, limits.page_size, *heads, stored_elements(width, fmt))
            values.append(self.b.input(tensor, TensorSpec(shape, fmt), kind="cache"))
        return values[0], values[1] if len(values) > 1 else None

    def page_table(self, state: Paged) -> dict[str, Value]:
        """The step's arrays that say where a state's pages are."""
        pages = pages_name(None if state.window == self._windows[0] else state.window)
        return {PAGES: self.step[pages], **{n: self.step[n] for n in ("kv_last_page_len", "kv_indptr")}}

    def embed(self) -> Value:
        """Token embeddings, scaled where the model asks for it."""
        rows = self.b.embedding(self.weight("embed"), self.step["token_ids"])
        return rows if self.config.embed_scale == 1 else self.b.scale(rows, factor=self.config.embed_scale)

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
        table = self.rope_tables[c.layers[layer].rope]
        q, k = (b.rope(h, self.step["positions"], table, interleave=c.rope_is_interleaved) for h in (q, k))
        rows, window = (c.num_kv_heads, c.head_size), c.layers[layer].window
        state = Paged((rows, rows), window)
        k_cache, v_cache = self.state(f"layers.{layer}", state)
        pages = self.page_table(state)
        places = {n: self.step[n] for n in ("batch_indices", "positions")}
        k_cache, v_cache = b.append_paged_kv_cache(k, v, k_cache=k_cache, v_cache=v_cache, **places, **pages)
        self._written += (k_cache, v_cache)
        a = b.paged_attention(
            q,
            k_cache,
            self.step["qo_indptr"],
            v_cache=v_cache,
            v_dim=c.head_size,
            sm_scale=1.0 / math.sqrt(c.query_scalar),
            logits_soft_cap=c.attn_soft_cap or 0.0,
            window_left=(window or 0) - 1,
            **pages,
        )
        return self.linear(b.merge_heads(a), f"{name}.o")

    def gated_ffn(self, x: Value, layer: int) -> Value:
        """down(activation(gate(x)) * up(x))."""
        name = f"layers.{layer}.ffn"
        both = self.b.concat_columns(self.linear(x, f"{name}.gate"), self.linear(x, f"{name}.up"))
        gated = (
            self.b.silu_and_mul(both) if self.config.activation == "silu" else self.b.gelu_and_mul(both, form="tanh")
        )
        return self.linear(gated, f"{name}.down")

    def finish(self, hidden: Value) -> StepGraph:
        """Outputs: logits of the rows asked for, their hidden states, then all states as they are written."""
        b, c = self.b, self.config
        rows = b.embedding(self.norm(hidden, "norm"), self.step["out_rows"])
        head = "head" if self.has("head") else "embed"
        logits = self.linear(rows, head)
        if c.final_soft_cap:
            logits = b.soft_cap(logits, cap=c.final_soft_cap)
        return StepGraph(b.finish(logits, rows, *self._written), self._states)
