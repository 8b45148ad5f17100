"""Chains of ops on the native backend with several threads: a thread that reads rows of others waits for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.reference import ReferenceBackend
from samebits.core.errors import Unavailable
from samebits.core.format import HostTensor, copy_tensor
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.graph import Graph, Value
from samebits.kernels.cpp import native
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of

try:
    native()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

THREADS = (2, 4, 8)
NUM_RUNS = 12  # of each graph and number of threads: a race shows in nearly every run
TOKENS, HEADS, SIZE = 256, 4, 64
Tensors = Mapping[str, HostTensor]


def normal(name: str, *shape: int) -> np.ndarray:
    return Stream(name).normal(shape)


def results_of(backend: CpuBackend | ReferenceBackend, graph: Graph, tensors: Tensors, num_runs: int) -> list[bytes]:
    """The bytes of all outputs of each run. Every run starts with the tensors that are given."""
    executable = backend.compile(graph, Tier.PORTABLE)
    found = []
    for _ in range(num_runs):
        for name, tensor in tensors.items():
            buffer = backend.alloc(spec_of(tensor), executable.layout(name))
            backend.copy_in(buffer, copy_tensor(tensor))
            executable.bind(name, buffer)
        executable.run()
        outputs = [backend.copy_out(executable.output(i)) for i in range(len(graph.outputs))]
        found.append(b"".join(np.ascontiguousarray(getattr(x, "data", x)).tobytes() for x in outputs))
    return found


def check(graph: Graph, tensors: Tensors) -> None:
    """Every run with every number of threads gives the definition's bytes."""
    (want,) = results_of(ReferenceBackend(), graph, tensors, 1)
    for threads in THREADS:
        backend = CpuBackend()
        backend.set_threads(threads)
        assert results_of(backend, graph, tensors, NUM_RUNS) == [want] * NUM_RUNS, f"{threads} threads"


def inputs(builder: OpBuilder, tensors: Tensors) -> dict[str, Value]:
    return {name: builder.input(name, spec_of(tensor)) for name, tensor in tensors.items()}


def rotary(extra: Tensors | None = None) -> dict[str, HostTensor]:
    """x and a table with as many rows as tokens, and positions that run backwards through it."""
    table = normal("table", TOKENS, SIZE // 2, 2)
    pos_ids = np.arange(TOKENS, dtype=np.int32)[::-1].copy()
    return {"x": normal("x", TOKENS, HEADS, SIZE), "table": table, "pos_ids": pos_ids, **(extra or {})}


def cells(num_pages: int = TOKENS, page_size: int = 4) -> dict[str, HostTensor]:
    """Keys for one cell of each page, in order of falling pages, and the table of one sequence that has them all."""
    return {
        "key": normal("key", num_pages, 2, SIZE),
        "value": normal("value", num_pages, 2, SIZE),
        "k_cache": normal("k_cache", num_pages, page_size, 2, SIZE),
        "v_cache": normal("v_cache", num_pages, page_size, 2, SIZE),
        "batch_indices": np.zeros(num_pages, np.int32),
        "positions": (np.arange(num_pages, dtype=np.int32) * page_size)[::-1].copy(),
        "kv_indptr": np.array([0, num_pages], np.int32),
        "kv_indices": np.arange(num_pages, dtype=np.int32),
        "kv_last_page_len": np.array([page_size], np.int32),
    }


TABLE = ("kv_indptr", "kv_indices", "kv_last_page_len")


def appended(builder: OpBuilder, v: Mapping[str, Value], k_cache: Value, v_cache: Value) -> tuple[Value, ...]:
    given = {name: v[name] for name in ("key", "value", "batch_indices", "positions", *TABLE)}
    return builder.append_paged_kv_cache(**given, k_cache=k_cache, v_cache=v_cache)


def test_a_rotary_table_that_the_node_before_made() -> None:
    tensors, b = rotary(), OpBuilder()
    v = inputs(b, tensors)
    check(b.finish(b.rope(v["x"], v["pos_ids"], b.scale(v["table"], factor=0.5))), tensors)


def test_a_rotary_table_that_an_earlier_node_made() -> None:
    """The node between the two goes over the same rows as both and needs no barrier itself."""
    tensors, b = rotary(), OpBuilder()
    v = inputs(b, tensors)
    table = b.scale(v["table"], factor=0.5)
    x = b.soft_cap(v["x"], cap=3.0)
    check(b.finish(b.rope(x, v["pos_ids"], table)), tensors)


def test_a_rotary_table_that_a_view_of_a_made_value_is() -> None:
    tensors, b = rotary(), OpBuilder()
    tensors["table"] = normal("table", TOKENS, SIZE)
    v = inputs(b, tensors)
    table = b.split_heads(b.scale(v["table"], factor=0.5), heads=SIZE // 2)
    check(b.finish(b.rope(v["x"], v["pos_ids"], table)), tensors)


def test_a_table_that_is_written_over_after_it_was_read() -> None:
    """The norm writes its residual into the memory of the table while slower threads still read it."""
    tensors, b = rotary(), OpBuilder()
    v = inputs(b, {**tensors, "weight": np.ones(2, np.float32)})
    table = b.scale(v["table"], factor=0.5)
    turned = b.rope(v["x"], v["pos_ids"], table)
    changed = b.fused_add_rms_norm(v["table"], table, v["weight"])
    check(b.finish(turned, *changed), {**tensors, "weight": np.ones(2, np.float32)})


def test_cells_of_a_cache_that_the_node_before_made() -> None:
    tensors, b = cells(), OpBuilder()
    v = inputs(b, tensors)
    caches = [b.convert_kv_layout(v[name], source="NHD", target="NHD") for name in ("k_cache", "v_cache")]
    check(b.finish(*appended(b, v, *caches)), tensors)


def test_cells_that_are_written_after_a_copy_of_the_cache_was_made() -> None:
    tensors, b = cells(), OpBuilder()
    v = inputs(b, tensors)
    copies = [b.convert_kv_layout(v[name], source="NHD", target="HND") for name in ("k_cache", "v_cache")]
    check(b.finish(*copies, *appended(b, v, v["k_cache"], v["v_cache"])), tensors)


def test_a_cache_that_is_converted_after_an_append() -> None:
    tensors, b = cells(), OpBuilder()
    v = inputs(b, tensors)
    new = appended(b, v, v["k_cache"], v["v_cache"])
    check(b.finish(*new, *(b.convert_kv_layout(c, source="NHD", target="HND") for c in new)), tensors)


def test_keys_that_are_turned_by_a_made_table_on_their_way_into_cells() -> None:
    tensors, b = {**cells(), **rotary()}, OpBuilder()
    del tensors["x"]
    v = inputs(b, tensors)
    given = {name: v[name] for name in ("key", "value", "batch_indices", "positions", "pos_ids", *TABLE)}
    caches = {name: v[name] for name in ("k_cache", "v_cache")}
    check(b.finish(*b.rope_and_append(**given, **caches, table=b.scale(v["table"], factor=0.5))), tensors)
