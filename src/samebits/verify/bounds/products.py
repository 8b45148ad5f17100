"""Matrix products: sums of K terms in any order, of operands that a tensor core may take.

What `fast` leaves free beside the order of a float32 sum:
  float32 weights   both operands may lose all but 11 bits, as TF32 and float16 have them
  16-bit weights    x may be rounded to the weight's type, as the definition has it, or keep its bits
  block weights     x may be in int8 blocks, as the definition has it, or keep its bits; x and the weight's values may
                    be rounded to float16
Such roundings are independent of each other or the same everywhere; `rounded_terms` covers both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from samebits.core.format import BLOCK, HostTensor, Packed
from samebits.core.numerics.rounding import F32, narrow, widen
from samebits.ops.pairs import for_experts, pairs_per_row
from samebits.ops.quantize import int8_blocks
from samebits.verify.bounds.near import UNIT, Near, growth

SHORT = 2.0**-11  # half an ulp of a number of 11 bits: float16, TF32
DEVIATIONS = 3.0  # standard deviations of a sum of independent roundings; SAFETY doubles them
LOST = 2.0**-39  # of the largest operand: what float16 loses of small ones beside it, whatever power of two scales both


def rounded_terms(unit: float, squares: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the error of a sum whose terms are rounded by up to `unit`: all alike, or each by itself.

    squares  sum of squares of the terms
    """
    error: np.ndarray = unit * (DEVIATIONS * np.sqrt(squares) + np.abs(total))
    return error


def replaced_terms(rest: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return the error of a sum in which operands may keep what rounding took of them.

    rest     what the sum gains if all keep it
    squares  sum of squares of what each term gains: its root is more than a code beyond a tie moves
    """
    error: np.ndarray = np.abs(rest) + np.sqrt(squares)
    return error


def product(x: np.ndarray, weight: HostTensor) -> Near:
    """x [T, K] times weight [N, K]: [T, N]."""
    return _block_product(x, weight) if isinstance(weight, Packed) else _dense_product(x, weight)


def _dense_product(x: np.ndarray, weight: np.ndarray) -> Near:
    operand = widen(narrow(x, weight.dtype)).astype(np.float64)
    w = widen(weight).astype(np.float64).T
    value, squares = operand @ w, operand**2 @ w**2
    error = UNIT * growth(len(w)) * (np.abs(operand) @ np.abs(w))
    if weight.dtype == F32:
        return Near(value, error + rounded_terms(2**0.5 * SHORT, squares, value))
    rest = x - operand
    return Near(value, error + replaced_terms(rest @ w, rest**2 @ w**2) if rest.any() else error)


def _block_product(x: np.ndarray, weight: Packed) -> Near:
    blocks = x.reshape(len(x), x.shape[1] // BLOCK, BLOCK)
    codes, scales = int8_blocks(blocks, "bounds")
    operand = codes * scales[..., None].astype(np.float64)
    return _of_blocks(operand, weight, blocks - operand)


def product_q8(codes: np.ndarray, scales: np.ndarray, weight: Packed) -> Near:
    """Activations in int8 blocks, codes [T, K] and scales [T, K / 32], times weight [N, K]: [T, N]."""
    return _of_blocks(codes.reshape(*scales.shape, BLOCK) * scales[..., None].astype(np.float64), weight, None)


def _of_blocks(x: np.ndarray, weight: Packed, rest: np.ndarray | None) -> Near:
    """x [T, blocks, 32] times weight; `rest` is what the blocks lack of activations that a kernel may take instead.

    Offsets and scales of a block's values cancel inside it, so its largest value stands for all of them. That leaves
    room for the roundings of both operands.
    """
    num_tokens, num_blocks, _ = x.shape
    w = weight.unpack().astype(np.float64)
    largest = np.abs(w).reshape(len(w), num_blocks, BLOCK).max(axis=-1, initial=0.0).T
    flat, magnitudes = x.reshape(num_tokens, num_blocks * BLOCK), np.abs(x).sum(axis=-1)
    value, squares = flat @ w.T, (x**2).sum(axis=-1) @ largest**2
    error = UNIT * growth(flat.shape[1]) * (magnitudes @ largest) + rounded_terms(SHORT, squares, value)
    tops = np.abs(flat).max(axis=-1, initial=0.0)[:, None], largest.max(initial=0.0)
    error += LOST * (tops[0] * BLOCK * largest.sum(axis=0) + magnitudes.sum(axis=-1, keepdims=True) * tops[1])
    if rest is not None:
        gained = rest.reshape(flat.shape)
        error += replaced_terms(gained @ w.T, (rest**2).sum(axis=-1) @ largest**2)
    return Near(value, error)


def with_bias(y: Near, bias: np.ndarray | None) -> Near:
    return y.settled() if bias is None else y.settled() + Near.of(bias)


def gemm(x: np.ndarray, weight: HostTensor, bias: np.ndarray | None = None) -> tuple[Near]:
    return (with_bias(product(x, weight), bias),)


def gemm_q8(codes: np.ndarray, scales: np.ndarray, weight: Packed, bias: np.ndarray | None = None) -> tuple[Near]:
    return (with_bias(product_q8(codes, scales, weight), bias),)


def grouped_gemm(
    x: np.ndarray, weight: HostTensor, seg_indptr: np.ndarray, weight_indices: np.ndarray | None = None
) -> tuple[Near]:
    y = Near.of(np.zeros((len(x), weight.shape[1])))
    groups = np.arange(len(seg_indptr) - 1) if weight_indices is None else weight_indices
    for segment, group in enumerate(groups.tolist()):
        rows = slice(int(seg_indptr[segment]), int(seg_indptr[segment + 1]))
        if rows.start < rows.stop:
            part = product(x[rows], weight[group])
            y.value[rows], y.error[rows] = part.value, part.error
    return (y.settled(),)


def head_gemm(x: np.ndarray, weight: HostTensor) -> tuple[Near]:
    heads = [product(np.ascontiguousarray(x[:, h]), weight[h]) for h in range(x.shape[1])]
    if not heads:
        return (Near.of(np.zeros((len(x), 0, weight.shape[1]))),)
    values, errors = ([getattr(y, part) for y in heads] for part in ("value", "error"))
    return (Near(np.stack(values, axis=1), np.stack(errors, axis=1)).settled(),)


def by_pair(
    num_rows: int,
    weight: HostTensor,
    pairs: np.ndarray,
    seg_indptr: np.ndarray,
    bias: np.ndarray | None,
    multiply: Callable[[np.ndarray, HostTensor], Near],
) -> Near:
    """Every pair's product with its expert's matrix: [P, N]. multiply(rows, matrix) is that of some rows."""
    y = Near.of(np.zeros((len(pairs), weight.shape[1])))
    share = pairs_per_row(num_rows, len(pairs))
    for expert, mine in for_experts(pairs, seg_indptr):
        part = with_bias(multiply(mine // share, weight[expert]), None if bias is None else bias[expert])
        y.value[mine], y.error[mine] = part.value, part.error
    return y


def expert_gemm(
    x: np.ndarray, weight: HostTensor, pairs: np.ndarray, seg_indptr: np.ndarray, bias: np.ndarray | None = None
) -> tuple[Near]:
    return (by_pair(len(x), weight, pairs, seg_indptr, bias, lambda rows, w: product(x[rows], w)),)


def expert_gemm_q8(
    codes: np.ndarray,
    scales: np.ndarray,
    weight: Packed,
    pairs: np.ndarray,
    seg_indptr: np.ndarray,
    bias: np.ndarray | None = None,
) -> tuple[Near]:
    def multiply(rows: np.ndarray, w: HostTensor) -> Near:
        return product_q8(codes[rows], scales[rows], w)  # type: ignore[arg-type]

    return (by_pair(len(codes), weight, pairs, seg_indptr, bias, multiply),)
