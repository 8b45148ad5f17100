"""Weights are rearranged once at load as the chosen kernels ask, and the bits stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samebits import LLM
from samebits.backends.discovery import Found
from samebits.backends.reference import ReferenceBackend, reference_kernels
from samebits.core.errors import Unsupported
from samebits.engine.engine import Engine
from samebits.engine.runner import Runner
from samebits.kernels.record import KernelTable
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts import Limits

LIMITS = Limits(max_tokens=64, max_sequences=1, num_pages=8, max_positions=128)
TOKENS = [5, 6, 7, 8, 9] * 4


class Prepacking(ReferenceBackend):
    """rms_norm and its fused forms keep their weights backwards, and read them so."""

    name = "prepacking"
    ops = ("rms_norm", "fused_add_rms_norm", "add_rms_norm_q8")
    packed_input = "weight"
    num_packed = 0

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("numpy")
        for kernel in reference_kernels():
            changed = (
                replace(kernel, prepack={self.packed_input: self.pack}, run=self.turned(kernel.run))
                if kernel.op.name in self.ops
                else kernel
            )
            table.add(changed)
        return (table,)

    def pack(self, tensor: np.ndarray) -> np.ndarray:
        type(self).num_packed += 1
        return tensor[::-1].copy()

    @staticmethod
    def turned(run: Any) -> Any:
        def call(**arguments: Any) -> Any:
            return run(**{**arguments, "weight": arguments["weight"][::-1].copy()})

        call.__name__ = run.__name__
        return call


class Disagreeing(Prepacking):
    """Only one of two kernels that read the embedding packs it."""

    name = "disagreeing"
    ops = ("embedding",)
    packed_input = "table"


def load(path: Path, backend: ReferenceBackend) -> Runner:
    return Runner(open_checkpoint(path), Found(backend.name, "test", backend, backend.probe()), LIMITS)


def test_weights_are_packed_once_each_and_the_bits_stay(tiny: LLM, tiny_path: Path) -> None:
    Prepacking.num_packed = 0
    model = load(tiny_path, Prepacking())
    assert Prepacking.num_packed == 5  # two norms a layer, two layers, and the last
    engine = Engine(model)
    for _ in range(2):
        job = engine.score(TOKENS)
        engine.complete(job)
        assert job.score().logits_sha256 == tiny.score(TOKENS).logits_sha256
    assert Prepacking.num_packed == 5


def test_kernels_that_disagree_on_a_tied_table_are_refused(tiny_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"disagreeing: .* want embed packed differently"):
        load(tiny_path, Disagreeing())
