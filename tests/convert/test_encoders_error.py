"""Encoders against ggml's own bytes: equal where its rule is a rule, of no larger error where it searches."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import gguf
import numpy as np
import pytest
from convert_samples import FACTS, samples

from samebits.convert import encoders
from samebits.convert.encoders import FITTED, encode
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, Packed
from samebits.formats.bits import merge

TENSORS: dict[str, Any] = json.loads(FACTS.read_text())["tensors"]
SIMPLE = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
KINDS = tuple(samples())


def block_format(name: str) -> BlockFormat:
    fmt = FORMATS[name]
    assert isinstance(fmt, BlockFormat)
    return fmt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SIMPLE)
def test_simple_formats_have_ggmls_bytes(name: str, kind: str) -> None:
    data = encode(samples()[kind], name)
    assert hashlib.sha256(data.tobytes()).hexdigest() == TENSORS[name][kind]["sha256"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FITTED)
def test_fitted_formats_err_no_more_than_ggmls(name: str, kind: str) -> None:
    x = samples()[kind]
    numbers = Packed(block_format(name), encode(x, name)).unpack().astype(np.float64)
    digits = 1 + 1e-5  # six of them are stored
    assert np.sqrt(np.mean((numbers - x) ** 2)) <= TENSORS[name][kind]["rms_error"] * digits


@pytest.mark.parametrize("name", [*SIMPLE, *FITTED])
def test_others_decode_our_bytes_as_we_do(name: str) -> None:
    data = encode(samples()["bell"], name)
    theirs = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name.upper()])
    np.testing.assert_array_equal(theirs, Packed(block_format(name), data).unpack())


@pytest.mark.parametrize("name", FITTED)
def test_neither_threads_nor_neighbours_move_a_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = merge(np.stack(list(samples().values())), 0)
    whole = encode(x, name)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(encoders, "CHUNK_ELEMENTS", 1280)
    np.testing.assert_array_equal(encode(x, name), whole)
    np.testing.assert_array_equal(encode(x[3:4], name), whole[3:4])


@pytest.mark.parametrize("name", FITTED)
def test_extremes(name: str) -> None:
    """Zeros stay zeros, a constant is kept, and numbers next to nothing or very large are no fault."""
    n = block_format(name).block_len
    rows = np.stack([np.zeros(n), np.full(n, -2.5), np.full(n, 2.5), np.full(n, 1e-30), np.linspace(-3e4, 3e4, n)])
    numbers = Packed(block_format(name), encode(rows.astype(np.float32), name)).unpack()
    assert (numbers[0] == 0).all()
    np.testing.assert_allclose(numbers[1:3], rows[1:3], rtol=1e-2)
    assert (np.abs(numbers[3]) < 1e-6).all()
    assert np.isfinite(numbers[4]).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_has_no_code_is_refused(wrong: float) -> None:
    x = np.zeros((1, 256), np.float32)
    x[0, 3] = wrong
    with pytest.raises(BadInput, match="NaN or Inf"):
        encode(x, "q4_k")
    with pytest.raises(BadInput, match="multiple of the block length 256"):
        encode(x[:, :100], "q4_k")
    with pytest.raises(BadInput, match="a block format"):
        encode(x, "f16")
