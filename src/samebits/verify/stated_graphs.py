"""Graphs written out, for what random ones lack: many nodes, 16-bit values, unused results, late writes, scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samebits.core.numerics.counter import Stream
from samebits.core.shapes import TensorSpec
from samebits.core.step import SLOTS
from samebits.graph import Graph, Value
from samebits.verify.random_graphs import HEAD, PAGE_TABLE, WIDTH, Maker
from samebits.verify.scenes import LIMITS, SIZES, SLOTS_SUFFIX, VOCAB

CHAIN_NODES = 150  # more than a word or a small table has places


def _maker(name: str, seed: int) -> Maker:
    return Maker(Stream(name, seed), ("f32",))


def long_chain(seed: int) -> Graph:
    """Many nodes, the first values of which are needed again at the end."""
    maker = _maker("chain", seed)
    b, (x, y) = maker.b, maker.inputs
    made: list[Value] = [b.scale(x, factor=0.5)]
    for number in range(CHAIN_NODES):
        made.append(b.scale(made[-1], factor=0.75) if number % 2 else b.add(made[-1], y))
    early = [b.add(made[-1], value) for value in made[:4]]
    return b.finish(*early, made[len(made) // 2], b.embedding(made[-1], maker.step["out_rows"]))


def halves(seed: int) -> Graph:
    """Values that are rounded to 16 bits between nodes."""
    maker = _maker("halves", seed)
    b, outputs = maker.b, []
    for fmt in ("bf16", "f16"):
        x, y = (b.cast(value, format=fmt) for value in maker.inputs)
        scaled = b.scale(x, factor=1.1)
        total = b.mul(b.add(scaled, y), b.scale(y, factor=0.3))
        outputs += [b.cast(total, format="f32"), total]
    return b.finish(*outputs, b.embedding(outputs[0], maker.step["out_rows"]))


def first_of_two(seed: int) -> Graph:
    """A node whose second result nobody reads, and one whose first."""
    maker = _maker("two", seed)
    b, (x, y) = maker.b, maker.inputs
    values, _ = b.top_k(x, k=2)
    _, indices = b.top_k(y, k=1)
    return b.finish(b.scale(values, factor=2.0), indices, b.embedding(b.add(x, y), maker.step["out_rows"]))


def read_before_write(seed: int) -> Graph:
    """A cache that is read before it is written over by a node which could have run earlier."""
    maker = _maker("writes", seed)
    b, table = maker.b, {name: maker.step[name] for name in PAGE_TABLE}
    places = {name: maker.step[name] for name in ("batch_indices", "positions")}
    k_cache, v_cache = maker.new_caches("f32", "f16")
    parts = [
        [b.split_heads(b.slice_columns(x, start=start, stop=start + HEAD), heads=1) for start in (0, HEAD)]
        for x in maker.inputs
    ]
    query, outputs = b.split_heads(maker.inputs[0], heads=WIDTH // HEAD), []
    for key, value in parts:
        k_cache, v_cache = b.append_paged_kv_cache(key, value, k_cache=k_cache, v_cache=v_cache, **places, **table)
        seen = b.paged_attention(query, k_cache, maker.step["qo_indptr"], v_cache=v_cache, v_dim=HEAD, **table)
        outputs.append(b.merge_heads(seen))
    return b.finish(*outputs, b.embedding(outputs[0], maker.step["out_rows"]), k_cache, v_cache)


def scaled_weights(seed: int) -> Graph:
    """Weights whose format keeps a scale beside its blocks: a table and a product, packed as a model's."""
    maker = _maker("scales", seed)
    b, (x, y) = maker.b, maker.inputs
    table = b.embedding(maker.weight(VOCAB, WIDTH, fmt="nvfp4"), maker.step["token_ids"])
    product = b.gemm(b.add(x, table), maker.weight(WIDTH, WIDTH, fmt="nvfp4"))
    return b.finish(b.add(product, y), b.embedding(product, maker.step["out_rows"]))


def recurrent(seed: int) -> Graph:
    """Layers that keep states in slots: a convolution, a delta rule on what it gives, and a scan after that."""
    maker = _maker("recurrent", seed)
    b, (x, y) = maker.b, maker.inputs
    slots = b.input(SLOTS.name, SLOTS.spec(SIZES))
    step = {"slots": slots, **{name: maker.step[name] for name in ("qo_indptr", "positions")}}

    def state(name: str, *shape: int) -> Value:
        return b.input(f"{name}{SLOTS_SUFFIX}", TensorSpec((LIMITS.num_slots, *shape), "f32"), "cache")

    def heads(value: Value, start: int, stop: int, count: int) -> Value:
        return b.split_heads(b.slice_columns(value, start=start, stop=stop), heads=count)

    mixed, carry = b.causal_conv(x, maker.weight(WIDTH, 4), state("carry", 2, 3, WIDTH), **step, activation="silu")
    gates = {"a": b.slice_columns(y, start=0, stop=2), "b": b.slice_columns(y, start=2, stop=4)}
    decay = b.scale(maker.weight(2), factor=-1.0)
    q, k, v = b.l2_norm(heads(mixed, 0, 16, 1)), b.l2_norm(heads(mixed, 16, 32, 1)), heads(mixed, 32, 64, 2)
    memory = {"state": state("delta", 2, 16, 16), "ring": state("delta.ring", 16, 50)}
    o, s, ring = b.gated_delta_rule(
        q, k, v, **gates, decay=decay, dt_bias=maker.weight(2), **memory, **step, scale=0.25
    )
    normed = b.gated_rms_norm(o, heads(y, 32, 64, 2), maker.weight(16), groups=2)
    scan = {"dt": gates["a"], "B": heads(mixed, 0, 16, 1), "C": heads(mixed, 16, 32, 1), "D": maker.weight(2)}
    memory = {"state": state("scan", 2, 16, 16), "ring": state("scan.ring", 16, 50)}
    z, s2, ring2 = b.ssm_scan(normed, **scan, decay=decay, dt_bias=maker.weight(2), **memory, **step)
    out = b.sigmoid_and_mul(b.merge_heads(z), b.slice_columns(y, start=0, stop=32))
    return b.finish(out, mixed, b.embedding(out, maker.step["out_rows"]), carry, s, ring, s2, ring2)


def doubled(seed: int) -> Graph:
    """Sums of a value with itself: one before a norm, which fused would write over its operand, one read beside it."""
    maker = _maker("doubled", seed)
    b, (x, y) = maker.b, maker.inputs
    half, third = b.scale(x, factor=0.5), b.scale(y, factor=0.3)
    total, twice = b.add(half, half), b.add(third, third)
    normed, product = b.rms_norm(total, maker.weight(WIDTH)), b.mul(twice, third)
    return b.finish(normed, total, product, b.embedding(normed, maker.step["out_rows"]))


def rows_widened(seed: int) -> Graph:
    """Rows of 16-bit products, asked for in float32; those of the last product are taken before it is computed."""
    maker = _maker("widened", seed)
    b, (x, y) = maker.b, maker.inputs
    halves = [b.gemm(b.cast(x, format=fmt), maker.weight(WIDTH, WIDTH)) for fmt in ("f16", "bf16")]
    halves.append(b.gemm(b.cast(y, format="bf16"), maker.weight(WIDTH, WIDTH)))
    return b.finish(*(b.embedding(half, maker.step["out_rows"], format="f32") for half in halves), *halves[:2])


def rows_narrowed(seed: int) -> Graph:
    """Rows of products, asked for in each 16-bit format but their own."""
    maker = _maker("narrowed", seed)
    b, x = maker.b, maker.inputs[0]
    made = {fmt: b.gemm(b.cast(x, format=fmt), maker.weight(WIDTH, WIDTH)) for fmt in ("f32", "f16", "bf16")}
    pairs = (("f32", "f16"), ("f32", "bf16"), ("f16", "bf16"), ("bf16", "f16"))
    return b.finish(*(b.embedding(made[own], maker.step["out_rows"], format=asked) for own, asked in pairs))


EXPERTS, EXPERT_FFN = 8, 32
SOFTMAX = {"top_k": 2, "normalize": True}
IN_GROUPS = {"top_k": 3, "scores": "sigmoid", "groups": 4, "groups_kept": 2, "group_best": 2, "eps": 1e-20}


def mixture(seed: int) -> Graph:
    """Three mixtures of experts: one with a gated shared expert, one by groups with clamped gates and biases, a dense
    one with a softmax over the chosen."""
    maker = _maker("mixture", seed)
    b, (x, y) = maker.b, maker.inputs
    first = b.rms_norm(x, maker.weight(WIDTH))
    pairs = _routed(maker, 0, {}, **SOFTMAX)
    shared = {"shared": _shared(maker, first, "q4_0"), "shared_gate": b.gemm(first, maker.weight(1, WIDTH))}
    x = b.add(x, _experts(maker, first, "q4_0", pairs, b.silu_and_mul, False, shared))
    second = b.rms_norm(x, maker.weight(WIDTH))
    pairs = _routed(maker, 1, {"bias": maker.weight(EXPERTS)}, **IN_GROUPS, normalize=True, scale=2.5)
    shared = {"shared": _shared(maker, second, "q8_0")}
    x = b.add(x, _experts(maker, second, "q8_0", pairs, b.clamped_swiglu, True, shared))
    third = b.add(x, y)
    pairs = _routed(maker, 2, {}, top_k=4, scores="chosen")
    dense = _experts(maker, third, "bf16", pairs, b.gelu_and_mul, False, {})
    return b.finish(dense, x, *pairs[:2], b.embedding(b.add(x, dense), maker.step["out_rows"]))


def _routed(maker: Maker, number: int, bias: dict[str, Value], **rule: Any) -> tuple[Value, ...]:
    """(weights, expert_ids, pairs, seg_indptr). Logits are an input's own columns, which every tier has exactly: a
    choice between experts that are nearly equal would be another one after any rounding."""
    logits = maker.b.slice_columns(maker.inputs[1], start=number * EXPERTS, stop=(number + 1) * EXPERTS)
    ids, weights = maker.b.route(logits, **bias, **rule)
    return weights, ids, *maker.b.expert_layout(ids, num_experts=EXPERTS)


def _experts(
    maker: Maker,
    x: Value,
    fmt: str,
    routed: tuple[Value, ...],
    activation: Callable[[Value], Value],
    has_bias: bool,
    shared: dict[str, Value],
) -> Value:
    b, (weights, _, *layout) = maker.b, routed

    def product(rows: Value, num_outputs: int) -> Value:
        weight = maker.weight(EXPERTS, num_outputs, rows.spec.upper_shape[-1], fmt=fmt)
        bias = {"bias": maker.weight(EXPERTS, num_outputs)} if has_bias else {}
        return b.expert_gemm(rows, weight, *layout, **bias)

    both = b.concat_columns(product(x, EXPERT_FFN), product(x, EXPERT_FFN))
    return b.combine(product(activation(both), WIDTH), weights, **shared)


def _shared(maker: Maker, x: Value, fmt: str) -> Value:
    """The expert that all tokens have: a gated feed-forward layer."""
    gate, up = (maker.b.gemm(x, maker.weight(EXPERT_FFN, WIDTH, fmt=fmt)) for _ in range(2))
    hidden = maker.b.silu_and_mul(maker.b.concat_columns(gate, up))
    return maker.b.gemm(hidden, maker.weight(WIDTH, EXPERT_FFN, fmt=fmt))


STATED = {
    "long-chain": long_chain,
    "mixture": mixture,
    "halves": halves,
    "first-of-two": first_of_two,
    "read-before-write": read_before_write,
    "recurrent": recurrent,
    "scaled-weights": scaled_weights,
    "doubled": doubled,
    "rows-widened": rows_widened,
    "rows-narrowed": rows_narrowed,
}
