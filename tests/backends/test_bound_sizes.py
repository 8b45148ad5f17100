"""A run refuses memory that is smaller than its sizes, on every backend and in whatever order both were given."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.backends.discovery import get
from samebits.backends.interface import Backend, Executable
from samebits.core.errors import BadInput, Unavailable
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.ops.build import OpBuilder

WIDTH, LIMIT = 8, 64
T = Sym("T", LIMIT)


def available(name: str) -> Backend:
    try:
        found = get(name)
    except Unavailable as error:
        pytest.skip(str(error))
    assert found.backend is not None
    return found.backend


@pytest.fixture(params=["cpu", "reference", "null", "webgpu"])  # "cuda": tests/triton/test_gpu_backend.py
def backend(request: pytest.FixtureRequest) -> Backend:
    return available(request.param)


def compiled(backend: Backend) -> Executable:
    """soft_cap(x) + x over x [T, WIDTH]: its one result is of open size too."""
    b = OpBuilder()
    x = b.input("x", TensorSpec((T, WIDTH), "f32"))
    graph = b.finish(b.add(b.soft_cap(x, cap=2.0), x))
    return backend.compile(graph, Tier.NONE if backend.name == "null" else Tier.PORTABLE)


def bind(backend: Backend, executable: Executable, name: str, rows: int) -> None:
    buffer = backend.alloc(TensorSpec((rows, WIDTH), "f32"))
    backend.copy_in(buffer, np.full((rows, WIDTH), rows, np.float32))
    executable.bind(name, buffer)


def run(backend: Backend, executable: Executable) -> None:
    executable.run()
    backend.sync()


def test_fewer_rows_than_the_step_has_are_refused_by_name(backend: Backend) -> None:
    executable = compiled(backend)
    bind(backend, executable, "x", 4)
    executable.prepare({"T": LIMIT})
    with pytest.raises(
        BadInput, match=rf"x is memory of 4 rows \(f32\[4, {WIDTH}\]\), but must be 64 rows, for T = 64"
    ):
        executable.run()
    executable.prepare({"T": 4})
    run(backend, executable)
    executable.prepare({"T": 5})  # memory that was large enough for the run before
    with pytest.raises(BadInput, match="must be 5 rows, for T = 5"):
        executable.run()
    bind(backend, executable, "x", 5)  # sizes first, then memory
    run(backend, executable)


def test_memory_of_a_view_and_of_a_result_counts_too(backend: Backend) -> None:
    executable = compiled(backend)
    output = "add.1"
    bind(backend, executable, "x", 6)
    bind(backend, executable, output, 6)
    executable.prepare({"T": 6})
    run(backend, executable)
    bind(backend, executable, output, 5)
    with pytest.raises(BadInput, match=r"add.1 is memory of 5 rows .* must be 6 rows"):
        executable.run()
    bind(backend, executable, output, 6)
    whole = backend.alloc(TensorSpec((9, WIDTH), "f32"))
    executable.bind("x", backend.view(whole, ("slice", 0, 2, 5)))
    with pytest.raises(BadInput, match=r"x is memory of 3 rows .* must be 6 rows"):
        executable.run()


def test_a_size_with_a_factor_is_compared_as_the_tensor_has_it() -> None:
    backend, b = available("cpu"), OpBuilder()
    x = b.input("x", TensorSpec((Sym("T", LIMIT, 2, 1), WIDTH), "f32"))
    executable = backend.compile(b.finish(b.scale(x, factor=2.0)), Tier.PORTABLE)
    bind(backend, executable, "x", 7)
    executable.prepare({"T": 3})
    run(backend, executable)
    executable.prepare({"T": 4})
    with pytest.raises(BadInput, match="must be 9 rows, for T = 4"):
        executable.run()


def test_memory_with_longer_rows_than_the_step_has_is_refused(backend: Backend) -> None:
    """Its rows lie further apart than those of the step."""
    b = OpBuilder()
    x = b.input("x", TensorSpec((4, T), "f32"))
    graph = b.finish(b.scale(x, factor=2.0))
    executable = backend.compile(graph, Tier.NONE if backend.name == "null" else Tier.PORTABLE)
    executable.bind("x", backend.alloc(TensorSpec((4, LIMIT), "f32")))
    executable.prepare({"T": 10})
    with pytest.raises(BadInput, match=r"x is memory of 64 entries along axis 1 .* must be 10 entries along axis 1"):
        executable.run()
    executable.prepare({"T": LIMIT})
    run(backend, executable)
