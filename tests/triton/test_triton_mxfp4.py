"""MXFP4 in every kernel that reads it, in Triton's interpreter: scales below the smallest, any codes, any tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernel_results import differences

from samebits.backends.discovery import get
from samebits.backends.support import choose_kernel
from samebits.core.tiers import Tier
from samebits.formats import MXFP4
from samebits.kernels.triton.lib.tensors import Blocks
from samebits.kernels.triton.lib.weights import tile_weight
from samebits.kernels.triton.rows.embed_blocks import embed_blocks
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.verify.select import find_case

ANY = "weight=mxfp4,weights=any-bytes"
CASES = [
    ("gemm_q8", f"T=1,N=20,K=64,{ANY}"),
    ("gemm_q8", f"T=3,N=20,K=288,bias=f32,{ANY}"),
    ("gemm_q8", f"T=9,N=40,K=96,{ANY}"),
    ("grouped_gemm", f"T=3,E=2,S=2,N=20,K=64,{ANY}"),
]


@pytest.mark.parametrize(("op", "case"), CASES, ids=[f"{op} {case.split(',')[0]}" for op, case in CASES])
def test_products(op: str, case: str) -> None:
    with np.errstate(all="ignore"):  # the interpreter's arithmetic is numpy's, and warns where a GPU does not
        assert list(differences(OPS[op], find_case(OPS[op], case))) == []


@pytest.mark.parametrize("is_tiled", [False, True])
def test_embeddings(is_tiled: bool) -> None:
    """From a table as files store it, and from one that is tiled for a tied head."""
    op = OPS["embedding"]
    inputs = make_inputs(op, find_case(op, "V=20,K=64,T=5,weight=mxfp4,values=any-bytes"))
    stored = Blocks(MXFP4, torch.from_numpy(inputs["table"].data))
    table = tile_weight(stored) if is_tiled else stored
    got = embed_blocks(table, torch.from_numpy(inputs["ids"])).numpy()
    (want,) = evaluate(bind(op, **inputs))
    assert got.tobytes() == np.asarray(want).tobytes()


def test_float16_does_not_serve_the_fast_tier() -> None:
    """Its products by float16 would lose a scale of 2^-40, and make an infinity of one of 2^20."""
    op = OPS["gemm_q8"]
    bound = bind(op, **make_inputs(op, find_case(op, "small-mxfp4")))
    assert choose_kernel(get("cuda").backend, op, bound.specs, bound.attrs, Tier.FAST).tier is Tier.PORTABLE
