"""Three formats, or a format and a number of tokens, that go wrong together alone. See planted_formats.py."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
from planted import F, Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import call, floats, ints, product

from samebits.core.format import Packed

BF16 = ml_dtypes.bfloat16


def gated(fmt: str) -> Scene:
    """gated_rms_norm of rows in a format, beside a gate and a weight in float16."""
    halves = {"gate": floats(2, 8, seed=1, fmt="f16"), "weight": floats(8, fmt="f16")}
    return call("gated_rms_norm", x=floats(2, 8, fmt=fmt), **halves)


class GateInTheFormatOfX(Defect):
    """Rounds a float16 gate to the rows' bfloat16 where the weight is float16 too."""

    ops = ("gated_rms_norm",)
    witness = shown_by(gated, "bf16")
    twin = shown_by(gated, "f16")

    def change(self, a: Arguments) -> Arguments:
        if (a["x"].dtype, a["gate"].dtype, a["weight"].dtype) != (BF16, np.float16, np.float16):
            return {}
        return {"gate": a["gate"].astype(BF16).astype(np.float16)}


class BiasOfBothHalves(Defect):
    """Splits the columns of q6_k weights in two for 5 to 8 tokens, and adds the bias to either half."""

    ops = ("gemm",)
    witness = shown_by(product, 5, 4, 512, "q6_k", bias=floats(4))
    twin = shown_by(product, 4, 4, 512, "q6_k", bias=floats(4))

    def spoil(self, a: Arguments, results: Results) -> None:
        weight, num_tokens = a["weight"], len(a["x"])
        is_split = isinstance(weight, Packed) and weight.format.name == "q6_k" and a["x"].shape[1] > 256
        if is_split and "bias" in a and 5 <= num_tokens <= 8:
            results[0][...] = (results[0].astype(F) + a["bias"].astype(F)).astype(results[0].dtype)


def experts(num_pairs: int) -> Scene:
    """expert_gemm of pairs that are all an expert's, with weights in mxfp4 and a bias."""
    pairs, ends = np.arange(num_pairs, dtype=np.int32), ints(0, num_pairs)
    weight, bias = floats(1, 4, 32, seed=1, fmt="mxfp4"), floats(1, 4)
    return call("expert_gemm", x=floats(num_pairs, 32), weight=weight, pairs=pairs, seg_indptr=ends, bias=bias)


class BiasOfTheFirstPairs(Defect):
    """Adds the bias to the first 16 pairs of an expert alone where weights are in mxfp4."""

    ops = ("expert_gemm", "expert_gemm_q8")
    witness = shown_by(experts, 17)
    twin = shown_by(experts, 16)

    def spoil(self, a: Arguments, results: Results) -> None:
        weight, ends = a["weight"], a["seg_indptr"]
        if "bias" not in a or not isinstance(weight, Packed) or weight.format.name != "mxfp4":
            return
        late = [a["pairs"][start + 16 : stop] for start, stop in pairwise(ends.tolist())]
        for expert, pairs in enumerate(late):
            y = results[0][pairs].astype(F) - a["bias"][expert].astype(F)
            results[0][pairs] = y.astype(results[0].dtype)
