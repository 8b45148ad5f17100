"""What a checkpoint holds, on its way to kernels: settled, and refused where no op could compute with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.settling import unsettled
from samebits.core.shapes import TensorSpec
from samebits.engine.weights import load_weight
from samebits.formats import MXFP4, NVFP4, Q8_0

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


def load(name: str, shape: tuple[int, ...] = (), joined: tuple[str, ...] = (), **tensors: HostTensor) -> Any:
    """A weight of a checkpoint that holds these tensors; `shape` is that of joined ones."""
    checkpoint: Any = SimpleNamespace(config=SimpleNamespace(ropes={}), tensor=tensors.__getitem__)
    return load_weight(checkpoint, name, TensorSpec(shape, "f32"), {name: joined} if joined else {})


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_are_settled_and_the_file_is_left_alone(dtype: Any) -> None:
    stored = np.array([[1, -0.0, 2.0**-24], [-1, 0, 3]], dtype)
    if dtype is not np.float16:
        stored[1, 1] = 2.0**-51
    stored.flags.writeable = False  # as a mapped file is
    loaded = load("w", w=stored)
    assert not unsettled(loaded).any()
    assert loaded.astype(np.float32).tolist() == [[1, 0, 2.0**-24], [-1, 0, 3]]
    clean = np.ones((2, 2), dtype)
    assert load("w", w=clean) is clean


def test_joined_weights_are_settled() -> None:
    parts = {"a": np.array([[-0.0, 1]], np.float32), "b": np.array([[2, 2.0**-60]], np.float32)}
    assert load("ab", (2, 2), ("a", "b"), **parts).view(np.uint32)[:, 0].tolist() == [0, 0x40000000]


def test_rows_of_stacked_experts_are_joined_expert_by_expert() -> None:
    a, b = (np.random.default_rng(i).standard_normal((3, rows, 32)).astype(np.float32) for i, rows in ((1, 2), (2, 5)))
    want = np.concatenate([a, b], axis=1)
    assert np.array_equal(load("ab", (3, 7, 32), ("a", "b"), a=a, b=b), want)
    packed = load("ab", (3, 7, 32), ("a", "b"), a=Q8_0.pack(a), b=Q8_0.pack(b))
    assert packed.shape == want.shape
    assert np.array_equal(packed.data, Q8_0.pack(want).data)
    biases = load("ab", (3, 7), ("a", "b"), a=a[..., 0], b=b[..., 0])
    assert np.array_equal(biases, want[..., 0])


@pytest.mark.parametrize(("scale", "shown"), [(255, "NaN"), (254, r"2\^127"), (168, r"2\^41")])
def test_a_scale_of_mxfp4_that_terms_do_not_allow_is_refused_by_name(scale: int, shown: str) -> None:
    packed = MXFP4.pack(np.ones((2, 3, 64), np.float32))
    packed.data[1, 2, 17] = 167
    assert load("w", w=packed) is packed
    packed.data[1, 2, 17] = scale
    with pytest.raises(BadInput, match=rf"^w has a block scale of {shown}, but must have up to 2\^40$"):
        load("w", w=packed)


@pytest.mark.parametrize("scale", [0x7F, 0xFF])
def test_a_scale_of_nvfp4_that_is_nan_is_refused_by_name(scale: int) -> None:
    packed = NVFP4.pack(np.ones((2, 3, 64), np.float32))
    assert load("w", w=packed) is packed
    packed.data[1, 2, 9] = scale
    with pytest.raises(BadInput, match=r"^w has a block scale of NaN, but must have numbers$"):
        load("w", w=packed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 2.0**64])
def test_a_value_that_products_do_not_allow_is_refused_by_name(dtype: Any, wrong: float) -> None:
    with np.errstate(over="ignore"):
        stored = np.array([[1, wrong]], np.float64).astype(np.float32).astype(dtype)
    if wrong == 2.0**64 and dtype is np.float32:
        assert load("w", w=stored) is stored  # float32 goes further
        return
    with pytest.raises(BadInput, match=r"^w has NaN, Inf or a value beyond the type's range, but must have finite"):
        load("w", w=stored)
