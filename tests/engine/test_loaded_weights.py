"""What a checkpoint holds, on its way to kernels: settled, and refused where no op could compute with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from samebits.core.errors import BadInput
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.settling import unsettled
from samebits.core.shapes import TensorSpec
from samebits.engine.weights import load_weight
from samebits.formats import Q4_0

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


def load(
    name: str, joined: dict[str, tuple[str, ...]] | None = None, shape: tuple[int, ...] = (1,), **tensors: Any
) -> Any:
    """A weight of a checkpoint that holds these tensors; a joined one is of this shape."""
    checkpoint: Any = SimpleNamespace(config=SimpleNamespace(ropes={}), tensor=tensors.__getitem__)
    return load_weight(checkpoint, name, TensorSpec(shape, "f32"), joined or {})


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
    assert load("ab", {"ab": ("a", "b")}, (2, 2), **parts).view(np.uint32)[:, 0].tolist() == [0, 0x40000000]


def test_stacked_weights_are_joined_matrix_by_matrix() -> None:
    values = Stream("stacked").normal((4, 6, 32))
    parts = {"gate": Q4_0.pack(values[:, :4]), "up": Q4_0.pack(values[:, 4:])}
    joined = load("both", {"both": ("gate", "up")}, (4, 6, 32), **parts)
    assert joined.shape == (4, 6, 32)
    assert (joined.data == Q4_0.pack(values).data).all()
    biases = {"gate": values[:, 0, :8], "up": values[:, 0, 8:]}
    assert (load("both", {"both": ("gate", "up")}, (4, 32), **biases) == values[:, 0]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 2.0**64])
def test_a_value_that_products_do_not_allow_is_refused_by_name(dtype: Any, wrong: float) -> None:
    with np.errstate(over="ignore"):
        stored = np.array([[1, wrong]], np.float64).astype(np.float32).astype(dtype)
    if wrong == 2.0**64 and dtype is np.float32:
        assert load("w", w=stored) is stored  # float32 goes further
        return
    with pytest.raises(BadInput, match=r"^model: w: got NaN, Inf or a value beyond the type's range; needs finite"):
        load("w", w=stored)
