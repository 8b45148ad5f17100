"""What a checkpoint holds, on its way to kernels: settled, and refused where no op could compute with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from samebits.core.errors import BadInput
from samebits.core.numerics.settling import unsettled
from samebits.engine.weights import load_weight

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


def checkpoint(offset: float = 0.0, **tensors: np.ndarray) -> Any:
    return SimpleNamespace(hyperparameters=SimpleNamespace(norm_weight_offset=offset), tensor=tensors.__getitem__)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_are_settled_and_the_file_is_left_alone(dtype: Any) -> None:
    stored = np.array([[1, -0.0, 2.0**-24], [-1, 0, 3]], dtype)
    if dtype is not np.float16:
        stored[1, 1] = 2.0**-51
    stored.flags.writeable = False  # as a mapped file is
    loaded = load_weight(checkpoint(w=stored), "w", {})
    assert not unsettled(loaded).any()
    assert loaded.astype(np.float32).tolist() == [[1, 0, 2.0**-24], [-1, 0, 3]]
    clean = np.ones((2, 2), dtype)
    assert load_weight(checkpoint(w=clean), "w", {}) is clean


def test_joined_weights_and_norms_with_an_offset_are_settled() -> None:
    parts = {"a": np.array([[-0.0, 1]], np.float32), "b": np.array([[2, 2.0**-60]], np.float32)}
    assert load_weight(checkpoint(**parts), "ab", {"ab": ("a", "b")}).view(np.uint32)[:, 0].tolist() == [0, 0x40000000]
    norm = load_weight(checkpoint(1.0, input_norm=np.array([-1, 0.5], np.float32)), "input_norm", {})
    assert norm.tolist() == [0, 1.5]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 2.0**64])
def test_a_value_that_products_do_not_allow_is_refused_by_name(dtype: Any, wrong: float) -> None:
    with np.errstate(over="ignore"):
        stored = np.array([[1, wrong]], np.float64).astype(np.float32).astype(dtype)
    if wrong == 2.0**64 and dtype is np.float32:
        assert load_weight(checkpoint(w=stored), "w", {}) is stored  # float32 goes further
        return
    with pytest.raises(BadInput, match=r"^model: w: got NaN, Inf or a value beyond the type's range; needs finite"):
        load_weight(checkpoint(w=stored), "w", {})
