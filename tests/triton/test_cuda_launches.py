"""Which launches the fast tier's ops make on an H200 that is not here: noted, on tensors without memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from without_memory import compiler  # noqa: F401 a fixture

import samebits.formats  # noqa: F401  registers them
from samebits.core.format import FORMATS
from samebits.kernels.cuda.products.laid_out import carries
from samebits.kernels.triton.lib.builds import noting_launches
from samebits.kernels.triton.lib.devices import MEMORYLESS, parsed_facts
from samebits.kernels.triton.lib.registry import INTERPRETED
from samebits.kernels.triton.lib.tensors import Blocks, Tiled
from samebits.kernels.triton.lib.weights import tile_weight
from samebits.kernels.triton.products.fast.op import gemm_q8_fast, gemm_silu_q8_fast
from samebits.kernels.triton.rows.norm_q8 import add_rms_norm_q8_fast
from samebits.kernels.triton.rows.quantize import quantize_q8_fast

pytestmark = [
    pytest.mark.skipif(INTERPRETED, reason="the interpreter launches no CUDA"),
    pytest.mark.usefixtures("compiler"),
]
K = 4096


def weight(name: str = "q4_0", num_rows: int = 14336) -> Tiled:
    fmt = FORMATS[name]
    return tile_weight(Blocks(fmt, torch.empty(num_rows, fmt.row_bytes(K), dtype=torch.uint8, device=MEMORYLESS)))


def blocks(num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.empty(num_tokens, K, dtype=torch.int8, device=MEMORYLESS)
    return codes, torch.empty(num_tokens, K // 32, device=MEMORYLESS)


def launches(op: str, num_tokens: int, given: Tiled) -> list[str]:
    """Names of what an op launches, in order."""
    with noting_launches(parsed_facts("sm_90/132")) as builds:
        {"gemm_q8": gemm_q8_fast, "gemm_silu_q8": gemm_silu_q8_fast}[op](*blocks(num_tokens), given)
    return [build.name for build in builds.values()]


@pytest.mark.parametrize(("num_tokens", "name", "source"), [
    (8, "q4_0", "exact.cu"), (16, "q4_0", "exact.cu"), (17, "q4_0", "wide.cu"), (128, "q4_0", "wide.cu"),
    (8, "q6_k", "exact.cu"), (16, "q6_k", "wide.cu"), (8, "q4_k", "fast.cu"), (16, "q4_k", "wide.cu"),
    (8, "nvfp4", "fast.cu"),
])  # fmt: skip
def test_products_are_served_as_the_docs_say(num_tokens: int, name: str, source: str) -> None:
    assert launches("gemm_q8", num_tokens, weight(name))[-1] == f"products/{source}"


def test_a_gated_layer_is_one_launch_behind_its_activations() -> None:
    assert launches("gemm_silu_q8", 64, weight(num_rows=28672))[1:] == ["products/wide.cu"]


@pytest.mark.parametrize(("num_rows", "last"), [(28672, "gate._many_gated"), (28672 - 64, "gated.gated_kernel")])
def test_a_prompt_s_gate_is_the_end_of_its_product_where_rows_fill_tiles(num_rows: int, last: str) -> None:
    assert launches("gemm_silu_q8", 200, weight(num_rows=num_rows))[-1].endswith(last)


@pytest.mark.parametrize("op", ["gemm_q8", "gemm_silu_q8"])
@pytest.mark.parametrize(("num_tokens", "name"), [(8, "q4_k"), (12, "q4_1"), (64, "q4_0"), (128, "q8_0")])
def test_a_faint_weight_takes_no_product_in_float16(op: str, num_tokens: int, name: str) -> None:
    sources = {made for made in launches(op, num_tokens, replace(weight(name), is_faint=True)) if ".cu" in made}
    assert sources == {"products/exact.cu"}


@pytest.mark.parametrize("num_tokens", [17, 128])
def test_norms_and_quantized_rows_bring_what_the_product_multiplies(num_tokens: int) -> None:
    x = torch.empty(num_tokens, K, device=MEMORYLESS)
    with noting_launches(parsed_facts("sm_90/132")) as builds:
        normed = add_rms_norm_q8_fast(x, torch.empty_like(x), torch.empty(K, device=MEMORYLESS))[:2]
        made = [normed, quantize_q8_fast(x)]
        for codes, scales in made:
            assert carries(codes) == (False, True)
            gemm_q8_fast(codes, scales, weight())
    assert [build.name for build in builds.values()] == ["rows/blocks.cu", "rows/blocks.cu", "products/wide.cu"]


def test_norms_of_prompts_bring_rows_in_float16() -> None:
    x = torch.empty(200, K, device=MEMORYLESS)
    with noting_launches(parsed_facts("sm_90/132")) as builds:
        codes, scales, _ = add_rms_norm_q8_fast(x, torch.empty_like(x), torch.empty(K, device=MEMORYLESS))
        gemm_q8_fast(codes, scales, weight())
    kernels = [build.name.rpartition(".")[2] for build in builds.values()]
    assert kernels == ["cu", "_dequantize", "_many"]
