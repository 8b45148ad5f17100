"""Products with experts in Triton's interpreter: every way to launch them has the reference's bits, and refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kernel_results import differences

from samebits.backends.discovery import get
from samebits.backends.gpu.executable import GpuExecutable
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import raise_if_any
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import tile_weight
from samebits.kernels.triton.products.blocks import experts as block_experts
from samebits.kernels.triton.products.blocks.gated import gated_quantized
from samebits.kernels.triton.products.blocks.many.experts_dot import expert_gemm_dot
from samebits.kernels.triton.products.dense import experts as dense_experts
from samebits.kernels.triton.select.expert_layout import LONG, expert_layout
from samebits.ops import OPS, make_inputs
from samebits.ops.activation import clamped_swiglu, gelu_and_mul, silu_and_mul
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of
from samebits.ops.expert_cases import expert_case
from samebits.ops.quantize import quantize_q8
from samebits.verify.harness import execute

HOST = torch.device("cpu")


def check(op: str, *args: Any, **kw: Any) -> None:
    """No kernel of the op differs from its reference on this case of expert_case."""
    with np.errstate(all="ignore"):
        assert list(differences(OPS[op], expert_case("case", *args, **kw))) == []


def count_calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    """Names of calls, added as they are made."""
    made: list[str] = []
    run: Callable[..., Any] = getattr(module, name)

    def counted(*args: Any) -> Any:
        made.append(name)
        return run(*args)

    monkeypatch.setattr(module, name, counted)
    return made


@pytest.mark.parametrize(
    ("launcher", "args", "kw"),
    [
        # one tile each: experts that several pairs share, rows per token and per pair, a chunk that is not full
        ("expert_gemv_q8", (2, 2, 3, 8, 32, "q4_1"), {"given": ("bias",)}),
        ("expert_gemv_q8", (3, 1, 2, 8, 32, "q8_0"), {"rows": "pair", "chosen": "same"}),
        ("expert_gemm_int8", (5, 2, 3, 24, 256, "q4_k"), {"given": ("bias",)}),
        ("expert_gemm_int8", (9, 1, 2, 16, 96, "q4_0"), {"rows": "pair", "chosen": "same"}),
    ],
)
def test_products_in_block_formats(
    monkeypatch: pytest.MonkeyPatch, launcher: str, args: tuple[Any, ...], kw: dict[str, Any]
) -> None:
    made = count_calls(monkeypatch, block_experts, launcher)
    check("expert_gemm_q8", *args, **kw)
    assert made, "another way was taken"


def test_more_pairs_than_a_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of two: three pairs of one expert are two runs."""
    monkeypatch.setattr("samebits.kernels.triton.products.blocks.few.experts.ROWS", 2)
    check("expert_gemm_q8", 3, 1, 2, 8, 32, "q8_0", chosen="same")


def test_experts_in_float32_quantize_their_rows_first() -> None:
    check("expert_gemm", 2, 1, 2, 8, 32, "q8_0")


@pytest.mark.parametrize(("most_few", "fmt", "rows"), [(64, "bf16", "token"), (0, "f32", "pair")])
def test_products_in_float_formats(monkeypatch: pytest.MonkeyPatch, most_few: int, fmt: str, rows: str) -> None:
    monkeypatch.setattr(dense_experts, "MOST_FEW", most_few)
    check("expert_gemm", 3, 2, 4, 3, 20, fmt, given=("bias",), rows=rows)


def test_a_gate_ends_in_int8_blocks() -> None:
    check("expert_gate_q8", 1, 1, 2, 64, 32, "q8_0", attrs={"activation": "clamped"}, given=("bias",))


ACTIVATIONS = {
    "silu": silu_and_mul,
    "tanh": gelu_and_mul,
    "clamped": lambda x: clamped_swiglu(x, alpha=1.5, limit=0.75),
}


@pytest.mark.parametrize("form", ACTIVATIONS)
def test_activations_of_a_gate(form: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 192)).astype(np.float32)
    codes, scales = gated_quantized(torch.from_numpy(x), 2, form, 1.5, 0.75)
    expected_codes, expected_scales = quantize_q8(ACTIVATIONS[form](x))
    assert codes.numpy().tobytes() == expected_codes.tobytes()
    assert scales.numpy().tobytes() == expected_scales.tobytes()


def test_a_gate_that_is_no_number_is_refused() -> None:
    x = torch.ones((1, 64))
    x[0, 3] = torch.nan
    with np.errstate(all="ignore"):
        gated_quantized(x, 1, "clamped", 1.5, 0.75)
    with pytest.raises(BadInput, match="quantize_q8: x has NaN"):
        raise_if_any(HOST)


def block_case(num_tokens: int) -> tuple[dict[str, Any], Tiled, torch.Tensor]:
    """Inputs of expert_gemm_q8 with two experts, of which a token has one, their weight tiled, and memory for y."""
    case = expert_case("case", num_tokens, 1, 2, 8, 32, "q4_0", given=("bias",))
    inputs = make_inputs(OPS["expert_gemm_q8"], case)
    fmt = FORMATS["q4_0"]
    assert isinstance(fmt, BlockFormat)
    weight = tile_weight(Blocks(fmt, torch.from_numpy(inputs["weight"].data.copy())))
    return inputs, weight, torch.empty((num_tokens, 8))


def test_products_by_dot() -> None:
    """The launcher for devices without NVIDIA's int8 instruction."""
    inputs, weight, y = block_case(5)
    given = {name: torch.from_numpy(inputs[name]) for name in ("codes", "scales", "pairs", "seg_indptr", "bias")}
    expert_gemm_dot(weight=weight, y=y, op="expert_gemm_q8", **given)
    raise_if_any(HOST)
    assert y.numpy().tobytes() == OPS["expert_gemm_q8"].reference(**inputs).tobytes()
    given["codes"][4, 31] = -128
    expert_gemm_dot(weight=weight, y=y, op="expert_gemm_q8", **given)
    with pytest.raises(BadInput, match="expert_gemm_q8: codes is -128"):
        raise_if_any(HOST)


def refused(op: str, reason: str, **inputs: Any) -> None:
    """The call without its check on the host is refused by kernels."""
    backend = get("cuda").backend
    assert backend is not None
    with np.errstate(all="ignore"), pytest.raises(BadInput, match=f"{op}: {reason}"):
        execute(backend, replace(OPS[op], check=None), inputs, Tier.PORTABLE)


WRONG: list[tuple[str, Any, str]] = [
    ("pairs", [0, 3, 2], "pairs is a number of no pair"),
    ("pairs", [0, -1, 2], "pairs is a number of no pair"),
    ("seg_indptr", [0, 2, 1], "seg_indptr has entries that fall or lie outside"),
    ("seg_indptr", [0, 1, 4], "seg_indptr has entries that fall or lie outside"),
    ("seg_indptr", [-1, 1, 3], "seg_indptr has entries that fall or lie outside"),
]


FEW_AND_MANY = [*((64, *wrong) for wrong in WRONG), *((0, *wrong) for wrong in WRONG[::2])]


@pytest.mark.parametrize(("most_few", "name", "value", "reason"), FEW_AND_MANY)
def test_layouts_that_are_none(
    monkeypatch: pytest.MonkeyPatch, most_few: int, name: str, value: list[int], reason: str
) -> None:
    monkeypatch.setattr(dense_experts, "MOST_FEW", most_few)
    inputs = make_inputs(OPS["expert_gemm"], expert_case("case", 3, 1, 2, 2, 4, "f16"))
    refused("expert_gemm", reason, **{**inputs, name: np.array(value, np.int32)})


@pytest.mark.parametrize("launcher", ["expert_gemv_q8", "expert_gemm_int8"])
def test_blocks_and_layouts_that_are_none(launcher: str) -> None:
    inputs, weight, y = block_case(2)
    names = ("codes", "scales", "pairs", "seg_indptr", "bias")
    for name, at, value, reason in (
        ("codes", (1, 31), -128, "codes is -128"),
        ("scales", (1, 0), np.nan, "scales has NaN or Inf"),
        ("pairs", (0,), 2, "pairs is a number of no pair"),
        ("seg_indptr", (2,), 9, "seg_indptr has entries that fall"),
    ):
        given = {n: torch.from_numpy(inputs[n].copy()) for n in names}
        given[name][at] = value
        with np.errstate(all="ignore"):
            getattr(block_experts, launcher)(weight=weight, y=y, op="expert_gemm_q8", **given)
        with pytest.raises(BadInput, match=f"expert_gemm_q8: {reason}"):
            raise_if_any(HOST)


def test_a_choice_of_no_expert_is_refused() -> None:
    for number in (-1, 3):
        refused("expert_layout", "expert_ids", expert_ids=np.array([[0, number]], np.int32), num_experts=3)


def test_a_layout_of_more_pairs_than_a_program_reads_at_once() -> None:
    ids = np.random.default_rng(0).integers(0, 3, (LONG + 5, 1)).astype(np.int32)
    pairs, seg_indptr = expert_layout(torch.from_numpy(ids), num_experts=3)
    expected = OPS["expert_layout"].reference(ids, num_experts=3)
    assert (pairs.numpy() == expected[0]).all()
    assert (seg_indptr.numpy() == expected[1]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused(value: float) -> None:
    logits = np.zeros((2, 3), np.float32)
    logits[1, 2] = value
    refused("route", "logits has NaN or Inf", logits=logits, top_k=1)


def test_a_mixture_reads_choices_without_a_launch_between() -> None:
    """Its kernels wait for those that made the integers; an embedding takes ids for constants."""
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 4), "router": (3, 4), "experts": (3, 4, 4)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    b = OpBuilder()
    x, router, experts = (b.input(name, TensorSpec(shape, "f32")) for name, shape in shapes.items())
    logits = b.gemm(x, router)
    ids, weights = b.route(logits, top_k=2, scores="softmax")
    out = b.combine(b.expert_gemm(x, experts, *b.expert_layout(ids, num_experts=3)), weights)
    row = b.embedding(router, b.argmax(logits))
    backend = get("cuda").backend
    assert backend is not None
    graph = b.finish(out, row)
    executable = backend.compile(graph, Tier.PORTABLE)
    assert isinstance(executable, GpuExecutable)
    waited_for = [graph.nodes[number].op.name for number in executable._after_integers]
    assert waited_for == ["embedding"]
    for name, array in arrays.items():
        buffer = backend.alloc(spec_of(array))
        backend.copy_in(buffer, array)
        executable.bind(name, buffer)
    with np.errstate(all="ignore"):
        executable.run()
    ids, weights = OPS["route"].reference(logits := OPS["gemm"].reference(arrays["x"], arrays["router"]), top_k=2)
    pairs = OPS["expert_layout"].reference(ids, num_experts=3)
    y = OPS["expert_gemm"].reference(arrays["x"], arrays["experts"], *pairs)
    assert backend.copy_out(executable.output(0)).tobytes() == OPS["combine"].reference(y, weights).tobytes()
    assert (backend.copy_out(executable.output(1)) == arrays["router"][logits.argmax(axis=-1)]).all()
