"""Memory of the in-tree backends: copies round-trip, views are lazy, nothing has an address."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.backends.interface import Backend
from samebits.backends.null import NullBackend, TiledBuffer
from samebits.backends.reference import ReferenceBackend
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import Sym, TensorSpec
from samebits.ops.cases import in_format
from samebits.ops.evaluate import spec_of

BACKENDS = [ReferenceBackend(), NullBackend()]


def raw(x: HostTensor) -> bytes:
    return (x.data if isinstance(x, Packed) else x).tobytes()


@pytest.fixture(params=BACKENDS, ids=lambda b: b.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16", "q8_0", "q4_k", "nvfp4", "mxfp4"])
@pytest.mark.parametrize("shape", [(3, 256), (2, 5, 512), (0, 256), (70, 256)])
def test_copy_in_then_out_gives_the_same_bytes(backend: Backend, fmt: str, shape: tuple[int, ...]) -> None:
    host = in_format(Stream("memory").normal(shape), fmt)
    buffer = backend.alloc(spec_of(host))
    backend.copy_in(buffer, host)
    out = backend.copy_out(buffer)
    assert spec_of(out) == spec_of(host)
    assert raw(out) == raw(host)
    if isinstance(host, Packed) and isinstance(out, Packed):
        assert out.scale == host.scale


def test_the_host_tensor_may_be_reused_after_copy_in(backend: Backend) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = backend.alloc(spec_of(host))
    backend.copy_in(buffer, host)
    host[:] = -1
    assert backend.copy_out(buffer).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_views_are_lazy_chains_that_resolve_and_materialize(backend: Backend) -> None:
    host = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    buffer = backend.alloc(spec_of(host))
    backend.copy_in(buffer, host)
    view = backend.view(backend.view(buffer, ("permute", (1, 0, 2))), ("slice", 0, 1, 3))
    view = backend.view(view, ("reshape", (4, 4)))
    want = host.transpose(1, 0, 2)[1:3].reshape(4, 4)
    assert view.spec.shape == (4, 4)
    assert backend.copy_out(view).tolist() == want.tolist()
    assert backend.copy_out(backend.materialize(view)).tolist() == want.tolist()


def test_a_unified_cache_is_split_by_a_view_in_a_block_format(backend: Backend) -> None:
    cache = in_format(Stream("kv").normal((5, 2, 4, 3, 64)), "q8_0")
    buffer = backend.alloc(spec_of(cache))
    backend.copy_in(buffer, cache)
    values = backend.copy_out(backend.view(buffer, ("slice", 1, 1, 2)))
    assert raw(values) == raw(cache[:, 1:2])


@pytest.mark.parametrize(
    "step", [("slice", 1, 0, 32), ("permute", (1, 0)), ("reshape", (3, 70)), ("slice", 0, 2, 9), ("flip", 0)]
)
def test_a_view_that_does_not_fit_or_cuts_a_block_is_refused(backend: Backend, step: tuple) -> None:
    buffer = backend.alloc(TensorSpec((3, 64), "q8_0"))
    with pytest.raises(BadInput, match="view: step"):
        backend.view(buffer, step)


def test_copy_in_of_another_shape_is_refused(backend: Backend) -> None:
    buffer = backend.alloc(TensorSpec((3, 64), "f32"))
    with pytest.raises(BadInput, match=r"copy_in: host is f16\[3, 64\], but must be f32\[3, 64\]"):
        backend.copy_in(buffer, np.zeros((3, 64), np.float16))


def test_buffers_of_another_backend_are_refused() -> None:
    reference, null = BACKENDS
    with pytest.raises(BadInput, match="a buffer of this backend"):
        reference.copy_out(null.alloc(TensorSpec((1,), "f32")))
    with pytest.raises(BadInput, match="a buffer of this backend"):
        null.copy_out(reference.alloc(TensorSpec((1,), "f32")))


def test_symbolic_dimensions_are_allocated_at_their_bound(backend: Backend) -> None:
    buffer = backend.alloc(TensorSpec((Sym("T", 7), 4), "f32"))
    assert backend.copy_out(buffer).shape == (7, 4)


def test_null_memory_is_tiled_and_cannot_be_mapped() -> None:
    buffer = TiledBuffer(TensorSpec((33, 32), "u8"))
    host = np.arange(33 * 32).astype(np.uint8).reshape(33, 32)
    NullBackend().copy_in(buffer, host)
    assert buffer._tiles.shape == (2, 1, 32, 32)
    with pytest.raises(BadInput, match="this memory has no address"):
        np.asarray(buffer)
