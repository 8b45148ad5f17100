"""Attention on WebGPU: what verify's cases are too small for."""

from __future__ import annotations

import numpy as np
import pytest

from samebits import functional as F
from samebits.backends.interface import Backend
from samebits.core.errors import BadInput

PAGE_SIZE, HEAD_SIZE = 16, 8


@pytest.mark.parametrize("num_queries", [1, 2])
def test_a_context_beyond_a_drivers_loops_is_right_or_refused(webgpu: Backend, num_queries: int) -> None:
    """Two queries go over 40,000 positions in one invocation's loops, one query goes by cuts."""
    num_positions = 40_000
    num_pages = num_positions // PAGE_SIZE
    rng = np.random.default_rng(0)
    k_cache, v_cache = rng.standard_normal((2, num_pages, PAGE_SIZE, 1, HEAD_SIZE)).astype(np.float16)
    arguments = dict(
        q=rng.standard_normal((num_queries, 1, HEAD_SIZE)).astype(np.float32),
        k_cache=k_cache,
        v_cache=v_cache,
        qo_indptr=np.array([0, num_queries], np.int32),
        kv_last_page_len=np.array([PAGE_SIZE], np.int32),
        kv_indptr=np.array([0, num_pages], np.int32),
        kv_indices=rng.permutation(num_pages).astype(np.int32),
    )
    refusal = ""
    try:
        found = np.asarray(F.paged_attention(**arguments, backend="webgpu"))
    except BadInput as error:
        refusal = str(error)
    if refusal:
        assert num_queries > 1
        assert "more positions than the driver's loops go over, but must be fewer, or another driver" in refusal
        return
    np.testing.assert_array_equal(found, np.asarray(F.paged_attention(**arguments, backend="reference")))


def test_what_lies_behind_a_head_is_not_read(webgpu: Backend) -> None:
    """A head of 40 is five eights, and lanes take two: the sixth would be the next slot, where nobody wrote."""
    rng = np.random.default_rng(0)
    caches = rng.standard_normal((2, 1, PAGE_SIZE, 1, 40)).astype(np.float16)
    caches[:, 0, 5:] = np.nan
    arguments = dict(
        q=rng.standard_normal((1, 1, 40)).astype(np.float32),
        k_cache=caches[0],
        v_cache=caches[1],
        qo_indptr=np.array([0, 1], np.int32),
        kv_last_page_len=np.array([5], np.int32),
        kv_indptr=np.array([0, 1], np.int32),
        kv_indices=np.array([0], np.int32),
    )
    got, want = (np.asarray(F.paged_attention(**arguments, backend=name)) for name in ("webgpu", "reference"))
    np.testing.assert_array_equal(got, want)
