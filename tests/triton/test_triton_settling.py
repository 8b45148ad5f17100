"""Rows of values at the bounds of the arithmetic, and of faint ones, through every op that computes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from kernel_results import differences

from samebits.core.errors import BadInput
from samebits.ops import OPS, Op
from samebits.ops.record import FLOATS
from samebits.ops.space import Factor, Span
from samebits.verify.select import find_case

KINDS = ("bounds", "faint")
SMALL = {
    **{"rows": 3, "K": 64, "H": 32, "NB": 2, "T": 2, "N": 16, "D": 24, "V": 70, "E": 2, "S": 2, "P": 9},
    **{"B": 1, "length": 20, "head": 32, "heads": 1, "Hk": 1, "G": 1, "R": 1},
}
MOVES = ("concat_columns", "slice_columns", "top_k", "top_k_mask_logits", "argmax")  # what they read is settled
# seconds a row: those below must do
SLOW = ("gemm", "gemm_q8", "gemm_silu_q8", "grouped_gemm", "head_gemm", "paged_attention")
SLOW += ("rope_both_and_append",)
# rows that take another kernel, or what only a bias, a cap or a block format makes
MORE = {
    "gemm": [
        "T=1,N=16,K=64,weight=bf16,weights=faint,bias=f32,values=faint",
        "T=1,N=16,K=64,weight=f32,weights=bounds,values=bounds",
        "T=2,N=8,K=32,x=f16,weight=f16,values=faint",
        "T=1,N=16,K=32,x=f16,weight=q8_0,weights=faint,values=bounds",
    ],
    "gemm_q8": ["T=9,N=16,K=32,weight=q4_0,bias=f32,values=faint", "T=1,N=16,K=64,weight=nvfp4,values=bounds"],
    "gemm_silu_q8": ["T=1,H=32,K=32,weight=q8_0,weights=faint,values=faint"],
    "grouped_gemm": ["T=2,E=1,S=1,N=8,K=32,weight=bf16,x=f16,weights=faint,values=faint"],
    "head_gemm": [
        "T=2,H=2,N=8,K=32,weight=bf16,x=f16,weights=faint,values=faint",
        "T=2,H=2,N=8,K=32,weight=q8_0,values=bounds",
    ],
    "layer_norm": ["rows=2,K=48,weight=f32,bias=f32,values=faint"],
    "softmax": ["rows=2,K=40,values=faint,soft_cap=30.0"],
    "paged_attention": [
        "B=1,length=17,head=32,heads=1,group=1,queries=decode,k=bf16,v=f16,values=faint,stored=faint,lse=yes",
        "B=1,length=9,head=32,heads=1,group=1,queries=decode,k=q4_0,v=bf16,q=f16,values=bounds,stored=bounds,cap=30",
        "B=1,length=3,head=32,heads=1,group=1,queries=prompt,k=bf16,v=bf16,q=bf16,values=faint,stored=faint,lse=yes",
    ],
    "rope_and_append": ["length=9,head=32,heads=1,k=q4_0,v=q8_0,values=faint"],
    "rope_both_and_append": ["length=9,head=32,heads=1,group=1,k=f16,v=bf16,query=f16,values=bounds"],
    "sample": ["B=2,V=70,shaping=both,values=faint"],
}


def value_kinds(op: Op) -> list[str]:
    labels = [c.label for f in op.space.factors if f.name == "values" for c in f.classes] if op.space else []
    return [kind for kind in KINDS if kind in labels]


def formats_of(factor: Factor) -> set[str]:
    return {c.label for c in factor.classes} & {*FLOATS}


def rows_of(op: Op) -> Iterator[str]:
    """Small rows: every kind with float32, and with one of the other formats where the op has them."""
    assert op.space is not None
    sizes = {f.name: SMALL[f.name] for f in op.space.factors if f.name in SMALL and isinstance(f.classes[0], Span)}
    for number, fmt in enumerate(("f32", "f32", "f16", "bf16")):
        kind = value_kinds(op)[number % 2]
        typed = {f.name: fmt for f in op.space.factors if fmt in formats_of(f) and f.name not in ("format", "bias")}
        row = {**sizes, **typed, "values": kind}
        yield ",".join(f"{name}={value}" for name, value in row.items())


COMPUTING = [op for op in OPS if value_kinds(op) and op.name not in MOVES]


@pytest.mark.parametrize("op", COMPUTING, ids=lambda op: op.name)
def test_results_are_settled_and_have_the_reference_s_bits(op: Op) -> None:
    taken = dict.fromkeys([*(() if op.name in SLOW else rows_of(op)), *MORE.get(op.name, ())])
    failures = []
    with np.errstate(all="ignore"):  # the interpreter's arithmetic is numpy's, and warns where a GPU does not
        for row in taken:
            try:
                failures += differences(op, find_case(op, row))
            except BadInput as error:
                failures.append(f"{row}: {error}")
    assert not failures, "\n".join(failures)
