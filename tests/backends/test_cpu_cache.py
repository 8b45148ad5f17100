"""Caches of the native backend in layouts of its own: the same bytes come out as of row-major ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cache_scenes import PAGES, POSITIONS, Session, Store, describe, layer, noise, place, raw, step_inputs

from samebits.backends.cpu import CpuBackend
from samebits.backends.interface import Backend
from samebits.backends.reference import ReferenceBackend
from samebits.core.errors import BadInput, Unavailable
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import InputKind
from samebits.kernels.cpp import native
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of
from samebits.ops.record import OPS, Case

try:
    ISAS = native().isas()
except Unavailable as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.mark.parametrize("layout", ["k_lanes", "v_rows"])
@pytest.mark.parametrize("fmt", ["f16", "bf16", "q8_0"])
@pytest.mark.parametrize("shape", [(5, 16, 3, 64), (2, 48, 1, 96), (3, 32, 2, 32), (0, 16, 2, 32)])
def test_copies_through_a_private_layout_keep_every_byte(layout: str, fmt: str, shape: tuple[int, ...]) -> None:
    backend, host = CpuBackend(), noise(TensorSpec(shape, fmt), "round trip")
    buffer = place(backend, host, layout)
    assert raw(backend.copy_out(buffer)) == raw(host)
    heads = backend.view(backend.view(buffer, ("slice", 2, 0, 1)), ("slice", 1, 3, 9))
    assert raw(backend.copy_out(heads)) == raw(host[:, 3:9, 0:1])


@pytest.mark.parametrize("shape", [(4, 16, 1, 128), (4, 16, 4, 64), (4, 64, 8, 128), (4, 16, 3, 32)])
def test_private_pages_do_not_lie_a_multiple_of_a_page_of_memory_apart(shape: tuple[int, ...]) -> None:
    num_pages, content = shape[0], int(np.prod(shape[1:])) * 2
    stride = native().layout_bytes("f16", list(shape), "k_lanes") // num_pages
    assert content <= stride <= content + 512
    assert stride % 64 == 0
    assert 128 < stride % 4096 < 4096 - 128
    assert len({n * stride % 4096 for n in range(64)}) == 64


@pytest.mark.parametrize(
    ("layout", "fmt", "shape"),
    [
        ("k_lanes", "f16", (2, 8, 1, 32)),
        ("v_rows", "q4_0", (2, 16, 1, 32)),
        ("lanes", "f16", (2, 16, 1, 32)),
        ("k_lanes", "f16", (2, 16, 32)),
    ],
)
def test_memory_is_refused_in_a_layout_that_does_not_fit(layout: str, fmt: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="cpu: layout"):
        CpuBackend().alloc(TensorSpec(shape, fmt), layout)


@pytest.mark.parametrize(
    ("store", "layouts"),
    [
        (Store(), ("k_lanes", "v_rows")),
        (Store(k="q8_0", v="bf16", page_size=32), ("k_lanes", "v_rows")),
        (Store(v="q4_0"), ("k_lanes", "row-major")),
        (Store(k="f32"), ("row-major", "v_rows")),
        (Store(order="HND"), ("row-major", "row-major")),
        (Store(page_size=8), ("row-major", "row-major")),
        (Store(kind="step"), ("row-major", "row-major")),
    ],
    ids=describe,
)
def test_caches_get_the_layout_that_all_their_users_read(store: Store, layouts: tuple[str, str]) -> None:
    executable = CpuBackend().compile(layer(store), Tier.PORTABLE)
    assert (executable.layout("k_cache"), executable.layout("v_cache")) == layouts
    assert executable.layout("q") == "row-major"


def test_a_cache_that_another_op_reads_too_stays_row_major() -> None:
    b, spec = OpBuilder(), TensorSpec((3, 16, 2, 32), "f16")
    k, v = (b.input(name, spec, "cache") for name in ("k_cache", "v_cache"))
    q = b.input("q", TensorSpec((1, 2, 32), "f32"))
    indptr, last = b.input("qo_indptr", TensorSpec((2,), "i32")), b.input("last", TensorSpec((1,), "i32"))
    out = b.paged_attention(q, k, indptr, last, v)
    executable = CpuBackend().compile(b.finish(out, b.convert_kv_layout(k)), Tier.PORTABLE)
    assert (executable.layout("k_cache"), executable.layout("v_cache")) == ("row-major", "v_rows")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "store",
    [
        Store(),
        Store(k="bf16", v="q8_0", head=64, page_size=32),
        Store(k="q8_0", v="bf16", head=80),
        Store(k="q8_0", v="q8_0"),
        Store(k="f16", v="q4_0", head=40),
        Store(k="f32", v="f16"),
    ],
    ids=describe,
)
def test_steps_on_private_caches_give_the_bytes_of_row_major_ones(store: Store, isa: str) -> None:
    sessions = [Session(CpuBackend(isa), store, private) for private in (True, False)]
    sessions.append(Session(ReferenceBackend(), store, False))
    assert set(sessions[0].layouts.values()) & {"k_lanes", "v_rows"}
    for lengths, new in (((20, 7), (20, 7)), ((21, 8, 33), (1, 1, 33)), ((22, 9, 34), (1, 1, 1))):
        inputs = step_inputs(lengths, new, store)
        first, *others = [session.run(inputs) for session in sessions]
        assert all(other == first for other in others)


def attention_on(backend: Backend, case: Case) -> list[bytes]:
    """A case of paged_attention with its caches in the layouts that the backend asks for."""
    op, builder = OPS["paged_attention"], OpBuilder()
    inputs = op.make_inputs(op, case, Stream(case.id))
    kinds: dict[str, InputKind] = {"k_cache": "cache", "v_cache": "cache"}
    values = {name: builder.input(name, spec_of(x), kinds.get(name, "step")) for name, x in inputs.items()}
    results = builder.paged_attention(**values, **case.attrs)
    outputs = results if isinstance(results, tuple) else (results,)
    executable = backend.compile(builder.finish(*outputs), Tier.PORTABLE)
    for name, host in inputs.items():
        executable.bind(name, place(backend, host, executable.layout(name)))
    executable.run()
    return [raw(backend.copy_out(executable.output(i))) for i in range(len(outputs))]


def in_lanes(case: Case) -> bool:
    extra = case.extra
    fits = extra["kind"] == "split" and extra["layout"] == "NHD" and extra["table"] and not case.full
    return fits and {extra["k"], extra["v"]} & {"f16", "bf16", "q8_0"} != set()


@pytest.mark.parametrize(
    "case", [case for case in OPS["paged_attention"].cases if in_lanes(case)], ids=lambda case: case.id
)
def test_attention_reads_private_caches(case: Case) -> None:
    want = attention_on(ReferenceBackend(), case)
    assert all(attention_on(CpuBackend(isa), case) == want for isa in ISAS)


def test_threads_do_not_change_a_byte() -> None:
    results = []
    for threads in (1, 2, 5):
        backend = CpuBackend()
        backend.set_threads(threads)
        results.append(Session(backend, Store(k="q8_0"), True).run(step_inputs((20, 33), (20, 33), Store())))
    assert results[0] == results[1] == results[2]


def test_memory_in_a_layout_that_was_not_asked_for_is_refused() -> None:
    backend = CpuBackend()
    executable = backend.compile(layer(Store()), Tier.PORTABLE)
    spec = Store().specs()["k_cache"]
    keys = backend.alloc(spec, "k_lanes")
    with pytest.raises(BadInput, match=r"v_cache is .* as k_lanes, but must be .* as v_rows"):
        executable.bind("v_cache", keys)
    with pytest.raises(BadInput, match=r"k_cache is .* as k_lanes, but"):
        executable.bind("k_cache", backend.alloc(TensorSpec((PAGES + 1, *spec.shape[1:]), "f16"), "k_lanes"))
    with pytest.raises(BadInput, match="k_cache is a view"):
        executable.bind("k_cache", backend.view(keys, ("slice", 0, 0, PAGES)))


WRONG: dict[str, tuple[str, Any]] = {
    "kv_indptr": ("kv_indptr", [0, 3, 2]),
    "kv_indptr-first": ("kv_indptr", [1, 2, 5]),
    "kv_indptr-total": ("kv_indptr", [0, 2, 4]),
    "kv_indices-negative": ("kv_indices", [0, 1, 2, -1, 4]),
    "kv_indices-large": ("kv_indices", [0, 1, 2, PAGES, 4]),
    "kv_last_page_len-zero": ("kv_last_page_len", [4, 0]),
    "kv_last_page_len-large": ("kv_last_page_len", [17, 1]),
    "positions": ("positions", [*range(19), 20, 33]),
    "positions-negative": ("positions", [-1, *range(20)]),
    "batch_indices": ("batch_indices", [2] + [0] * 20),
    "pos_ids": ("pos_ids", [POSITIONS] + [0] * 20),
    "qo_indptr-causal": ("qo_indptr", [0, 21, 21]),
    "qo_indptr-falls": ("qo_indptr", [0, 22, 21]),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("private", [True, False], ids=["private", "row-major"])
def test_bad_indices_are_refused_by_name(case: str, private: bool) -> None:
    name, wrong = WRONG[case]
    inputs = step_inputs((20, 34), (20, 1), Store())
    inputs[name] = np.array(wrong, np.int32)
    with pytest.raises(BadInput, match=name):
        Session(CpuBackend(), Store(), private).run(inputs)


@pytest.mark.parametrize(
    ("store", "name", "wrong"),
    [
        (Store(), "key", 70000.0),
        (Store(v="bf16"), "value", 2.0**70),
        (Store(k="q8_0"), "key", 1e9),
        (Store(k="f32"), "key", np.inf),
        (Store(v="q4_0"), "value", np.nan),
        (Store(), "q", 70000.0),
        (Store(k="q8_0"), "q", 2.0**127),
    ],
    ids=describe,
)
def test_values_that_a_cache_cannot_hold_are_refused(store: Store, name: str, wrong: float) -> None:
    inputs = step_inputs((20, 34), (20, 34), store)
    inputs[name][-1, 0, 0] = wrong
    with pytest.raises(BadInput, match=f": {name} (is|has) "):
        Session(CpuBackend(), store, True).run(inputs)
