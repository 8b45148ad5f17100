"""Weights without columns: a sum of nothing is +0, so results are zeros or the bias, as the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_results import differences

from samebits.ops import OPS
from samebits.ops.record import Case

FORMATS = ("q4_k", "nvfp4")  # blocks of 256, and of 16
EXPERTS: dict[str, int] = {"T": 2, "R": 1, "E": 2, "P": 2, "X": 2, "N": 8, "K": 0, "NB": 0, "HB": 0}
CALLS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "gemm": ({"T": 1, "N": 16, "K": 0}, {}),
    "gemm_q8": ({"T": 1, "N": 16, "NB": 0}, {}),
    "gemm_silu_q8": ({"T": 1, "HB": 1, "NB": 0}, {}),
    "grouped_gemm": ({"T": 5, "E": 3, "N": 16, "K": 0, "S": 3}, {"lengths": (2, 0, 3)}),
    "head_gemm": ({"T": 3, "H": 2, "N": 24, "K": 0}, {}),
    "expert_gemm": (EXPERTS, {"chosen": "scattered"}),
    "expert_gemm_q8": (EXPERTS, {"chosen": "scattered"}),
    "expert_gate_q8": ({**EXPERTS, "N": 64, "HB": 1}, {"chosen": "scattered"}),
    "embedding": ({"V": 50, "K": 0, "T": 7}, {}),
}


def found(name: str, dims: dict[str, int], extra: dict[str, Any], format_name: str, **given: Any) -> list[str]:
    tensor = "table" if name == "embedding" else "weight"
    case = Case(f"no-columns-{format_name}", dims, {}, {tensor: format_name}, extra=extra, **given)
    with np.errstate(all="ignore"):
        return list(differences(OPS[name], case))


@pytest.mark.parametrize("name", CALLS)
def test_a_block_weight_without_columns_gives_zeros(name: str) -> None:
    assert found(name, *CALLS[name], "q4_0") == []


@pytest.mark.parametrize("format_name", FORMATS)
def test_blocks_of_every_size_give_zeros(format_name: str) -> None:
    assert found("gemm", *CALLS["gemm"], format_name) == []


@pytest.mark.parametrize("num_tokens", [1, 9, 40])  # by gemv, and by both forms of tiles
@pytest.mark.parametrize("name", ["gemm", "gemm_q8"])
def test_a_block_weight_without_columns_gives_the_bias(name: str, num_tokens: int) -> None:
    dims = {**CALLS[name][0], "T": num_tokens}
    assert found(name, dims, {}, "q4_0", given=("bias",)) == []
