"""A small Llama as a model writes it, steps to run it with, and an interpreter that watches its memory."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import Sym, TensorSpec, joined_axis
from samebits.graph import Graph, Node, Value, check_graph
from samebits.ops import OPS, bind, evaluate
from samebits.ops.build import OpBuilder, infer_specs
from samebits.ops.cases import in_format
from samebits.ops.rope import rope_table

VOCAB, WIDTH, FFN, HEADS, KV_HEADS, HEAD = 24, 256, 256, 8, 2, 32
PAGES, PAGE_SIZE, MAX_TOKENS, MAX_SEQUENCES, MAX_POSITIONS = 12, 4, 16, 4, 32
EVERYTHING = lambda node: None  # noqa: E731  (a backend with a kernel for every op)


@dataclass(frozen=True)
class Config:
    """Formats by the last part of a weight's name; `act` is that of the activations.

    asks: logits of the rows that a step's `out_rows` names, and of no others.
    """

    formats: dict[str, str] = field(default_factory=dict)
    default: str = "f32"
    bias: tuple[str, ...] = ()
    act: str = "f32"
    cache: str = "f16"
    layers: int = 2
    asks: bool = False

    def format_of(self, name: str) -> str:
        return self.formats.get(name.rpartition(".")[2], self.default)


def t_f(*shape: Any, fmt: str = "f32") -> TensorSpec:
    return TensorSpec(shape, fmt)


class ToyLlama:
    def __init__(self, config: Config) -> None:
        self.b, self.config = OpBuilder(), config
        tokens, after = Sym("T", MAX_TOKENS), Sym("B", MAX_SEQUENCES, plus=1)
        dims = {"token_ids": tokens, "positions": tokens, "batch_indices": tokens, "qo_indptr": after}
        dims |= {"kv_indptr": after, "kv_indices": Sym("NI", PAGES), "kv_last_page_len": Sym("B", MAX_SEQUENCES)}
        dims |= {"out_rows": Sym("R", MAX_TOKENS)} if config.asks else {}
        self.step = {name: self.b.input(name, t_f(dim, fmt="i32")) for name, dim in dims.items()}
        self.table = self.b.input("rope_table", t_f(MAX_POSITIONS, HEAD // 2, 2), "weight")

    def weight(self, name: str, *shape: int, fmt: str | None = None) -> Value:
        return self.b.input(name, t_f(*shape, fmt=fmt or self.config.format_of(name)), "weight")

    def linear(self, x: Value, name: str, rows: int, columns: int) -> Value:
        y = self.b.gemm(x, self.weight(name, rows, columns))
        if name.rpartition(".")[2] not in self.config.bias:
            return y
        return self.b.add(y, self.weight(f"{name}_bias", rows, fmt="f32"))

    def layer(self, h: Value, name: str) -> tuple[Value, tuple[Value, Value]]:
        b, table = self.b, {n: self.step[n] for n in ("kv_last_page_len", "kv_indptr", "kv_indices")}
        n = b.rms_norm(h, self.weight(f"{name}.attn_norm", WIDTH, fmt="f32"))
        q = b.split_heads(self.linear(n, f"{name}.attn.q", HEADS * HEAD, WIDTH), heads=HEADS)
        k = b.split_heads(self.linear(n, f"{name}.attn.k", KV_HEADS * HEAD, WIDTH), heads=KV_HEADS)
        v = b.split_heads(self.linear(n, f"{name}.attn.v", KV_HEADS * HEAD, WIDTH), heads=KV_HEADS)
        q, k = (b.rope(x, self.step["positions"], self.table) for x in (q, k))
        shape = (PAGES, PAGE_SIZE, KV_HEADS, HEAD)
        caches = {f"{c}_cache": b.input(f"{name}.{c}_cache", t_f(*shape, fmt=self.config.cache), "cache") for c in "kv"}
        places = {n: self.step[n] for n in ("batch_indices", "positions")}
        k_cache, v_cache = b.append_paged_kv_cache(k, v, **caches, **places, **table)
        a = b.paged_attention(q, k_cache, self.step["qo_indptr"], v_cache=v_cache, **table)
        h = b.add(h, self.linear(b.merge_heads(a), f"{name}.attn.o", WIDTH, HEADS * HEAD))
        n = b.rms_norm(h, self.weight(f"{name}.ffn_norm", WIDTH, fmt="f32"))
        gate = self.linear(n, f"{name}.ffn.gate", FFN, WIDTH)
        y = b.silu_and_mul(b.concat_columns(gate, self.linear(n, f"{name}.ffn.up", FFN, WIDTH)))
        return b.add(h, self.linear(y, f"{name}.ffn.down", WIDTH, FFN)), (k_cache, v_cache)

    def graph(self) -> Graph:
        h = self.b.embedding(self.weight("embed", VOCAB, WIDTH), self.step["token_ids"], format=self.config.act)
        caches: list[Value] = []
        for i in range(self.config.layers):
            h, pair = self.layer(h, f"layers.{i}")
            caches += pair
        h = self.b.rms_norm(h, self.weight("norm", WIDTH, fmt="f32"))
        if self.config.asks:
            h = self.b.embedding(h, self.step["out_rows"], format=self.config.act)
        logits = self.linear(h, "head", VOCAB, WIDTH)
        return self.b.finish(logits, *caches)


def toy_llama(**config: Any) -> Graph:
    return ToyLlama(Config(**config)).graph()


def step_inputs(lengths: tuple[int, ...], new: tuple[int, ...]) -> dict[str, HostTensor]:
    """The last `new` tokens of sequences of these lengths."""
    counts = [-(-n // PAGE_SIZE) for n in lengths]
    last = [n - (c - 1) * PAGE_SIZE if c else 0 for n, c in zip(lengths, counts, strict=True)]
    spans = [np.arange(n - m, n) for n, m in zip(lengths, new, strict=True)]
    arrays = {
        "token_ids": Stream("tokens").integers(0, VOCAB, (sum(new),)),
        "positions": np.concatenate(spans),
        "batch_indices": np.repeat(np.arange(len(new)), new),
        "qo_indptr": np.concatenate([[0], np.cumsum(new)]),
        "kv_indptr": np.concatenate([[0], np.cumsum(counts)]),
        "kv_indices": Stream("pages").permutation(PAGES)[: sum(counts)],
        "kv_last_page_len": np.array(last),
        "out_rows": np.cumsum(new)[::-1] - 1,
    }
    return {name: array.astype(np.int32) for name, array in arrays.items()}


@functools.cache
def constant(value: Value) -> HostTensor:
    """A weight or a cache with something in it: the same for the same name."""
    if value.name == "rope_table":
        return rope_table(MAX_POSITIONS, HEAD)
    if value.name.endswith("_cache"):
        return in_format(0.5 * Stream(value.name).normal(value.spec.shape), value.spec.format)
    return in_format(Stream(value.name).normal(value.spec.shape) / 16, value.spec.format)


def joined(parts: list[HostTensor], axis: int = 0) -> HostTensor:
    """What a loader makes of `Graph.joined`: rows one after another."""
    first = parts[0]
    if isinstance(first, Packed):
        return Packed(first.format, np.concatenate([p.data for p in parts], axis), first.scale)
    return np.concatenate(parts, axis)


def inputs_for(graph: Graph, original: Graph, step: dict[str, HostTensor]) -> dict[str, HostTensor]:
    """Fresh tensors for every input; weights that were joined are made from the original graph's."""
    made = {v.name: constant(v) for v in original.inputs if v.name not in step}
    made |= {name: joined([x]) for name, x in made.items() if original.kinds.get(name) == "cache"}
    shapes = {v.name: v.spec.shape for v in graph.inputs}
    for name, parts in graph.joined.items():
        made[name] = joined([made[p] for p in parts], joined_axis(shapes[name], made[parts[0]].shape))
    return {v.name: step[v.name] if v.name in step else made[v.name] for v in graph.inputs}


def as_bytes(x: HostTensor) -> bytes:
    kind = x.format.name if isinstance(x, Packed) else str(x.dtype)
    data = x.data if isinstance(x, Packed) else x
    return f"{kind}{x.shape}".encode() + np.ascontiguousarray(data).tobytes()


def run_node(node: Node, values: dict[str, HostTensor]) -> tuple[HostTensor, ...]:
    inputs = {name: values[v.name] for name, v in node.inputs.items()}
    return evaluate(bind(OPS[node.op.name], **inputs, **node.attrs))


def run_graph(graph: Graph, inputs: dict[str, HostTensor]) -> dict[str, bytes]:
    """Bytes of all outputs, by number, and of all caches and written inputs, by name. Old values are poisoned."""
    check_graph(graph, infer_specs)
    values = dict(inputs)
    for node in graph.nodes:
        results = run_node(node, values)
        for old, _ in node.writes:
            del values[old.name]  # reading it again is an error
        values.update({v.name: r for v, r in zip(node.outputs, results, strict=True)})
    found = {str(i): as_bytes(values[v.name]) for i, v in enumerate(graph.outputs)}
    kept = [v.name for v in graph.inputs if graph.kinds.get(v.name) != "weight"]
    return found | {name: as_bytes(inputs[name]) for name in kept}


def run_in_arena(graph: Graph, inputs: dict[str, HostTensor], offsets: dict[str, int], total: int) -> list[bytes]:
    """Outputs of a run where every value lies where a memory plan put it: an overlap spoils them."""
    arena, values = np.full(total, 0xFF, np.uint8), dict(inputs)
    for node in graph.nodes:
        for value, result in zip(node.outputs, run_node(node, values), strict=True):
            values[value.name] = result
            if value.name in offsets:
                values[value.name] = _stored(arena[offsets[value.name] :], result)
    return [as_bytes(values[v.name]) for v in graph.outputs]


def _stored(arena: np.ndarray, result: HostTensor) -> HostTensor:
    data = result.data if isinstance(result, Packed) else result
    place = arena[: data.nbytes].view(data.dtype).reshape(data.shape)
    place[...] = data
    return Packed(result.format, place, result.scale) if isinstance(result, Packed) else place


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def only(*names: str) -> Any:
    """A backend with kernels for these ops alone."""
    return lambda node: None if node.op.name in names else f"no kernel for {node.op.name}"


def without(*names: str) -> Any:
    """A backend with kernels for all ops but these."""
    return lambda node: f"no kernel for {node.op.name}" if node.op.name in names else None


MIXED = {"q": "q4_k", "k": "q4_k", "v": "q8_0", "o": "q4_0", "gate": "q4_0", "up": "q4_0", "down": "f16"}
CONFIGS: dict[str, dict[str, Any]] = {
    "f32": {},
    "f16": {"default": "f16"},
    "q4_0": {"default": "q4_0"},
    "mixed": {"formats": MIXED, "default": "q8_0", "cache": "q8_0"},
    "qkv bias": {"default": "q8_0", "bias": ("q", "k", "v")},
    "mixed, biases everywhere": {
        "formats": MIXED,
        "default": "f16",
        "bias": ("q", "k", "v", "o", "gate", "up", "down"),
        "cache": "q4_0",
    },
    "one bias": {"default": "f16", "bias": ("k",), "cache": "f32"},
    "f16 activations": {"default": "f16", "act": "f16", "bias": ("q", "k", "v")},
    "rows asked for": {"formats": MIXED, "default": "q8_0", "bias": ("o", "down"), "asks": True},
    "rows asked for, f16 activations": {"default": "f16", "act": "f16", "asks": True},
}
STEPS = {
    "prefill": step_inputs((9,), (9,)),
    "decode": step_inputs((6, 1, 11), (1, 1, 1)),
    "mixed step": step_inputs((5, 8, 3), (3, 1, 3)),
}
SCENES = list(itertools.product(CONFIGS, STEPS))
