"""The plain formats, and the list of all formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from format_samples import BLOCK_FORMATS

from samebits.core.errors import BadInput
from samebits.formats import FORMATS, format_of

PLAIN = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "u8": np.uint8,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "bool": np.bool_,
}


def test_every_format_is_registered_once():
    assert sorted(FORMATS.names()) == sorted([*PLAIN, *(fmt.name for fmt in BLOCK_FORMATS)])


@pytest.mark.parametrize("name", PLAIN)
def test_plain_formats_are_their_dtype(name):
    fmt = FORMATS[name]
    array = np.zeros(3, PLAIN[name])
    assert not fmt.is_block
    assert fmt.row_bytes(3) == array.nbytes
    assert format_of(array) is fmt


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.int16])
def test_a_dtype_without_a_format_is_refused(dtype):
    with pytest.raises(BadInput, match="dtype"):
        format_of(np.zeros(3, dtype))
