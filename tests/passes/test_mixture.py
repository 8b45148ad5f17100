"""What the passes make of a mixture of experts: every bit kept, one quantization per token and layer input."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from toy_llama import EVERYTHING, as_bytes, ops_of, run_node, without

from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph, Value, check_graph
from samebits.ops.build import OpBuilder, infer_specs
from samebits.passes import run_pipeline
from samebits.passes.decompose import decompose
from samebits.passes.join import join
from samebits.passes.take_rows import take_rows
from samebits.verify.scenes import Tensors
from samebits.verify.stated_graphs import mixture

QUANTIZING = ("quantize_q8", "add_rms_norm_q8")  # from a layer's input; gates quantize what they make
T = Sym("T", 8)
FEW_TOKENS, MANY_TOKENS = 2, 0  # steps of the scene


def results(graph: Graph, tensors: Tensors, step: int) -> list[bytes]:
    check_graph(graph, infer_specs)
    values = {v.name: tensors.steps[step].get(v.name) for v in graph.inputs}
    values |= {v.name: tensors.constant(graph, v) for v in graph.inputs if values[v.name] is None}
    for node in graph.nodes:
        values.update(zip((v.name for v in node.outputs), run_node(node, values), strict=True))
    return [as_bytes(values[v.name]) for v in graph.outputs]


@pytest.mark.parametrize("step", [FEW_TOKENS, MANY_TOKENS])
def test_every_pass_keeps_every_bit(step: int) -> None:
    graph = mixture(0)
    tensors = Tensors(graph, 0)
    wanted, texts = results(graph, tensors, step), {str(graph)}

    def compare(name: str, after: Graph) -> None:
        if str(after) not in texts:
            texts.add(str(after))
            assert results(after, tensors, step) == wanted, name

    run_pipeline(graph, EVERYTHING, compare)
    assert len(texts) > 4


@pytest.mark.parametrize("step", [FEW_TOKENS, MANY_TOKENS])
def test_experts_compute_only_the_rows_that_are_asked_for(step: int) -> None:
    whole = mixture(0)
    graph = replace(whole, outputs=whole.outputs[-1:])  # those of `out_rows`
    after = take_rows(graph, EVERYTHING)
    experts = [node.outputs[0].spec.shape[0] for node in after.nodes if node.op.name == "expert_gemm"]
    assert [rows.name for rows in experts] == ["R"] * 9
    tensors = Tensors(graph, 0)
    assert results(after, tensors, step) == results(graph, tensors, step)


BACKENDS = {
    "no gates": without("expert_gate_q8", "gemm_silu_q8"),
    "no int8 blocks": without("expert_gemm_q8"),
    "no joined weights": lambda node: "no" if any("+" in v.name for v in node.inputs.values()) else None,
    "no bias": lambda node: "no" if node.op.name.startswith("expert") and "bias" in node.inputs else None,
    "nothing": lambda node: "nothing here",
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gets_the_same_bits(backend: str) -> None:
    graph = mixture(0)
    tensors = Tensors(graph, 0)
    after = run_pipeline(graph, BACKENDS[backend])
    assert results(after, tensors, FEW_TOKENS) == results(graph, tensors, FEW_TOKENS)


def test_gate_and_up_of_experts_are_one_stacked_weight() -> None:
    graph = join(mixture(0), EVERYTHING)
    stacked = [v for v in graph.inputs if v.name in graph.joined and len(v.spec.shape) == 3]
    assert [v.spec.shape for v in stacked] == [(8, 64, 64)] * 3
    biases = [v for v in graph.inputs if v.name in graph.joined and v.spec.shape == (8, 64)]
    assert len(biases) == 1
    assert "concat_columns" not in ops_of(graph)


def ffn(router: str, experts: str, shared: str | None, norm: bool = False) -> Graph:
    """A mixture's feed-forward layer as models write it."""
    b, layer = OpBuilder(), TensorSpec((T, 64), "f32")
    x = b.input("x", layer)
    if norm:
        x = b.fused_add_rms_norm(x, b.input("residual", layer), b.input("norm", TensorSpec((64,), "f32"), "weight"))[0]

    def weight(name: str, *shape: int, fmt: str) -> Value:
        return b.input(name, TensorSpec(shape, fmt), "weight")

    ids, weights = b.route(b.gemm(x, weight("router", 8, 64, fmt=router)), top_k=2, normalize=True)
    layout = b.expert_layout(ids, num_experts=8)
    halves = (b.expert_gemm(x, weight(n, 8, 32, 64, fmt=experts), *layout) for n in ("gate", "up"))
    y = b.expert_gemm(b.silu_and_mul(b.concat_columns(*halves)), weight("down", 8, 64, 32, fmt=experts), *layout)
    if shared is None:
        return b.finish(b.combine(y, weights))
    halves = (b.gemm(x, weight(f"shared.{n}", 32, 64, fmt=shared)) for n in ("gate", "up"))
    z = b.gemm(b.silu_and_mul(b.concat_columns(*halves)), weight("shared.down", 64, 32, fmt=shared))
    return b.finish(b.combine(y, weights, z, b.gemm(x, weight("shared.router", 1, 64, fmt=router))))


@pytest.mark.parametrize("router", ["f32", "q8_0"])
@pytest.mark.parametrize("shared", [None, "q8_0", "q4_0"])
@pytest.mark.parametrize("norm", [False, True])
def test_a_layers_input_is_quantized_once(router: str, shared: str | None, norm: bool) -> None:
    after = run_pipeline(ffn(router, "q4_0", shared, norm), EVERYTHING)
    check_graph(after, infer_specs)
    got = Counter(ops_of(after))
    quantizations = [node for node in after.nodes if node.op.name in QUANTIZING]
    assert len(quantizations) == 1
    assert quantizations[0].outputs[0].spec == TensorSpec((T, 64), "i8")
    readers = [n.op.name for n in after.nodes if quantizations[0].outputs[0] in n.inputs.values()]
    assert readers.count("expert_gate_q8") == 1  # a row per token: two experts read it
    assert readers.count("gemm_silu_q8") == (shared is not None)
    assert readers.count("gemm_q8") == (router == "q8_0")
    assert (got["expert_gate_q8"], got["expert_gemm_q8"]) == (1, 1)
    assert not got.keys() & {"expert_gemm", "silu_and_mul", "concat_columns"}
    assert got["add_rms_norm_q8"] == (norm and router == "q8_0")  # a dense router reads the row itself


def test_without_fused_gates_every_input_of_a_product_is_quantized_once() -> None:
    after = run_pipeline(ffn("f32", "q4_0", "q8_0"), without("expert_gate_q8", "gemm_silu_q8"))
    quantized = [node.outputs[0].spec.shape for node in after.nodes if node.op.name == "quantize_q8"]
    assert Counter(quantized) == Counter([(T, 64), (T, 32), (Sym("T", 8, 2), 32)])


@pytest.mark.parametrize(
    ("activation", "attrs"),
    [
        ("silu", {}),
        ("gelu_tanh", {}),
        ("clamped", {}),
        ("clamped", {"alpha": 1.5, "limit": 3.0}),
    ],
)
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_gate_is_fused_from_its_parts_and_taken_apart_again(activation: str, attrs: dict, has_bias: bool) -> None:
    b = OpBuilder()
    codes, scales = b.input("codes", TensorSpec((T, 64), "i8")), b.input("scales", TensorSpec((T, 2), "f32"))
    weight = b.input("w", TensorSpec((4, 128, 64), "q8_0"), "weight")
    bias = b.input("bias", TensorSpec((4, 128), "f32"), "weight") if has_bias else None
    layout = b.input("pairs", TensorSpec((Sym("T", 8, 2),), "i32")), b.input("ends", TensorSpec((5,), "i32"))
    both = b.expert_gemm_q8(codes, scales, weight, *layout, bias)
    act = {"silu": b.silu_and_mul, "gelu_tanh": b.gelu_and_mul, "clamped": b.clamped_swiglu}[activation]
    graph = b.finish(*b.quantize_q8(act(both, **attrs)))
    fused = run_pipeline(graph, EVERYTHING)
    (node,) = fused.nodes
    assert (node.op.name, node.attrs["activation"]) == ("expert_gate_q8", activation)
    assert {name: node.attrs[name] for name in attrs} == attrs
    back = decompose(fused, lambda node: "no" if node.op.name == "expert_gate_q8" else None)
    assert [(n.op.name, n.attrs) for n in back.nodes] == [(n.op.name, n.attrs) for n in graph.nodes]
