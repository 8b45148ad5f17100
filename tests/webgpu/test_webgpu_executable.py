"""What an executable of the WebGPU backend promises beyond what verify asks: memory under two names, views, sizes."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.backends.interface import Backend, Buffer, Executable
from samebits.backends.one_op import one_node
from samebits.backends.reference import ReferenceBackend
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, copy_tensor
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.step import PAGES
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.ops import OPS, bind, make_inputs
from samebits.ops.build import OpBuilder
from samebits.verify.harness import same_bytes

WIDTH = 8
LIMIT = 16  # rows of a step
ROWS = TensorSpec((Sym("T", LIMIT), WIDTH), "f32")


def numbers(num_rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num_rows, WIDTH), np.float32)


def put(backend: Backend, array: np.ndarray) -> Buffer:
    return backend.adopt(np.ascontiguousarray(array))


def scaled() -> Graph:
    b = OpBuilder()
    return b.finish(b.scale(b.input("x", ROWS), factor=2.0))


def compiled(backend: Backend, graph: Graph, num_rows: int) -> Executable:
    executable = backend.compile(graph, Tier.PORTABLE)
    executable.prepare({"T": num_rows})
    return executable


@pytest.mark.parametrize("first_out", [0, 1, 4])
def test_a_result_may_lie_where_its_input_lies(webgpu: Backend, first_out: int) -> None:
    """The same rows, rows that overlap, and others of one buffer: a dispatch cannot read and write one buffer."""
    executable, whole = compiled(webgpu, scaled(), 4), numbers(8)
    base = put(webgpu, whole)
    executable.bind("x", webgpu.view(base, ("slice", 0, 0, 4)))
    executable.bind("scale.0", webgpu.view(base, ("slice", 0, first_out, first_out + 4)))
    executable.run()
    want = whole.copy()
    want[first_out : first_out + 4] = 2 * whole[:4]
    assert np.array_equal(webgpu.copy_out(base), want)


def test_inputs_and_results_share_one_buffer(webgpu: Backend) -> None:
    b = OpBuilder()
    x, y = b.input("x", ROWS), b.input("y", ROWS)
    executable, whole = compiled(webgpu, b.finish(b.add(x, y), b.mul(x, y)), 2), numbers(8)
    base = put(webgpu, whole)
    for number, name in enumerate(("x", "y", "add.0", "mul.1")):
        executable.bind(name, webgpu.view(base, ("slice", 0, 2 * number, 2 * number + 2)))
    executable.run()
    x_rows, y_rows = whole[:2], whole[2:4]
    assert np.array_equal(webgpu.copy_out(base), np.concatenate([x_rows, y_rows, x_rows + y_rows, x_rows * y_rows]))


def test_memory_that_moves_apart_again_is_used_in_place(webgpu: Backend) -> None:
    executable, host = compiled(webgpu, scaled(), 4), numbers(4)
    shared, apart = put(webgpu, host), put(webgpu, np.zeros_like(host))
    for target in (shared, apart, shared):
        webgpu.copy_in(shared, host)
        executable.bind("x", shared)
        executable.bind("scale.0", target)
        executable.run()
        assert np.array_equal(webgpu.copy_out(target), 2 * host)


def test_views_of_any_kind_are_read_and_written(webgpu: Backend) -> None:
    executable, host = compiled(webgpu, scaled(), 4), numbers(4)
    source, target = put(webgpu, host.T), put(webgpu, np.zeros((4, 2 * WIDTH), np.float32))
    executable.bind("x", webgpu.view(source, ("permute", (1, 0))))
    executable.bind("scale.0", webgpu.view(target, ("slice", 1, 3, 3 + WIDTH)))
    executable.run()
    after = webgpu.copy_out(target)
    assert np.array_equal(after[:, 3 : 3 + WIDTH], 2 * host)
    assert not after[:, :3].any()
    assert not after[:, 3 + WIDTH :].any()


def test_an_input_may_be_an_output(webgpu: Backend) -> None:
    b = OpBuilder()
    x, ids = b.input("x", ROWS), b.input("ids", TensorSpec((Sym("T", LIMIT),), "i32"))
    executable = webgpu.compile(b.finish(x, b.scale(x, factor=2.0), ids), Tier.PORTABLE)
    host, numbered = numbers(3), np.arange(3, dtype=np.int32)
    assert executable.feed({"x": host, "ids": numbered})
    executable.run()
    got = [webgpu.copy_out(executable.output(i)) for i in range(3)]
    assert np.array_equal(got[0], host)
    assert np.array_equal(got[1], 2 * host)
    assert np.array_equal(got[2], numbered)


def test_small_arrays_may_lie_apart(webgpu: Backend) -> None:
    """Kernels bind those of a step at once; one that is an output too has memory of its own."""
    op = OPS["append_paged_kv_cache"]
    bound = bind(op, **make_inputs(op, op.cases[0]))
    alone = one_node(op, bound.specs, bound.attrs)
    (positions,) = (v for v in alone.inputs if v.name == "positions")
    graph = Graph(alone.inputs, alone.nodes, (*alone.outputs, positions))
    found: list[list[HostTensor]] = []
    for backend in (webgpu, ReferenceBackend()):
        executable = backend.compile(graph, Tier.PORTABLE)
        for name, tensor in bound.tensors.items():
            executable.bind(name, backend.adopt(copy_tensor(tensor)))
        executable.run()
        found.append([backend.copy_out(executable.output(i)) for i in range(len(graph.outputs))])
    assert all(same_bytes(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_sizes_change_from_run_to_run(webgpu: Backend) -> None:
    """None at all among them; and what was fed, then bound, then fed again."""
    executable = webgpu.compile(scaled(), Tier.PORTABLE)
    for num_rows in (5, 0, LIMIT, 1, 0):
        host = numbers(num_rows, num_rows)
        if num_rows % 2:
            assert executable.feed({"x": host})
        else:
            executable.bind("x", put(webgpu, host))
            executable.prepare({"T": num_rows})
        executable.run()
        assert np.array_equal(webgpu.copy_out(executable.output(0)), 2 * host)


def test_few_schedules_serve_all_numbers_of_page_ids(webgpu: Backend) -> None:
    b = OpBuilder()
    x = b.input("x", ROWS)
    b.input(PAGES, TensorSpec((Sym("NI", 64),), "i32"))
    executable = webgpu.compile(b.finish(b.scale(x, factor=2.0)), Tier.PORTABLE)
    made = []
    for num_rows, num_pages in ((4, 5), (4, 8), (3, 8), (4, 9)):
        assert executable.feed({"x": numbers(num_rows), PAGES: np.zeros(num_pages, np.int32)})
        made.append(executable.dispatches())
    assert made[0] is made[1]
    assert made[2] is not made[0]
    assert made[3] is not made[0]


def test_what_does_not_fit_is_refused_before_anything_is_written(webgpu: Backend) -> None:
    b = OpBuilder()
    x, ids = b.input("x", ROWS), b.input("ids", TensorSpec((Sym("T", LIMIT),), "i32"))
    executable = webgpu.compile(b.finish(b.scale(x, factor=2.0), ids), Tier.PORTABLE)
    with pytest.raises(BadInput, match=r"nothing bound to .*, but must be memory for every input"):
        executable.run()
    with pytest.raises(BadInput, match=r"webgpu: T is 17, but must be from 0 to 16"):
        executable.prepare({"T": LIMIT + 1})
    with pytest.raises(BadInput, match="webgpu: T is no size"):
        executable.prepare({})
    with pytest.raises(BadInput, match=r"17"):
        executable.feed({"x": numbers(4), "ids": np.zeros(LIMIT + 1, np.int32)})
    with pytest.raises(BadInput, match="must be a buffer of this backend"):
        executable.bind("x", Buffer())
