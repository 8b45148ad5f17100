"""The dimension language, tiers, registry and operands: the small parts everything leans on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import samebits.formats  # noqa: F401 whose formats a spec names
from samebits.core.errors import BadInput, UnknownName
from samebits.core.format import spec_bytes
from samebits.core.numerics.rounding import as_operand, narrow
from samebits.core.registry import Registry
from samebits.core.shapes import Sym, TensorSpec, build_shape, describe, match_shape
from samebits.core.tiers import Tier

F = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("dims", "shape", "env"),
    [
        ("T K", (3, 4), {"T": 3, "K": 4}),
        ("... K", (2, 3, 4), {"...": (2, 3), "K": 4}),
        ("... K", (4,), {"...": (), "K": 4}),
        ("B+1", (5,), {"B": 4}),
        ("... 2*H", (2, 6), {"...": (2,), "H": 3}),
        ("P 2 K", (7, 2, 3), {"P": 7, "K": 3}),
        ("T K", (Sym("t", 8), 4), {"T": Sym("t", 8), "K": 4}),
    ],
)
def test_match_binds_and_build_gives_it_back(dims: str, shape: tuple, env: dict) -> None:
    bound: dict = {}
    assert match_shape(dims, shape, bound)
    assert bound == env
    assert build_shape(dims, bound) == shape


@pytest.mark.parametrize(
    ("dims", "shape"), [("T K", (3,)), ("2*H", (3,)), ("B+1", (0,)), ("P 2", (1, 3)), ("T T", (1, 2))]
)
def test_what_does_not_fit(dims: str, shape: tuple) -> None:
    assert not match_shape(dims, shape, {})


def test_names_agree_across_tensors() -> None:
    env: dict = {"K": 4}
    assert not match_shape("N K", (3, 5), env)
    assert describe("N K", {"K": 4}) == "[N, K=4]"
    assert describe("B+1", {"B": 4}) == "[B+1, B=4]"


def test_tiers_order_and_parse() -> None:
    assert Tier.FAST < Tier.INVARIANT < Tier.PORTABLE
    assert Tier.parse("Portable") is Tier.PORTABLE
    with pytest.raises(BadInput, match="'exact', but must be one of fast, invariant, portable"):
        Tier.parse("exact")


def test_registry_refuses_duplicates_and_names_what_it_knows() -> None:
    registry: Registry[int] = Registry("thing")
    registry.add("a", 1, aliases=("b",))
    assert registry["b"] == 1
    assert registry.names() == ["a"]
    with pytest.raises(ValueError, match="'b' is registered twice"):
        registry.add("b", 2)
    with pytest.raises(UnknownName, match="unknown thing 'c'; known: a"):
        registry["c"]


def test_of_very_many_names_the_nearest_few_are_listed() -> None:
    registry: Registry[int] = Registry("case")
    for n in range(100):
        registry.add(f"prompt-{n}", n)
    with pytest.raises(UnknownName) as caught:
        registry["promt-37"]
    message = str(caught.value)
    assert message.startswith("unknown case 'promt-37'; of 100 known ones the nearest are prompt-37, ")
    assert message.count("prompt-") == 8


def test_narrow_rounds_to_nearest_even_with_gradual_underflow() -> None:
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, 2**-25, 3 * 2**-25, 65520, 2**-24], F)
    want = np.array([1, 1 + 2**-9, 0, 2**-23, np.inf, 2**-24], np.float16)
    assert narrow(x, np.dtype(np.float16)).tobytes() == want.tobytes()
    assert narrow(np.array([1 + 2**-8, 1 + 3 * 2**-8], F), BF16).tolist() == [1.0, 1.015625]


@pytest.mark.parametrize(
    ("value", "dtype"), [(2.0**64, BF16), (1e5, np.dtype(np.float16)), (np.nan, BF16), (np.inf, np.dtype(F))]
)
def test_operands_out_of_range_are_refused(value: float, dtype: np.dtype) -> None:
    with pytest.raises(BadInput, match="op: x has NaN, Inf or a value beyond"):
        as_operand(np.array([value], F), dtype, "op", "x")


def test_a_spec_at_its_bounds_and_at_the_sizes_of_a_step() -> None:
    spec = TensorSpec((Sym("B", 4, plus=1), 64), "q4_0")
    assert (spec.upper_shape, spec.num_elements, spec_bytes(spec)) == ((5, 64), 320, 5 * 2 * 18)
    assert spec.at({"B": 2}) == TensorSpec((3, 64), "q4_0")
    assert spec_bytes(TensorSpec((), "f32")) == 4
    assert all(spec.takes(TensorSpec((rows, 64), "q4_0")) for rows in (0, 5))
    others = [TensorSpec((6, 64), "q4_0"), TensorSpec((5, 32), "q4_0"), TensorSpec((5, 64), "f32")]
    assert not any(spec.takes(other) for other in (*others, TensorSpec((64,), "q4_0")))
