"""The bounds at `fast`: the definition and textbook kernels are inside, small mistakes are not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import textbook
from planted_scenes import caches, floats, paged

from samebits.backends.reference import ReferenceBackend
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.elementary import sigmoid, softplus
from samebits.core.shapes import upper
from samebits.core.tiers import Tier
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.ops.quantize import quantize_q8
from samebits.verify.bounds import Judge
from samebits.verify.bounds.codes import in_blocks
from samebits.verify.bounds.expected import Expected
from samebits.verify.bounds.near import Near, growth
from samebits.verify.checks import Examination
from samebits.verify.refusals import Comparisons
from samebits.verify.select import find_case, op_tasks

BF16 = ml_dtypes.bfloat16
NUM_CASES = 4  # of an op, spread over those of a quick run


def judged(op: str, **arguments: Any) -> Judge:
    """The judge of a call, and in `want` the definition's results."""
    copies = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in arguments.items()}
    return Judge(bind(OPS[op], **arguments), evaluate(bind(OPS[op], **copies)))


def wrong(judge: Judge, *results: HostTensor) -> int:
    """How many elements of results are not as expected."""
    return sum(int(judge.outside(i, x).sum()) for i, x in enumerate(results))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_definition_is_within_half_of_its_bounds_or_rounds_to_a_neighbour(op: Any) -> None:
    names = list(dict.fromkeys(t.case for t in op_tasks("reference", ("portable",), op, False, 0) if ":" not in t.case))
    for name in names[:: max(len(names) // NUM_CASES, 1)]:
        inputs = make_inputs(op, find_case(op, name), 0)
        judge = judged(op.name, **inputs)
        assert wrong(judge, *judge.want) == 0, name


@pytest.mark.parametrize(
    ("op", "row"),
    [
        ("layer_norm", "rows=24576,K=3,weight=f16,values=bounds,eps=1e-06"),  # means below 2^-50
        ("fused_add_rms_norm", "rows=560,axes=2,values=wide"),  # sums below 2^-50
        ("gemm_silu_q8", "T=391,H=96,K=32,weight=q4_1,weights=mixed,values=tiny"),  # products below 2^-50
        ("ssm_scan", "batch=decode,G=3,share=12,S=2,P=2,dt_max=2.0,decay=fast,values=wide"),  # updates below 2^-50
        ("ssm_scan", "batch=resumed,G=1,S=17,dt_min=0.2,values=beyond"),  # gates that float32 loses beside their sum
    ],
)
def test_the_definition_is_within_its_bounds_where_small_numbers_are_lost(op: str, row: str) -> None:
    found = OPS[op]
    judge = judged(op, **make_inputs(found, find_case(found, row), 0))
    assert wrong(judge, *judge.want) == 0


class RefusesAll(Judge):
    """Takes every element for wrong."""

    def outside(self, index: int, got: HostTensor) -> np.ndarray:
        return np.ones(self.want[index].shape, bool)


def test_a_value_that_the_definition_gives_is_never_blamed() -> None:
    inputs = {"x": floats(2, 4), "y": floats(2, 4, seed=1)}
    bound = bind(OPS["add"], **inputs)
    (want,) = evaluate(bound)
    got = want.copy()
    got[1, 2] += 1
    examination = Examination(ReferenceBackend(), OPS["add"], inputs, Tier.FAST, Comparisons())
    (finding,) = examination._values((got,), RefusesAll(bound, (want,)))
    assert finding.where.startswith("z: row 1, element 2:")
    assert not list(examination._values((want,), RefusesAll(bound, (want,))))


@pytest.mark.parametrize("name", sorted(op.name for op in OPS if not op.freedom))
def test_an_op_without_freedom_is_exact(name: str) -> None:
    op = OPS[name]
    judge = judged(name, **make_inputs(op, op.cases[0], 0))
    assert all(not x.error.any() for x in judge.expected)


def test_freedom_is_stated_where_a_bound_is_and_nowhere_else() -> None:
    for op in OPS:
        cases = [case for case in op.cases if not case.full][:6]
        judges = [judged(op.name, **make_inputs(op, case, 0)) for case in cases]
        assert bool(op.freedom) == any(x.error.any() for judge in judges for x in judge.expected), op.name


def test_infinities_may_differ_only_where_the_bound_straddles_overflow() -> None:
    want = np.array([np.inf, 65504.0, np.inf, np.nan, 1.0], np.float16)
    expected = Expected(np.array([65519.0, 65521.0, 9e4, np.nan, 1.0]), np.array([32.0, 32.0, 32.0, 0.0, 1.0]))
    other = np.array([65504.0, np.inf, 65504.0, np.nan, np.inf], np.float16)
    assert expected.outside(other, want).tolist() == [False, False, True, False, True]
    assert expected.outside(-other, want).tolist() == [True, True, True, False, True]


def test_a_block_may_be_zeros_only_where_rounding_decides_it() -> None:
    edge = 2.0**-43  # blocks below are zeros
    values = np.repeat(np.array([[0.9998], [1.0002], [0.125], [8.0]]) * edge, 32, axis=1)
    codes, _ = in_blocks(Near(values, 1e-3 * values))
    want, _ = quantize_q8(values.astype(np.float32))
    assert codes.outside(np.where(want != 0, 0, 127).astype(np.int8), want).all(axis=1).tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_a_sum_grows_with_its_length_but_less_than_its_length() -> None:
    assert growth(1) < growth(10) < growth(1000) < 1000
    assert growth(57_344) < 57_344 / 8


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("width", [1, 100, 4096, 20_000])
def test_textbook_rows_pass(width: int, fmt: str) -> None:
    x, weight = floats(5, width, fmt=fmt), floats(width, seed=1, fmt=fmt)
    shifted = (x.astype(np.float32) + np.float32(3)).astype(x.dtype)
    for name, arguments in (
        ("rms_norm", {"x": x, "weight": weight, "eps": 1e-6}),
        ("layer_norm", {"x": shifted, "weight": weight, "bias": weight, "eps": 1e-5}),
        ("softmax", {"x": x, "scale": 3.0, "soft_cap": 0.0}),
    ):
        assert wrong(judged(name, **arguments), getattr(textbook, name)(**arguments)) == 0, name
    for name, attrs in (("silu_and_mul", {}), ("gelu_and_mul", {"form": "tanh"}), ("gelu_and_mul", {"form": "erf"})):
        both = floats(3, 2 * width, fmt=fmt, size=3.0)
        assert wrong(judged(name, x=both, **attrs), getattr(textbook, name)(both, **attrs)) == 0, name


@pytest.mark.parametrize("multiply", [textbook.tiles, textbook.split_k])
@pytest.mark.parametrize("weight", ["f32", "f16", "bf16", "q8_0", "q4_0", "q5_1", "q4_k", "q6_k"])
@pytest.mark.parametrize("width", [256, 4096])
def test_textbook_products_pass(width: int, weight: str, multiply: Any) -> None:
    for shift in (0.0, 2.0):  # sums that cancel, and sums of one sign
        x = floats(4, width) + np.float32(shift)
        w = floats(16, width, seed=1, fmt=weight)
        judge = judged("gemm", x=x, weight=w)
        assert wrong(judge, textbook.gemm(x, w, multiply=multiply)) == 0


@pytest.mark.parametrize("sums_rounded", [False, True])
@pytest.mark.parametrize("cache", ["f16", "bf16"])
@pytest.mark.parametrize("length", [1, 3, 41, 300, 4000])
def test_textbook_attention_passes(length: int, cache: str, sums_rounded: bool) -> None:
    for size in (1.0, 0.0, 3e-3, 6.0):  # of queries: at 0 all weights are equal, at 6 few of them count
        arguments = attention_call(length, cache, size=size)
        judge = judged("paged_attention", **arguments)
        assert wrong(judge, *textbook_attention(arguments, length, sums_rounded=sums_rounded)) == 0, size


def attention_call(length: int, cache: str, head: int = 64, size: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """One query on one head over a contiguous run of pages."""
    table = paged((length,))
    tensors = caches(len(table["kv_indices"]), 16, 1, head, head, cache, cache)
    q = floats(1, 1, head, seed=seed, fmt=cache, size=size)
    return {"q": q, "qo_indptr": np.array([0, 1], np.int32), **table, **tensors, "return_lse": True}


def textbook_attention(a: dict[str, Any], length: int, sums_rounded: bool = False) -> tuple[np.ndarray, np.ndarray]:
    head = a["q"].shape[-1]
    keys, values = (a[name].reshape(-1, head)[:length] for name in ("k_cache", "v_cache"))
    q = a["q"][:, 0].astype(np.float32)
    out, lse = textbook.attention(q, keys, values, head**-0.5, sums_rounded=sums_rounded)
    return out[:, None].astype(a["q"].dtype), lse[:, None]


@pytest.mark.parametrize("length", [41, 300, 2000])
@pytest.mark.parametrize("cache", ["f16", "bf16", "f32"])
def test_attention_without_one_key_fails_at_any_length(length: int, cache: str) -> None:
    num_wrong = 0
    for seed in range(8):  # heads of a call: some give the last key less weight than bfloat16 may round away
        arguments = attention_call(length, cache, seed=seed)
        out, lse = textbook_attention(arguments, length - 1)
        num_wrong += wrong(judged("paged_attention", **arguments), out, lse) > 0
    assert num_wrong >= (2 if (cache, length) == ("bf16", 2000) else 6)


def test_textbook_recurrence_passes_and_one_5_percent_too_small_fails() -> None:
    num_tokens, heads, k_dim, v_dim = 70, 2, 64, 32
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    a, b = normal(num_tokens, heads), normal(num_tokens, heads)
    decay, dt_bias = -np.exp(normal(heads)), normal(heads)
    q, k = (normal(num_tokens, heads, k_dim) * np.float32(k_dim**-0.5) for _ in range(2))
    v, state = normal(num_tokens, heads, v_dim), np.zeros((1, heads, k_dim, v_dim), np.float32)
    indices = {"qo_indptr": np.array([0, num_tokens], np.int32), "slots": np.zeros(1, np.int32)}
    judge = judged(
        "gated_delta_rule",
        **{"q": q, "k": k, "v": v, "a": a, "b": b, "decay": decay, "dt_bias": dt_bias, "state": state},
        **{"ring": np.zeros((1, 16, heads * (k_dim + v_dim + 1)), np.float32), **indices},
        positions=np.arange(num_tokens, dtype=np.int32),
    )
    out, _ = textbook.sequential_delta(q, k, v, decay * softplus(a + dt_bias), sigmoid(b), state[0], 1.0)
    assert not judge.outside(0, out).any()
    assert judge.outside(0, out * np.float32(0.95)).any()


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
def test_small_mistakes_in_rows_fail(fmt: str) -> None:
    x = floats(3, 512, fmt=fmt, size=2.0)
    (y,) = judged("softmax", x=x, scale=3.0).want
    dropped = np.where(y.astype(np.float32) < 2.0**-10, 0, y).astype(y.dtype)
    assert wrong(judged("softmax", x=x, scale=3.0), dropped) > 0
    erf = judged("gelu_and_mul", x=x, form="erf")
    assert wrong(erf, *judged("gelu_and_mul", x=x, form="tanh").want) > 0
    norm = judged("rms_norm", x=x, eps=1e-2)
    assert wrong(norm, *judged("rms_norm", x=x, eps=5e-3).want) > (0 if fmt == "f32" else -1)


@pytest.mark.parametrize(
    ("weight", "accumulator"), [("f32", BF16), ("f16", np.float16), ("bf16", BF16), ("q4_0", BF16)]
)
def test_sums_in_16_bits_fail(weight: str, accumulator: Any) -> None:
    x, w = floats(4, 2048, fmt=weight if weight in ("f16", "bf16") else "f32"), floats(16, 2048, seed=1, fmt=weight)
    values = (w.unpack() if isinstance(w, Packed) else w).astype(np.float32)
    if isinstance(w, Packed):
        codes, scales = quantize_q8(x)
        judge = judged("gemm_q8", codes=codes, scales=scales, weight=w)
        x = codes * np.repeat(scales, 32, axis=1)
    else:
        judge = judged("gemm", x=x, weight=w)
    total = np.zeros((4, 16), accumulator)
    for at in range(0, 2048, 16):
        part = x[:, at : at + 16].astype(np.float32) @ values[:, at : at + 16].T
        total = (total.astype(np.float32) + part).astype(accumulator)
    assert judge.outside(0, total.astype(judge.want[0].dtype)).any()


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_weights_of_attention_rounded_beside_float32_values_fail(dtype: Any) -> None:
    arguments = attention_call(300, "f32")
    judge = judged("paged_attention", **arguments)
    assert not judge.outside(0, textbook_attention(arguments, 300)[0]).any()
    keys, values = (arguments[name].reshape(-1, 64)[:300] for name in ("k_cache", "v_cache"))
    s = arguments["q"][0] @ keys.T / np.float32(8)
    p = np.exp(s - s.max())
    out = textbook.rounded(p, dtype) @ values / p.sum()
    assert judge.outside(0, out[None].astype(np.float32)).any()


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0"])
def test_codes_of_a_cache_may_be_a_textbook_s_but_not_cut(fmt: str) -> None:
    new = {"key": floats(3, 2, 70, seed=3), "value": floats(3, 2, 33, seed=4, size=1e-3)}
    cells = {"batch_indices": np.zeros(3, np.int32), "positions": np.array([0, 2, 15], np.int32)}
    judge = judged("append_paged_kv_cache", **new, **cells, **paged((16,)), **caches(1, 16, 2, 70, 33, fmt, fmt))
    for index, x in enumerate(new.values()):
        want = judge.want[index]
        assert isinstance(want, Packed)
        rows = np.zeros((*x.shape[:-1], want.shape[-1]), np.float32)
        rows[..., : x.shape[-1]] = x
        textbook_s, cut = want.data.copy(), want.data.copy()
        textbook_s[0, cells["positions"]] = want.format.pack(rows).data
        assert not judge.outside(index, Packed(want.format, textbook_s)).any()
        codes = cut[0, 2, 0, 2:].view(np.int8)  # of q4_0: two codes each, above zero by 8
        codes -= np.sign(codes) if fmt == "q8_0" else np.int8(0x11)
        assert judge.outside(index, Packed(want.format, cut)).any()


def test_results_of_a_wrong_shape_never_reach_the_bounds() -> None:
    """`upper` sizes only: a judge compares shapes that are equal."""
    judge = judged("add", x=floats(2, 3), y=floats(2, 3))
    assert judge.expected[0].values.shape == tuple(map(upper, judge.want[0].shape))
