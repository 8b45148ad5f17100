"""Matrix products: gemm and grouped_gemm. y = x @ weight^T, weight [N, K] as model files store it.

Three arithmetics, chosen by the weight's format alone:
  f32         products rounded, stream order
  f16, bf16   x rounded to that type, so products are exact; stream order
  blocks      x in int8 blocks of 32, exact integer sums, one float32 term per block;
              terms in order inside a chunk of 8 blocks that starts at +0, chunks in order
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, Codes, HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.rounding import are_operands, as_operand, widen
from samebits.core.numerics.settling import settle
from samebits.core.numerics.sums import stream_dot
from samebits.ops.cases import default_inputs
from samebits.ops.equivalents import segment_equivalents
from samebits.ops.gemm_spaces import GEMM_SPACE, GROUPED_SPACE
from samebits.ops.quantize import int8_blocks
from samebits.ops.ragged import check_index_range, check_indptr
from samebits.ops.record import FLOATS, INDEX, WEIGHTS, Case, Input, Op, Result, define_op
from samebits.ops.sizes import MODELS

F = np.float32
CHUNK_BLOCKS = 8
PRODUCT_FREEDOM = (
    "order of sums in float32; x as given, or rounded as the definition does; operands of 11 bits beside float32 and "
    "block weights"
)


def block_terms(codes: Codes, blocks: slice, x: np.ndarray, x_scale: np.ndarray) -> np.ndarray:
    """The terms of some blocks of 32 for all pairs of rows; float32 [blocks, T, N].

    x int8 [T, nb, 32], x_scale float32 [T, nb]. Integer sums go through float32 BLAS: every value and partial sum
    is an integer below 2^24, so it is exact in any order.
    """
    a = x[:, blocks].swapaxes(0, 1).astype(np.float32)
    q = codes.q[:, blocks].swapaxes(0, 1).swapaxes(1, 2).astype(np.float32)
    scale = x_scale[:, blocks].T[:, :, None]
    terms = _sub_scaled(a, q, codes.sub, blocks) * (_per_row(codes.d, blocks) * scale)
    if codes.m is None:
        return terms
    ones = np.ones((1, BLOCK, 1), np.float32)
    return terms + _sub_scaled(a, ones, codes.msub, blocks) * (_per_row(codes.m, blocks) * scale)


def _sub_scaled(a: np.ndarray, q: np.ndarray, sub: np.ndarray | None, blocks: slice) -> np.ndarray:
    """a [blocks, T, 32] times q [blocks, 32, N], in parts of a block with a sub-scale each; exact for integers."""
    if sub is None:
        return a @ q
    width = BLOCK // sub.shape[-1]
    parts = [slice(start, start + width) for start in range(0, BLOCK, width)]
    scaled = [(a[..., part] @ q[:, part]) * _per_row(sub[..., i], blocks) for i, part in enumerate(parts)]
    return scaled[0] if len(scaled) == 1 else scaled[0] + scaled[1]


def _per_row(field: np.ndarray, blocks: slice) -> np.ndarray:
    """A weight's field [N, nb] as [blocks, 1, N], to meet every row of x."""
    return field[:, blocks].T[:, None, :]


def block_matmul(x: np.ndarray, codes: Codes, where: str, argument: str = "x") -> np.ndarray:
    """float32 x [T, K] times a block-quantized weight [N, K]; float32 [T, N]."""
    a, x_scale = int8_blocks(x.reshape(len(x), codes.q.shape[1], BLOCK), where, argument)
    return int8_matmul(a, x_scale, codes)


def int8_matmul(a: np.ndarray, x_scale: np.ndarray, codes: Codes) -> np.ndarray:
    """Activations int8 [T, nb, 32] with scales float32 [T, nb] times a weight [N, K]; float32 [T, N]."""
    num_blocks = codes.q.shape[1]
    total = np.zeros((len(a), len(codes.q)), np.float32)
    for start in range(0, num_blocks, CHUNK_BLOCKS):
        chunk = np.zeros_like(total)
        for term in block_terms(codes, slice(start, start + CHUNK_BLOCKS), a, x_scale):
            chunk += term
        total += chunk
    return total


def dense_matmul(x: np.ndarray, weight: np.ndarray, where: str) -> np.ndarray:
    """float32 x [T, K] times a weight [N, K] in f32, f16 or bf16; float32 [T, N]."""
    a = as_operand(x, weight.dtype, where, "x").T
    w = as_operand(widen(weight), weight.dtype, where, "weight").T
    return stream_dot(len(a), (x.shape[0], weight.shape[0]), lambda rows: a[rows, :, None] * w[rows, None, :])


def matmul(x: np.ndarray, weight: HostTensor, where: str) -> np.ndarray:
    """float32 x [T, K] times a weight [N, K] in any format; float32 [T, N], settled."""
    if isinstance(weight, Packed):
        return settle(block_matmul(x, weight.codes(), where))
    return settle(dense_matmul(x, weight, where))


def check_weight(where: str, weight: HostTensor) -> None:
    """BadInput for a plain weight that no product allows; kernels do not look for it again."""
    if not isinstance(weight, Packed) and not are_operands(weight):
        given = "NaN, Inf or a value beyond the type's range"
        raise BadInput(where, "weight", given, f"finite {weight.dtype} values")


def _check(x: np.ndarray, weight: HostTensor, bias: np.ndarray | None) -> None:
    check_weight("gemm", weight)


def _decompose_bias(b: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    y = b.gemm(x, weight)
    return y if bias is None else b.add(y, bias)


def _sizes(t: int, n: int, k: int) -> dict[str, int]:
    return {"T": t, "N": n, "K": k}


def _model_cases() -> list[Case]:
    cases = []
    for name, (hidden, ffn, *_) in MODELS.items():
        full = name != "smollm2-135m"
        cases.append(Case(f"decode-{name}", _sizes(1, ffn, hidden), {}, {"weight": "q8_0"}, full=full))
        cases.append(Case(f"prefill-{name}", _sizes(64, hidden, ffn), {}, {"weight": "q4_0"}, full=full))
    return cases


@define_op(
    aliases=("matmul",),
    inputs=[
        Input("x", "T K", FLOATS, "activations"),
        Input("weight", "N K", WEIGHTS, "one row per output", raw=True, in_blocks=True),
        Input("bias", "N", FLOATS, "added last", optional=True),
    ],
    results=[Result("y", "T N", "=x")],
    freedom=PRODUCT_FREEDOM,
    cases=lambda: [
        *(Case(f"small-{f}", _sizes(3, 40, 512), {}, {"weight": f}) for f in WEIGHTS),
        *(Case(f"bias-{f}", _sizes(2, 16, 256), {}, {"weight": f}, given=("bias",)) for f in ("bf16", "q4_1")),
        Case("odd-k-f16", _sizes(3, 5, 131), {}, {"weight": "f16"}),
        Case("tail-chunk-q8_0", _sizes(3, 24, 576), {}, {"weight": "q8_0"}),
        Case("bf16-all", _sizes(4, 24, 300), {}, {"x": "bf16", "weight": "bf16"}),
        Case("no-tokens", _sizes(0, 24, 64), {}, {"weight": "q8_0"}),
        *_model_cases(),
    ],
    invariant_axes=("T",),
    check=_check,
    decompose=_decompose_bias,
    operations=lambda x, weight, **_: 2 * x.shape[0] * weight.shape[-2] * weight.shape[-1],
    space=lambda: GEMM_SPACE,
    smallest=-123,
)
def gemm(x: np.ndarray, weight: HostTensor, bias: np.ndarray | None = None) -> np.ndarray:
    """x @ weight^T + bias."""
    y = matmul(x, weight, "gemm")
    return y if bias is None else settle(y + bias)


def _check_groups(x: Any, weight: HostTensor, seg_indptr: np.ndarray, weight_indices: np.ndarray | None) -> None:
    check_weight("grouped_gemm", weight)
    check_indptr("grouped_gemm", "seg_indptr", seg_indptr, len(x))
    num_segments = len(seg_indptr) - 1
    if weight_indices is None:
        if num_segments != weight.shape[0]:
            raise BadInput(
                "grouped_gemm", "seg_indptr", f"{num_segments} segments", f"one per weight: {weight.shape[0]}"
            )
    else:
        check_index_range("grouped_gemm", "weight_indices", weight_indices, weight.shape[0])


def _grouped_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    inputs = default_inputs(op, case, stream)
    lengths = case.extra["lengths"]
    inputs["seg_indptr"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    if "weight_indices" in inputs:
        inputs["weight_indices"] = stream.child("weight_indices").integers(0, case.dims["E"], (len(lengths),))
    return inputs


def _grouped_case(case_id: str, lengths: tuple[int, ...], e: int, n: int, k: int, fmt: str, **kw: Any) -> Case:
    dims = {"T": sum(lengths), "E": e, "N": n, "K": k, "S": len(lengths)}
    return Case(case_id, dims, {}, {"weight": fmt}, extra={"lengths": lengths}, **kw)


@define_op(
    inputs=[
        Input("x", "T K", FLOATS, "activations, segment after segment"),
        Input("weight", "E N K", WEIGHTS, "one matrix per group", raw=True, in_blocks=True),
        Input("seg_indptr", "S+1", INDEX, "segment s is rows seg_indptr[s] .. seg_indptr[s+1] - 1"),
        Input("weight_indices", "S", INDEX, "which matrix a segment takes; its own number if absent", optional=True),
    ],
    results=[Result("y", "T N", "=x")],
    freedom=PRODUCT_FREEDOM,
    cases=lambda: [
        *(_grouped_case(f"small-{f}", (2, 0, 3), 3, 16, 256, f) for f in WEIGHTS),
        _grouped_case("indices", (1, 4, 2, 1), 3, 16, 64, "q8_0", given=("weight_indices",)),
        _grouped_case("empty", (0, 0), 2, 8, 32, "f16"),
        _grouped_case("moe-decode", (1, 1, 2, 1, 3), 8, 64, 576, "q4_0", given=("weight_indices",)),
    ],
    invariant_axes=("T",),
    check=_check_groups,
    make_inputs=_grouped_inputs,
    equivalents=segment_equivalents,
    operations=lambda x, weight, **_: 2 * x.shape[0] * weight.shape[-2] * weight.shape[-1],
    space=lambda: GROUPED_SPACE,
    smallest=-123,
)
def grouped_gemm(
    x: np.ndarray, weight: HostTensor, seg_indptr: np.ndarray, weight_indices: np.ndarray | None = None
) -> np.ndarray:
    """y[i] = x[i] @ weight[g]^T for every row i of a segment whose group is g."""
    num_rows = weight.shape[1]
    y = np.zeros((len(x), num_rows), np.float32)
    for segment in range(len(seg_indptr) - 1):
        start, stop = seg_indptr[segment], seg_indptr[segment + 1]
        group = segment if weight_indices is None else int(weight_indices[segment])
        if start < stop:
            y[start:stop] = matmul(x[start:stop], weight[group], "grouped_gemm")
    return y
