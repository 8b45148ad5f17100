"""Block formats in every kernel that reads them, in Triton's interpreter: blocks of any bytes, any number of tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernel_results import differences

from samebits.backends.discovery import get
from samebits.backends.support import choose_kernel
from samebits.core.tiers import Tier
from samebits.formats import FORMATS
from samebits.kernels.triton.lib.tensors import Blocks
from samebits.kernels.triton.lib.weights import tile_weight
from samebits.kernels.triton.rows.embed_blocks import embed_blocks
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.verify.select import find_case

NAMES = ["mxfp4", "q2_k", "q3_k", "iq4_nl", "iq4_xs"]
CASES = [
    ("gemm_q8", "T=1,N=20,K=64"),
    ("gemm_q8", "T=3,N=20,K=288,bias=f32"),
    ("gemm_q8", "T=9,N=40,K=96"),
    ("grouped_gemm", "T=3,E=2,S=2,N=20,K=64"),
]


def sized(case: str, name: str) -> str:
    """The case with whole blocks of the format, chunks of eight blocks where it has super-blocks."""
    if FORMATS[name].block_len == 256:
        case = case.replace("K=64", "K=256").replace("K=288", "K=2304").replace("K=96", "K=512")
    return f"{case},weight={name},weights=any-bytes"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("op", "case"), CASES, ids=[f"{op} {case.split(',')[0]}" for op, case in CASES])
def test_products(op: str, case: str, name: str) -> None:
    with np.errstate(all="ignore"):  # the interpreter's arithmetic is numpy's, and warns where a GPU does not
        assert list(differences(OPS[op], find_case(OPS[op], sized(case, name)))) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_tiled", [False, True])
def test_embeddings(is_tiled: bool, name: str) -> None:
    """From a table as files store it, and from one that is tiled for a tied head."""
    op = OPS["embedding"]
    inputs = make_inputs(op, find_case(op, f"V=20,K=256,T=5,weight={name},values=any-bytes"))
    stored = Blocks(FORMATS[name], torch.from_numpy(inputs["table"].data))
    table = tile_weight(stored) if is_tiled else stored
    got = embed_blocks(table, torch.from_numpy(inputs["ids"])).numpy()
    (want,) = evaluate(bind(op, **inputs))
    assert got.tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_float16_does_not_serve_the_fast_tier(name: str) -> None:
    """Products by float16 would lose an mxfp4 scale of 2^-40 and make an infinity of one of 2^20; others have none."""
    op = OPS["gemm_q8"]
    bound = bind(op, **make_inputs(op, find_case(op, f"small-{name}")))
    assert choose_kernel(get("cuda").backend, op, bound.specs, bound.attrs, Tier.FAST).tier is Tier.PORTABLE
