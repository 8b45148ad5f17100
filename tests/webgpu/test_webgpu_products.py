"""Products on WebGPU beyond what small cases reach: weights in several textures, rows folded, tokens in windows."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.backends.interface import Backend
from samebits.backends.one_op import run_op
from samebits.core.format import FORMATS, BlockFormat, HostTensor
from samebits.core.tiers import Tier
from samebits.kernels.wgsl.lib.unroll import unrolled
from samebits.kernels.wgsl.products import blocks, packing
from samebits.ops import OPS, bind

RNG = np.random.default_rng(20)


def packed(name: str, num_rows: int, k: int) -> HostTensor:
    fmt = FORMATS[name]
    assert isinstance(fmt, BlockFormat)
    return fmt.pack(RNG.standard_normal((num_rows, k), np.float32))


def activations(num_tokens: int, k: int) -> dict[str, np.ndarray]:
    codes = RNG.integers(-127, 128, (num_tokens, k)).astype(np.int8)
    return {"codes": codes, "scales": RNG.random((num_tokens, k // 32), np.float32) + np.float32(0.1)}


def agrees(backend: Backend, op_name: str, **inputs: HostTensor) -> bool:
    """Whether the device gives the reference's bits."""
    op = OPS[op_name]
    (got,) = run_op(backend, bind(op, **inputs), Tier.PORTABLE)
    wanted = op.reference(**inputs)
    return np.array_equal(np.asarray(got), np.asarray(wanted))


def test_weight_in_several_textures(webgpu: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk's results go to its columns, and it serves the ids in its rows."""
    monkeypatch.setattr(packing, "CHUNK_BYTES", 16 << 10)
    table = packed("q4_1", 200, 256)
    assert len(packing.pack(table).chunks) == 3
    assert agrees(webgpu, "gemm_q8", weight=table, **activations(2, 256))
    assert agrees(webgpu, "embedding", table=table, ids=np.array([0, 199, 100, 95, 96, 191, 192], np.int32))


def test_row_longer_than_a_texture_is_wide(webgpu: Backend) -> None:
    weight = packed("q8_0", 20, 32 * 300)
    ((_, _, texels),) = packing.pack(weight).chunks
    assert texels.shape == (4, 8192, 4)
    assert agrees(webgpu, "gemm_q8", weight=weight, **activations(1, 32 * 300))


@pytest.mark.parametrize(
    ("name", "num_blocks"),
    [
        ("q5_1", 1),
        ("q5_1", 5),
        ("q4_0", blocks.MOST_WRITTEN_OUT),  # a driver compiles so many of q5_1 for twenty seconds
        ("q5_1", blocks.MOST_WRITTEN_OUT + 1),
    ],
)
def test_one_token(webgpu: Backend, name: str, num_blocks: int) -> None:
    """A row's blocks written out, as many as that is done for, and in a loop."""
    k = 32 * num_blocks
    assert agrees(webgpu, "gemm_q8", weight=packed(name, 35, k), **activations(1, k))


def test_tokens_beyond_a_uniform_binding(webgpu: Backend) -> None:
    """37 tokens of 16 at most in a window: the last one is not full."""
    assert agrees(webgpu, "gemm_q8", weight=packed("q4_1", 16, 1536), **activations(37, 1536))


def test_token_that_no_uniform_binding_holds(webgpu: Backend) -> None:
    k = 32 * 900
    assert agrees(webgpu, "gemm_q8", weight=packed("q4_0", 16, k), **activations(2, k))


def test_lines_are_written_out() -> None:
    text = "//: each r < ROWS\na$r\n  //: each t < 2\n  b$r_$t\n  //: end\n//: end\nc"
    assert unrolled(text, {"ROWS": 2}).split() == ["a0", "b0_0", "b0_1", "a1", "b1_0", "b1_1", "c"]
    with pytest.raises(ValueError, match="no end of: //: each r < ROWS"):
        unrolled("//: each r < ROWS\na", {"ROWS": 2})
