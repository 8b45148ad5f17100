"""The references against torch, an implementation nobody here wrote.

float32 inputs against torch's float64 result: 8 float32 roundings of the result's scale (5e-7), which holds
for every row op. Attention with float16 caches rounds Q and P to 16 bits: 2^-10 of values of size one.
"""

from __future__ import annotations

import numpy as np
import pytest
from op_helpers import inputs_of, run
from paged_scenes import Layout, attend, sequence, stored

from samebits.core.numerics.counter import Stream
from samebits.ops.rope import rope_table

torch = pytest.importorskip("torch")
functional = torch.nn.functional

ROW_TOLERANCE = 8 * 2.0**-24


def wide(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x).astype(np.float64))


def assert_near(got: np.ndarray, want: torch.Tensor, tolerance: float = ROW_TOLERANCE) -> None:
    expected = want.numpy()
    assert got.shape == expected.shape
    scale = np.maximum(np.abs(expected), 1.0)
    assert (np.abs(got - expected) <= tolerance * scale).all(), np.abs((got - expected) / scale).max()


@pytest.mark.parametrize("case_id", ["mul-add", "odd-width", "smollm2-135m"])
def test_layer_norm(case_id):
    i = inputs_of("layer_norm", case_id)
    weight, bias = (wide(i[n]) if n in i else None for n in ("weight", "bias"))
    want = functional.layer_norm(wide(i["x"]), i["x"].shape[-1:], weight, bias, i.get("eps", 1e-5))
    assert_near(run("layer_norm", **i), want)


@pytest.mark.parametrize("case_id", ["small-f32", "odd-width", "smollm2-135m"])
def test_rms_norm(case_id):
    i = inputs_of("rms_norm", case_id)
    want = functional.rms_norm(wide(i["x"]), i["x"].shape[-1:], wide(i["weight"]), i.get("eps", 1e-5))
    assert_near(run("rms_norm", **i), want)


@pytest.mark.parametrize("case_id", ["small-f32", "smollm2-vocabulary"])
def test_softmax(case_id):
    i = inputs_of("softmax", case_id)
    assert_near(run("softmax", **i), torch.softmax(wide(i["x"]), dim=-1))


@pytest.mark.parametrize(
    ("op_name", "attrs"), [("silu_and_mul", {}), ("gelu_and_mul", {"form": "tanh"}), ("gelu_and_mul", {"form": "erf"})]
)
def test_gated_activations(op_name, attrs):
    x = Stream("x").normal((4, 200), 3.0)
    gate, up = wide(x).chunk(2, dim=-1)
    activation = (
        functional.silu(gate)
        if op_name == "silu_and_mul"
        else functional.gelu(gate, approximate="none" if attrs["form"] == "erf" else "tanh")
    )
    assert_near(run(op_name, x, **attrs), activation * up)


def test_rope_as_a_complex_rotation():
    x, positions = Stream("x").normal((6, 3, 64)), np.array([0, 1, 2, 100, 1000, 4095], np.int32)
    frequencies = 10000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    turn = torch.polar(torch.ones(6, 32, dtype=torch.float64), wide(positions)[:, None] * frequencies)
    want = torch.view_as_real(torch.view_as_complex(wide(x).reshape(6, 3, 32, 2)) * turn[:, None]).flatten(2)
    assert_near(run("rope", x, positions, rope_table(4096, 64), interleave=True), want)


@pytest.mark.parametrize(("fmt", "tolerance"), [("f32", 4 * ROW_TOLERANCE), ("f16", 2.0**-9), ("bf16", 2.0**-6)])
@pytest.mark.parametrize("num_queries", [1, 17, 50])
def test_attention(fmt, tolerance, num_queries):
    tokens, layout = sequence("torch", 50), Layout(k=fmt, v=fmt, pages=(5, 1, 8, 3))
    out, lse = attend(stored(layout, [tokens]), layout, [tokens.q[-num_queries:]])[0]
    q, k, v = (wide(x).transpose(0, 1) for x in (tokens.q[-num_queries:], tokens.k, tokens.v))
    mask = torch.ones(num_queries, 50, dtype=torch.bool).tril(50 - num_queries)
    want = functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, enable_gqa=True)[0]
    assert_near(out, want.transpose(0, 1), tolerance)
    logits = q @ k.repeat_interleave(2, dim=0).transpose(1, 2) / 32**0.5
    want_lse = torch.logsumexp(logits.masked_fill(~mask, -torch.inf), dim=-1) / np.log(2)
    assert_near(lse, want_lse.transpose(0, 1), tolerance)


def test_gemm():
    i = inputs_of("gemm", "small-f32")
    want = functional.linear(wide(i["x"]), wide(i["weight"]))
    assert_near(run("gemm", **i) / 512**0.5, want / 512**0.5)
