"""Selection and sampling on WebGPU where `samebits verify` does not look: what is refused, and long rows of equals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samebits.backends.interface import Backend
from samebits.backends.support import op_call
from samebits.core.errors import BadInput
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.wgsl.table import wgsl_kernels
from samebits.ops import OPS, bind, evaluate
from samebits.verify.harness import execute

NUM_ROWS, NUM_TOKENS = 3, 100
BAD_ROW, BAD_TOKEN = 1, 70
SHAPING = ("bias", "counts", "repetition", "presence", "frequency")


def sampling(num_tokens: int = NUM_TOKENS, **settings: float) -> dict[str, Any]:
    """Inputs of `sample`: rows without filters but those given."""
    floats = {"temperature": 0.8, "top_p": 1.0, "min_p": 0.0, "repetition": 1.2, "presence": 0.1, "frequency": 0.1}
    inputs: dict[str, Any] = {name: np.full(NUM_ROWS, value, np.float32) for name, value in floats.items()}
    inputs |= {name: np.arange(NUM_ROWS, dtype=np.int32) for name in ("sample_index", "position")}
    inputs["top_k"] = np.zeros(NUM_ROWS, np.int32)
    inputs["seed"] = np.arange(2 * NUM_ROWS, dtype=np.uint32).reshape(NUM_ROWS, 2)
    inputs["logits"] = np.random.default_rng(0).standard_normal((NUM_ROWS, num_tokens)).astype(np.float32)
    inputs["bias"] = np.zeros((NUM_ROWS, num_tokens), np.float32)
    inputs["counts"] = np.zeros((NUM_ROWS, num_tokens), np.int32)
    for name, value in settings.items():
        inputs[name][:] = value
    return inputs


def without_shaping(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in inputs.items() if name not in SHAPING}


def assert_refused(webgpu: Backend, op: str, inputs: dict[str, Any]) -> BadInput:
    """The kernels, called without the check on the host, need what the reference needs; a value they cannot show."""
    with pytest.raises(BadInput) as found:
        execute(webgpu, replace(OPS[op], check=None), inputs, Tier.PORTABLE)
    with pytest.raises(BadInput) as wanted:
        bind(OPS[op], **inputs)
    assert (found.value.where, found.value.argument) == (wanted.value.where, wanted.value.argument)
    assert found.value.needed == wanted.value.needed
    return found.value


def assert_same(webgpu: Backend, op: str, inputs: dict[str, Any]) -> None:
    """The kernels' results are the reference's."""
    found = execute(webgpu, OPS[op], inputs, Tier.PORTABLE).results
    for result, wanted in zip(found, evaluate(bind(OPS[op], **inputs)), strict=True):
        np.testing.assert_array_equal(np.asarray(result), np.asarray(wanted))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("logits", value) for value in (np.nan, np.inf)),
        *(("bias", value) for value in (np.nan, np.inf)),
        *(("counts", value) for value in (-1, 2**24 + 1)),
        *(("temperature", value) for value in (-0.1, 2e6, 1e-5, np.nan)),
        *(("top_k", -1), ("top_p", 0.0), ("top_p", 1.5), ("min_p", -0.5), ("min_p", 1.5)),
        *(("repetition", 0.0), ("presence", 2e3), ("frequency", -2e3), ("sample_index", -1), ("position", -1)),
    ],
)
def test_sample_refuses_what_the_reference_refuses_with_its_words(webgpu: Backend, name: str, value: float) -> None:
    inputs = sampling()
    inputs[name][(BAD_ROW, BAD_TOKEN) if inputs[name].ndim == 2 else BAD_ROW] = value
    if name not in SHAPING:
        inputs = without_shaping(inputs)
    assert_refused(webgpu, "sample", inputs)


@pytest.mark.parametrize("name", ["logits", "bias"])
def test_a_row_without_a_token_is_refused(webgpu: Backend, name: str) -> None:
    inputs = sampling()
    inputs[name][BAD_ROW] = -np.inf
    if name == "logits":
        inputs = without_shaping(inputs)
    assert assert_refused(webgpu, "sample", inputs).argument == name


@pytest.mark.parametrize("settings", [{}, {"top_p": 0.9}, {"top_k": 5, "min_p": 0.1}])
@pytest.mark.parametrize("value", [1e35, -1e35])
def test_a_largest_logit_that_overflows_is_refused(webgpu: Backend, value: float, settings: dict[str, float]) -> None:
    inputs = without_shaping(sampling(temperature=1e-4, **settings))
    if value > 0:
        inputs["logits"][BAD_ROW, BAD_TOKEN] = value
        assert_refused(webgpu, "sample", inputs)
        inputs["logits"][BAD_ROW, BAD_TOKEN] = -value
    else:
        inputs["logits"][BAD_ROW] = value
        assert_refused(webgpu, "sample", inputs)
        inputs["logits"][BAD_ROW, BAD_TOKEN] = 1
    assert_same(webgpu, "sample", inputs)


def test_a_bias_that_overflows_is_refused_at_temperature_0_too(webgpu: Backend) -> None:
    inputs = sampling(temperature=0.0)
    inputs["logits"][BAD_ROW, BAD_TOKEN] = inputs["bias"][BAD_ROW, BAD_TOKEN] = 3e38
    assert assert_refused(webgpu, "sample", inputs).argument == "logits"


@pytest.mark.parametrize("length", [50, 300])  # ranked at once, and in parts
@pytest.mark.parametrize("op", ["argmax", "top_k", "top_k_mask_logits"])
def test_a_nan_is_refused_and_the_next_call_is_not(webgpu: Backend, op: str, length: int) -> None:
    x = np.random.default_rng(0).standard_normal((NUM_ROWS, length)).astype(np.float32)
    bad = x.copy()
    bad[BAD_ROW, 40] = np.nan
    assert_refused(webgpu, op, {"x": bad})
    assert_same(webgpu, op, {"x": x})


@pytest.mark.parametrize("settings", [{"top_k": 9_001}, {"top_p": 0.75}, {"top_k": 19_990, "top_p": 0.5, "min_p": 0.9}])
def test_equals_beyond_the_lists_of_a_part_rank_by_index(webgpu: Backend, settings: dict[str, float]) -> None:
    """A bucket holds so many that parts of a row are read again; its mass needs more than 32 bits."""
    inputs = without_shaping(sampling(20_000, **settings))
    inputs["logits"][0] = 1.25
    inputs["logits"][1] = np.rint(inputs["logits"][1])
    assert_same(webgpu, "sample", inputs)


def test_many_winners_are_ranked(webgpu: Backend) -> None:
    """So many that one invocation may not compare all of them."""
    x = np.sort(np.random.default_rng(0).standard_normal((1, 2_600)).astype(np.float32))
    assert_same(webgpu, "top_k", {"x": x, "k": 2_500})


def test_rows_that_are_too_long_are_refused_with_a_reason() -> None:
    (kernel,) = wgsl_kernels()["argmax"]
    call = op_call(OPS["argmax"], {"x": TensorSpec((1, 2**19 + 1), "f32")}, {}, Tier.PORTABLE)
    assert "at most 524288" in (kernel.refusal(call) or "")
