"""The sequences of a call, as sequences.cuh has them."""

from __future__ import annotations

import ctypes

TABLES = ("qo_indptr", "kv_last", "kv_indptr", "kv_indices")
SIZES = ("num_sequences", "num_tokens", "num_indices", "num_pages", "page_size", "most_rows")


class Batch(ctypes.Structure):
    """Arrays of int32, then sizes; most_rows, of a sequence that is left alone, is prefill.cu's."""

    _fields_ = (*((name, ctypes.c_void_p) for name in TABLES), *((name, ctypes.c_int) for name in SIZES))
