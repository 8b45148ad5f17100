"""copy_kv_pages: whole pages of a cache onto others, before two sequences that share one go different ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.ops.kv_cases import filled_inputs, kv_extra
from samebits.ops.kv_spaces import COPY_SPACE
from samebits.ops.paged import K_CACHE, V_CACHE
from samebits.ops.ragged import check_index_range
from samebits.ops.record import CACHES, INDEX, Case, Input, Op, Result, define_op

OP = "copy_kv_pages"


def _check(k_cache: HostTensor, sources: np.ndarray, targets: np.ndarray, v_cache: HostTensor | None) -> None:
    if (v_cache is None) == (k_cache.ndim == 4):
        given = "nothing" if v_cache is None else f"a tensor beside k_cache of {k_cache.ndim} axes"
        raise BadInput(OP, "v_cache", given, "values beside a split k_cache of 4 axes")
    for name, pages in (("sources", sources), ("targets", targets)):
        check_index_range(OP, name, pages, k_cache.shape[0])
    taken, counts = np.unique(targets, return_counts=True)
    if (counts > 1).any():
        raise BadInput(OP, "targets", f"page {taken[counts > 1][0]} twice", "every target once")
    if len(both := np.intersect1d(sources, targets)):
        raise BadInput(OP, "targets", f"page {both[0]}, a source too", "pages that nothing is copied from")


def _inputs(_: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    extra = case.extra
    inputs = filled_inputs(extra, stream, extra["lengths"])
    pages = stream.child("copies").permutation(inputs["k_cache"].shape[0])
    count = extra["num_copies"]
    sources, targets = pages[:count], pages[len(pages) - count :]
    if extra.get("sources") == "one":
        sources = np.full(count, pages[0])
    caches = {name: tensor for name, tensor in inputs.items() if name.endswith("_cache")}
    return {**caches, "sources": sources.astype(np.int32), "targets": targets.astype(np.int32)}


def _case(case_id: str, num_copies: int = 3, **kw: Any) -> Case:
    return Case(case_id, {"N": num_copies}, extra=kv_extra(num_copies=num_copies, **kw))


@define_op(
    inputs=[
        K_CACHE,
        Input("sources", "N", INDEX, "pages to read; one may be copied several times"),
        Input("targets", "N", INDEX, "pages to write, each once, none of them a source"),
        V_CACHE,
    ],
    results=[
        Result("k_cache", "", "=k_cache", alias_of="k_cache"),
        Result("v_cache", "", "=v_cache", alias_of="v_cache"),
    ],
    cases=lambda: [
        *(_case(f"{k}-{v}", k=k, v=v) for k, v in zip(CACHES, (*CACHES[1:], CACHES[0]), strict=True)),
        _case("unified-hnd", kind="unified", layout="HND"),
        _case("mla", kind="mla", heads=1, head=576),
        _case("no-copies", num_copies=0),
    ],
    invariant_axes=("N",),
    check=_check,
    make_inputs=_inputs,
    space=lambda: COPY_SPACE,
)
def copy_kv_pages(
    k_cache: HostTensor, sources: np.ndarray, targets: np.ndarray, v_cache: HostTensor | None = None
) -> tuple[HostTensor, ...]:
    """cache[targets] = cache[sources], keys and values, in place."""
    caches = (k_cache,) if v_cache is None else (k_cache, v_cache)
    for cache in caches:
        pages = cache.data if isinstance(cache, Packed) else cache
        pages[targets] = pages[sources]
    return caches
