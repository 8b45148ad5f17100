"""Support is read from kernels: order of preference, reasons, tiers, and no sight of a batch size."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.backends.interface import Caps
from samebits.backends.reference import ReferenceBackend
from samebits.backends.support import candidates, check_tier, choose_kernel, hide_batch, strongest_tier
from samebits.core.errors import Unsupported
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.record import KernelTable, OpCall
from samebits.ops import OPS, bind

GEMM = OPS["gemm"]
SPECS = {"x": TensorSpec((5, 64), "f32"), "weight": TensorSpec((8, 64), "f16")}


class TwoKernels(ReferenceBackend):
    """A fast kernel for wide matrices only, then a portable one for f32 weights."""

    name = "two"

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("toy")

        @table.implements(
            "gemm", tier=Tier.FAST, when=lambda r: None if r.inputs["weight"].shape[0] >= 64 else "N below 64"
        )
        def wide(x, weight, bias=None):
            return (x,)

        @table.implements(
            "gemm", tier=Tier.PORTABLE, when=lambda r: None if r.inputs["weight"].format == "f32" else "f32 only"
        )
        def exact(x, weight, bias=None):
            return (x,)

        return (table,)


def call(tier: Tier, n: int = 8, fmt: str = "f16") -> OpCall:
    return OpCall(GEMM, {**SPECS, "weight": TensorSpec((n, 64), fmt)}, {}, tier)


def test_the_first_kernel_that_agrees_is_taken_and_the_others_say_why() -> None:
    backend = TwoKernels()
    assert candidates(backend, call(Tier.FAST, n=64))[0].run.__name__ == "wide"
    kernel, reasons = candidates(backend, call(Tier.FAST, fmt="f32"))
    assert kernel.run.__name__ == "exact"
    assert reasons == ["N below 64"]
    assert candidates(backend, call(Tier.PORTABLE, n=64))[1] == ["toy/wide claims only fast", "f32 only"]


def test_a_request_nobody_serves_is_refused_with_every_reason() -> None:
    with pytest.raises(
        Unsupported, match=r"two: gemm\(x: f32, weight: f16\) at invariant: toy/wide claims only fast; f32 only"
    ):
        choose_kernel(TwoKernels(), GEMM, SPECS, {}, Tier.INVARIANT)
    with pytest.raises(Unsupported, match="two has no kernel for add"):
        choose_kernel(TwoKernels(), OPS["add"], {"x": SPECS["x"], "y": SPECS["x"]}, {}, Tier.FAST)


def test_batch_sizes_are_symbols_to_a_kernel() -> None:
    hidden = hide_batch(GEMM, SPECS)
    assert hidden["x"].shape == (Sym("T", 5), 64)
    assert hidden["weight"].shape == (8, 64)
    norm = hide_batch(OPS["rms_norm"], {"x": TensorSpec((2, 3, 64), "f32")})
    assert norm["x"].shape == (Sym("...", 2), Sym("...", 3), 64)


def test_strongest_tier_respects_what_the_probe_refuted() -> None:
    backend = ReferenceBackend()
    sound = Caps("x")
    contracts = Caps("x", refuted={Tier.PORTABLE: "contracts sums"})
    assert strongest_tier(backend, sound, GEMM, SPECS, {}) is Tier.PORTABLE
    assert strongest_tier(backend, contracts, GEMM, SPECS, {}) is Tier.INVARIANT
    assert strongest_tier(TwoKernels(), sound, GEMM, SPECS, {}) is None
    with pytest.raises(Unsupported, match="reference cannot keep portable: contracts sums"):
        check_tier(backend, contracts, Tier.PORTABLE)


def test_a_kernel_whose_parameters_are_not_the_ops_fails_at_import() -> None:
    table = KernelTable("toy")
    with pytest.raises(TypeError, match="parameters must be those of gemm"):

        @table.implements("gemm", tier=Tier.FAST)
        def wrong(x, w):
            return (x,)


def test_the_reference_serves_every_op_at_every_tier() -> None:
    for op in OPS:
        for tier in (Tier.FAST, Tier.INVARIANT, Tier.PORTABLE):
            assert candidates(ReferenceBackend(), OpCall(op, {}, {}, tier))[0] is not None


def test_bound_calls_know_their_result_specs() -> None:
    bound = bind(GEMM, np.zeros((5, 64), np.float16), np.zeros((8, 64), np.float16))
    assert [str(s) for s in bound.result_specs()] == ["f16[5, 8]"]
