"""Native kernels reach what lies more than 2^31 and 2^32 bytes into a tensor.

Large tensors are never filled: only pages of memory that a test touches exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.cpu.buffers import CpuBuffer
from samebits.backends.one_op import OneOp
from samebits.core.errors import Unavailable
from samebits.core.format import Packed
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.formats import Q8_0
from samebits.graph import InputKind
from samebits.kernels.cpp import native
from samebits.kernels.cpp.weights import pack_rows, rows16_bytes
from samebits.ops import OPS, call
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import spec_of

try:
    native()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

FAR = ((1 << 31) + (1 << 16), (1 << 32) + (1 << 16))  # bytes
HEADS, SIZE, PAGE = 8, 128, 16


def normal(name: str, *shape: int) -> np.ndarray:
    return Stream(name).normal(shape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.fixture
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend()
    backend.set_threads(2)
    yield backend
    native().trim_memory()


def rows_of(row_bytes: int) -> tuple[int, int, int]:
    """(a row beyond 2^31 bytes, one beyond 2^32 bytes, how many rows there are)."""
    near, far = (bytes_ // row_bytes for bytes_ in FAR)
    return near, far, far + 2


@pytest.mark.parametrize("kind", ["private", "split", "unified"])
def test_pages_of_a_cache(backend: CpuBackend, kind: str) -> None:
    """Tokens are appended to two far pages, these are copied onto others, and those are attended to."""
    sides = 2 if kind == "unified" else 1
    near, far, num_pages = rows_of(PAGE * HEADS * SIZE * 2 * sides)

    def attended(num_pages: int, first: int, second: int) -> bytes:
        b, count = OpBuilder(), 2 * PAGE
        given: dict[str, np.ndarray] = {
            "key": normal("key", count, HEADS, SIZE),
            "value": normal("value", count, HEADS, SIZE),
            "q": normal("q", 1, HEADS, SIZE),
            "batch_indices": np.zeros(count, np.int32),
            "positions": np.arange(count, dtype=np.int32),
            "kv_indptr": ints(0, 2),
            "kv_last_page_len": ints(PAGE),
            "qo_indptr": ints(0, 1),
            "pages": ints(first, second),
            "copies": ints(first + 1, second + 1),
        }
        v = {name: b.input(name, spec_of(x)) for name, x in given.items()}
        shape = (num_pages, *((2,) if kind == "unified" else ()), PAGE, HEADS, SIZE)
        cache_kind: InputKind = "cache" if kind == "private" else "step"
        names = ["k_cache"] if kind == "unified" else ["k_cache", "v_cache"]
        caches = {name: b.input(name, TensorSpec(shape, "f16"), cache_kind) for name in names}
        table = {name: v[name] for name in ("kv_indptr", "kv_last_page_len")}
        tokens = {name: v[name] for name in ("key", "value", "batch_indices", "positions")}
        new: Any = b.append_paged_kv_cache(**tokens, **caches, **table, kv_indices=v["pages"])
        new = new if isinstance(new, tuple) else (new,)
        new = b.copy_kv_pages(**dict(zip(names, new, strict=True)), sources=v["pages"], targets=v["copies"])
        new = new if isinstance(new, tuple) else (new,)
        held = dict(zip(names, new, strict=True))
        out = b.paged_attention(v["q"], qo_indptr=v["qo_indptr"], **held, **table, kv_indices=v["copies"])
        executable = backend.compile(b.finish(out, *new), Tier.PORTABLE)
        for name, x in given.items():
            executable.bind(name, backend.adopt(x))
        for name, value in caches.items():
            executable.bind(name, backend.alloc(value.spec, executable.layout(name)))
        executable.run()
        return np.asarray(backend.copy_out(executable.output(0))).tobytes()

    assert attended(num_pages, near, far) == attended(8, 1, 4)


def one_op(
    backend: CpuBackend, name: str, far: Mapping[str, CpuBuffer], kinds: Mapping[str, InputKind], **given: Any
) -> list[np.ndarray]:
    """The results of an op whose inputs `far` lie in this memory; those that it writes are left out."""
    op = OPS[name]
    attrs = {a.name: given.pop(a.name) for a in op.attrs if a.name in given}
    specs = {n: buffer.spec for n, buffer in far.items()} | {n: spec_of(x) for n, x in given.items()}
    one = OneOp(backend, op, specs, attrs, Tier.PORTABLE, kinds)
    one.bind(far)
    one.put(given)
    one.run()
    written = {new.name for _, new in one.graph.nodes[0].writes}
    return [np.asarray(one.result(i)) for i, v in enumerate(one.graph.outputs) if v.name not in written]


@pytest.mark.parametrize("fmt", ["f16", "q8_0"])
def test_rows_of_a_table(backend: CpuBackend, fmt: str) -> None:
    width = 256
    rows = normal("rows", 2, width).astype(np.float16)
    packed = Q8_0.pack(rows)
    near, far, count = rows_of(packed.data.shape[1] if fmt == "q8_0" else 2 * width)
    table = backend.alloc(TensorSpec((count, width), fmt))
    storage = table.tensor.data if isinstance(table.tensor, Packed) else table.tensor
    storage[[near, far]] = packed.data if fmt == "q8_0" else rows
    (got,) = one_op(backend, "embedding", {"table": table}, {}, ids=ints(far, near))
    assert got.tobytes() == call(OPS["embedding"], packed if fmt == "q8_0" else rows, ints(1, 0)).tobytes()


def test_rows_of_a_rotary_table(backend: CpuBackend) -> None:
    near, far, count = rows_of(SIZE * 4)
    angles, x = normal("angles", 2, SIZE // 2, 2), normal("x", 2, HEADS, SIZE)
    table = backend.alloc(TensorSpec((count, SIZE // 2, 2), "f32"))
    assert isinstance(table.tensor, np.ndarray)
    table.tensor[[near, far]] = angles
    (got,) = one_op(backend, "rope", {"table": table}, {}, x=x, pos_ids=ints(far, near))
    assert got.tobytes() == call(OPS["rope"], x, ints(1, 0), angles).tobytes()


def test_slots_of_states(backend: CpuBackend) -> None:
    """A sequence goes on from a far slot, which is then copied onto another."""
    heads, size = 2, 64
    near, far, count = rows_of(heads * size * size * 4)
    width = 2 * heads * size + heads
    step = {
        **{name: normal(name, 20, heads, size) for name in ("q", "k", "v")},
        **{name: normal(name, 20, heads) for name in ("a", "b")},
        "decay": -np.ones(heads, np.float32),
        "dt_bias": np.zeros(heads, np.float32),
        "qo_indptr": ints(0, 20),
        "positions": np.arange(16, 36, dtype=np.int32),
        "scale": 0.125,
    }

    def moved(count: int, slot: int, target: int) -> list[bytes]:
        state = backend.alloc(TensorSpec((count, heads, size, size), "f32"))
        ring = backend.alloc(TensorSpec((count, 16, width), "f32"))
        assert isinstance(state.tensor, np.ndarray)
        state.tensor[slot] = normal("state", heads, size, size)
        (out,) = one_op(backend, "gated_delta_rule", {"state": state, "ring": ring}, {}, **step, slots=ints(slot))
        one_op(backend, "copy_slots", {"state": state}, {}, sources=ints(slot), targets=ints(target))
        return [out.tobytes(), state.tensor[slot].tobytes(), state.tensor[target].tobytes()]

    want = moved(5, 3, 1)
    assert want[1] == want[2]
    assert moved(count, far, near) == want


def test_matrices_of_experts(backend: CpuBackend) -> None:
    """A segment meets a far matrix of a packed weight."""
    rows, width = 64, 4096
    near, far, count = rows_of(rows16_bytes("q8_0", (rows, width)))
    matrices, x = Q8_0.pack(normal("matrices", 2, rows, width)), normal("x", 2, width)
    memory = backend.alloc(TensorSpec((rows16_bytes("q8_0", (count, rows, width)),), "u8"))
    for matrix, place in zip(range(2), (near, far), strict=True):
        packed = pack_rows(matrices[matrix])
        memory.memory[place * len(packed) : (place + 1) * len(packed)] = packed
    op = OPS["grouped_gemm"]
    given = {"x": x, "seg_indptr": ints(0, 1, 2), "weight_indices": ints(far, near)}
    specs = {name: spec_of(tensor) for name, tensor in given.items()}
    specs["weight"] = TensorSpec((count, rows, width), "q8_0")
    one = OneOp(backend, op, specs, {}, Tier.PORTABLE, {"weight": "weight"})
    one.bind({"weight": memory})
    one.put(given)
    one.run()
    want = call(op, x, matrices, ints(0, 1, 2), ints(1, 0))
    assert np.asarray(one.result(0)).tobytes() == want.tobytes()
