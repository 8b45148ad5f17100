"""States in slots: defects of rings, carries, boundaries, gates, and of who owns which slot."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
from planted import Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import call, floats, ints

from samebits.ops import OPS, make_inputs
from samebits.ops.slots import CHUNK, Run, runs
from samebits.verify.select import find_case

RECURRENT = ("gated_delta_rule", "ssm_scan")
IN_SLOTS = ("causal_conv", *RECURRENT)


def batch(op_name: str, case_id: str, **given: Any) -> Scene:
    """A named case of an op in slots, with other inputs where they are given."""
    op = OPS[op_name]
    case = next(c for c in op.cases if c.id == case_id)
    inputs = make_inputs(op, case)
    filled = {n: np.full_like(inputs[n], value) if np.isscalar(value) else value for n, value in given.items()}
    return call(op_name, **{**inputs, **filled})


def runs_of(a: Arguments) -> list[Run]:
    return runs(a["qo_indptr"], a["positions"], a["slots"])


class StaleRing(Defect):
    """Leaves a sequence's last token out of the ring."""

    ops = RECURRENT
    witness = shown_by(batch, "gated_delta_rule", "decode")
    twin = shown_by(batch, "gated_delta_rule", "page")

    def spoil(self, a: Arguments, results: Results) -> None:
        for run in runs_of(a):
            if run.stop % CHUNK:
                results[2][run.slot, run.stop % CHUNK - 1] = 0


class BoundaryOneLate(Defect):
    """Updates the stored state one position after the chunk boundary."""

    ops = IN_SLOTS
    witness = shown_by(batch, "ssm_scan", "decode")
    twin = shown_by(batch, "ssm_scan", "prompt")

    def change(self, a: Arguments) -> Arguments:
        positions = a["positions"].copy()
        for run in runs_of(a):
            positions[run.rows] -= run.first > 1
        return {"positions": positions}


class GateByAnotherFormula(Defect):
    """Computes the decay's softplus by another formula than the definition's."""

    ops = RECURRENT
    witness = shown_by(batch, "gated_delta_rule", "prompt")
    twin = shown_by(batch, "gated_delta_rule", "prompt", a=40.0, dt_bias=0.0)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        module = "delta" if op_name == "gated_delta_rule" else "ssm"
        with patch(f"samebits.ops.{module}.softplus", lambda x: np.logaddexp(np.float32(0), x)):
            return super().kernel(op_name, arguments)


class TiledTakenForGrouped(Defect):
    """Lets neighbouring heads of v share a key where the call says that heads share keys in turn."""

    ops = ("gated_delta_rule",)
    witness = shown_by(batch, "gated_delta_rule", "tiled")
    twin = shown_by(batch, "gated_delta_rule", "mixed")

    def change(self, a: Arguments) -> Arguments:
        return {"v_heads": "grouped"}


class StartsFromMemory(Defect):
    """Starts a new sequence from what its slot held before, instead of from zeros."""

    ops = IN_SLOTS
    witness = shown_by(batch, "causal_conv", "first")
    twin = shown_by(batch, "causal_conv", "resumed")

    def change(self, a: Arguments) -> Arguments:
        positions = a["positions"].copy()
        for run in runs_of(a):
            positions[run.rows] += CHUNK * (run.first == 0)
        return {"positions": positions}


class OnlyTheFirstNewStateIsCleared(Defect):
    """Starts the first new sequence of a batch from zeros, and each further one from what its slot held before."""

    ops = IN_SLOTS
    witness = shown_by(batch, "causal_conv", "page", positions=np.tile(np.arange(16, dtype=np.int32), 2))
    twin = shown_by(batch, "causal_conv", "mixed")

    def change(self, a: Arguments) -> Arguments:
        positions = a["positions"].copy()
        for run in [run for run in runs_of(a) if run.first == 0][1:]:
            positions[run.rows] += CHUNK
        return {"positions": positions}


class SlotsInOrder(Defect):
    """Uses a sequence's number in the batch as the number of its slot."""

    ops = IN_SLOTS
    witness = shown_by(batch, "ssm_scan", "decode")
    twin = shown_by(batch, "ssm_scan", "first", slots=0)

    def change(self, a: Arguments) -> Arguments:
        return {"slots": np.arange(len(a["slots"]), dtype=np.int32)}


class CarryInBfloat16(Defect):
    """Keeps the last inputs of a convolution in bfloat16."""

    ops = ("causal_conv",)
    witness = shown_by(batch, "causal_conv", "first")
    twin = shown_by(batch, "causal_conv", "first", x=1.5)

    def spoil(self, a: Arguments, results: Results) -> None:
        for run in runs_of(a):
            carry = results[1][run.slot, 0]
            carry[:] = carry.astype(ml_dtypes.bfloat16)


class BoundaryCarryForgotten(Defect):
    """Does not keep the inputs of a convolution from before the last chunk boundary."""

    ops = ("causal_conv",)
    witness = shown_by(batch, "causal_conv", "prompt")
    twin = shown_by(batch, "causal_conv", "first")

    def spoil(self, a: Arguments, results: Results) -> None:
        for run in runs_of(a):
            if run.stop - run.stop % CHUNK > run.first:
                results[1][run.slot, 1] = 0


class LastSlotNotCopied(Defect):
    """Copies one slot less than the call asks for."""

    ops = ("copy_slots",)
    witness = shown_by(call, "copy_slots", state=floats(4, 8), sources=ints(0, 1), targets=ints(2, 3))
    twin = shown_by(call, "copy_slots", state=floats(4, 8), sources=ints(0, 1)[:0], targets=ints(2, 3)[:0])

    def change(self, a: Arguments) -> Arguments:
        return {"sources": a["sources"][:-1], "targets": a["targets"][:-1]}


def drawn(op_name: str, row: str) -> Scene:
    """A row of the space of an op."""
    op = OPS[op_name]
    return call(op_name, **make_inputs(op, find_case(op, row)))


class ChunksInOneByte(Defect):
    """Counts the chunks of a call in one byte: of a sequence, tokens behind the first 256 chunks stay zero."""

    ops = ("causal_conv", *RECURRENT)
    witness = shown_by(drawn, "causal_conv", "batch=library,C=2,bias=given")
    twin = shown_by(drawn, "causal_conv", "batch=book,C=2,bias=given")

    def spoil(self, a: Arguments, results: Results) -> None:
        for run in runs_of(a):
            results[0][run.rows][256 * CHUNK :] = 0


class SecondBoundaryForgotten(Defect):
    """Stores no state for a new sequence of two chunks or more beside another new one."""

    ops = ("ssm_scan",)
    witness = shown_by(drawn, "ssm_scan", "batch=prompts,S=4,P=4")
    twin = shown_by(batch, "ssm_scan", "prompt")

    def spoil(self, a: Arguments, results: Results) -> None:
        new = [run for run in runs_of(a) if run.first == 0]
        for run in new if len(new) > 1 else ():
            if run.stop >= 2 * CHUNK:
                results[1][run.slot] = 0
