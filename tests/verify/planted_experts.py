"""Products with experts: defects of shared activations, segments, and what belongs to which expert."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from planted import Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_runs import KeptInput
from planted_scenes import blocks, call, floats, ints, repeated

from samebits.ops.expert_cases import laid_out
from samebits.ops.expert_equivalents import choices, num_pairs, num_rows
from samebits.ops.pairs import for_experts

ON_CODES = ("expert_gemm_q8", "expert_gate_q8")
PRODUCTS = ("expert_gemm", *ON_CODES)


def rows(*ids: tuple[int, ...]) -> np.ndarray:
    return np.array(ids, np.int32)


def experts(op_name: str, ids: np.ndarray, num_experts: int = 4, per_pair: bool = False, **more: Any) -> Scene:
    """A product of tokens that choose these experts [T, R]; `more` may hold a bias and attrs."""
    num = ids.size if per_pair else len(ids)
    given = {"x": floats(num, 32)} if op_name == "expert_gemm" else blocks(num, 32)
    outputs = 64 if op_name == "expert_gate_q8" else 16
    weight = floats(num_experts, outputs, 32, seed=1, fmt="q8_0")
    return call(op_name, **given, weight=weight, **laid_out(ids, num_experts), **more)


TWO, ONE = rows((0, 2), (1, 3), (2, 0)), rows((0, 2))


class StaleActivation(Defect):
    """Multiplies the codes of the row before by the scales of the row itself."""

    ops = ON_CODES
    witness = shown_by(experts, "expert_gemm_q8", TWO)
    twin = shown_by(experts, "expert_gemm_q8", ONE)

    def change(self, a: Arguments) -> Arguments:
        return {"codes": np.concatenate([a["codes"][:1], a["codes"][:-1]])[: len(a["codes"])]}


class CodesKeptFromTheFirstStep(KeptInput):
    """Keeps the int8 codes of the first run."""

    ops, argument = ON_CODES, "codes"
    witness = shown_by(lambda: repeated(experts("expert_gemm_q8", TWO), blocks(3, 32, size=2.0), {"codes": CODES}))
    twin = shown_by(lambda: repeated(experts("expert_gemm_q8", TWO), blocks(3, 32)))


CODES = blocks(6, 32)["codes"][3:].copy()


class RowByRemainder(Defect):
    """Reads row p mod X for pair p where a token's pairs share a row, instead of the token's row."""

    ops = PRODUCTS
    witness = shown_by(experts, "expert_gemm", TWO)
    twin = shown_by(experts, "expert_gemm", TWO, per_pair=True)

    def change(self, a: Arguments) -> Arguments:
        taken = np.arange(num_pairs(a)) % max(num_rows(a), 1)
        return {name: a[name][taken] for name in ("x", "codes", "scales") if a.get(name) is not None}


class FirstRankForAll(Defect):
    """Uses a token's first expert for all its ranks."""

    ops = ("expert_gate_q8",)
    witness = shown_by(experts, "expert_gate_q8", TWO)
    twin = shown_by(experts, "expert_gate_q8", rows((0,), (3,), (1,)))

    def change(self, a: Arguments) -> Arguments:
        if not num_rows(a):
            return {}
        chosen = choices(a)
        return laid_out(np.repeat(chosen[:, :1], chosen.shape[1], axis=1), len(a["seg_indptr"]) - 1)


class EmptyExpertsNotCounted(Defect):
    """Numbers only the experts that have pairs: after one without, weights are another expert's."""

    ops = PRODUCTS
    witness = shown_by(experts, "expert_gemm_q8", rows((0, 2), (3, 2)))
    twin = shown_by(experts, "expert_gemm_q8", rows((0, 1), (3, 2)))

    def change(self, a: Arguments) -> Arguments:
        used = [e for e, _ in for_experts(a["pairs"], a["seg_indptr"])]
        order = np.arange(a["weight"].shape[0])
        order[used] = np.arange(len(used))
        return {"weight": a["weight"][order]}


class BeyondATileOfPairs(Defect):
    """Leaves out the pairs of an expert that do not fill a further tile of 16."""

    ops = ("expert_gemm", "expert_gemm_q8")
    witness = shown_by(experts, "expert_gemm", np.ones((17, 1), np.int32))
    twin = shown_by(experts, "expert_gemm", np.ones((16, 1), np.int32))

    def spoil(self, a: Arguments, results: Results) -> None:
        for _, mine in for_experts(a["pairs"], a["seg_indptr"]):
            if len(mine) > 16:
                results[0][mine[len(mine) - len(mine) % 16 :]] = 0


class ResultsInOrderOfSegments(Defect):
    """Writes results expert by expert, instead of in the order of the pairs."""

    ops = ("expert_gemm", "expert_gemm_q8")
    witness = shown_by(experts, "expert_gemm", TWO)
    twin = shown_by(experts, "expert_gemm", rows((0, 1), (1, 3), (3, 3)))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][:] = results[0][a["pairs"]]


class BiasOfTheFirstExpert(Defect):
    """Adds the first expert's bias for all experts."""

    ops = PRODUCTS
    witness = shown_by(experts, "expert_gemm", TWO, bias=floats(4, 16, seed=2))
    twin = shown_by(experts, "expert_gemm", rows((0,), (0,)), bias=floats(4, 16, seed=2))

    def change(self, a: Arguments) -> Arguments:
        bias = a.get("bias")
        return {} if bias is None else {"bias": np.repeat(bias[:1], len(bias), axis=0)}


class GateOfOneActivation(Defect):
    """Always computes silu, whatever activation the call names."""

    ops = ("expert_gate_q8",)
    witness = shown_by(experts, "expert_gate_q8", TWO, activation="gelu_tanh")
    twin = shown_by(experts, "expert_gate_q8", TWO)

    def change(self, a: Arguments) -> Arguments:
        return {"activation": "silu" if a["activation"] == "gelu_tanh" else a["activation"]}


class ClampOfGptOss(Defect):
    """Uses one model's alpha and limit, whatever the call says."""

    ops = ("expert_gate_q8", "clamped_swiglu")
    witness = shown_by(experts, "expert_gate_q8", TWO, activation="clamped", limit=0.5)
    twin = shown_by(experts, "expert_gate_q8", TWO, activation="clamped")

    def change(self, a: Arguments) -> Arguments:
        return {"alpha": 1.702, "limit": 7.0}


class LayoutBackwards(Defect):
    """Lists each expert's pairs from the last to the first."""

    ops = ("expert_layout",)
    witness = shown_by(call, "expert_layout", expert_ids=rows((0, 1), (1, 2)), num_experts=4)
    twin = shown_by(call, "expert_layout", expert_ids=rows((0, 1), (3, 2)), num_experts=4)

    def spoil(self, a: Arguments, results: Results) -> None:
        pairs, ends = results
        for start, stop in pairwise(ends):
            pairs[start:stop] = pairs[start:stop][::-1].copy()


class PairsCountedInOneByte(Defect):
    """Counts an expert's pairs in one byte."""

    ops = ("expert_layout",)
    witness = shown_by(call, "expert_layout", expert_ids=np.zeros((256, 1), np.int32), num_experts=2)
    twin = shown_by(call, "expert_layout", expert_ids=np.zeros((255, 1), np.int32), num_experts=2)

    def spoil(self, a: Arguments, results: Results) -> None:
        results[1][:] = np.cumsum([0, *(np.diff(results[1]) & 255)])


class LastExpertAlwaysThere(Defect):
    """Ends the last segment one pair early if the expert before the last has none."""

    ops = ("expert_layout",)
    witness = shown_by(call, "expert_layout", expert_ids=ints(0, 2)[:, None], num_experts=3)
    twin = shown_by(call, "expert_layout", expert_ids=ints(1, 2)[:, None], num_experts=3)

    def spoil(self, a: Arguments, results: Results) -> None:
        ends = results[1]
        if len(ends) > 2 and ends[-2] == ends[-3] and ends[-1] > ends[-2]:
            ends[-1] -= 1
