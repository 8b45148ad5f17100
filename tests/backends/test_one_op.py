"""One op on a backend: what a device refuses is told by its own call, on every way that runs a single op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import samebits
from samebits import functional as F
from samebits.backends.cpu import CpuBackend
from samebits.backends.discovery import get
from samebits.backends.one_op import Finished, OneOp, one_node, run_op, weight_kinds
from samebits.backends.reference import ReferenceBackend, ReferenceExecutable
from samebits.core.errors import BadInput, Unsupported
from samebits.core.format import HostTensor
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.debug.stepper import Stepper
from samebits.graph import Graph
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.verify.harness import execute, same_bytes
from samebits.verify.perf import time_call
from samebits.verify.refusals import Comparisons
from samebits.verify.reruns import rerun_findings
from samebits.verify.soak import soak_findings


class LateExecutable(ReferenceExecutable):
    """Computes and writes whatever it is given, and notes a NaN for the next `sync`."""

    def run(self) -> None:
        super().run()
        inputs = [self._bound[v.name] for v in self._graph.inputs]
        if any(isinstance(x, np.ndarray) and x.dtype == np.float32 and np.isnan(x).any() for x in inputs):
            LateBackend.fault = BadInput("late", "input", "a NaN", "numbers")
        if LateBackend.fails_to_launch:
            raise Unsupported("a kernel could not be launched")


class LateBackend(ReferenceBackend):
    """A device that cannot throw, as GPUs are: one word for all its executables, read when somebody waits."""

    name = "late"
    fault: BadInput | None = None
    fails_to_launch = False

    def compile(self, graph: Graph, tier: Tier) -> LateExecutable:
        return LateExecutable(self, graph, tier)

    def sync(self) -> None:
        fault, LateBackend.fault = LateBackend.fault, None
        if fault is not None:
            raise fault


LATE = f"{__name__}:LateBackend"
T = Tier.PORTABLE
X, BAD = np.ones((2, 4), np.float32), np.full((2, 4), np.nan, np.float32)


@pytest.fixture(autouse=True)
def _no_fault() -> Iterator[None]:
    LateBackend.fault, LateBackend.fails_to_launch = None, False
    yield
    assert LateBackend.fault is None, "a fault was left for the next call"


def step(x: np.ndarray) -> object:
    node = one_node(OPS["add"], dict.fromkeys(("x", "y"), TensorSpec(x.shape, "f32")), {}).nodes[0]
    return Stepper(get(LATE), T).run(node, {"x": x, "y": X})


WAYS: dict[str, Callable[[np.ndarray], object]] = {
    "functional": lambda x: F.add(x, X, backend=LATE),
    "run_op": lambda x: run_op(LateBackend(), bind(OPS["add"], x, X), T),
    "verify": lambda x: execute(LateBackend(), OPS["add"], {"x": x, "y": X}, T),
    "perf": lambda x: time_call(LateBackend(), bind(OPS["add"], x, X), "a case", T),
    "debug": step,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_is_told_by_its_own_call(way: str) -> None:
    with pytest.raises(BadInput, match="late: input is a NaN"):
        WAYS[way](BAD)
    WAYS[way](X)


def test_verify_calls_it_an_error_of_the_run_it_was_in() -> None:
    inputs = {"x": BAD, "y": X}
    assert [f.check for f in soak_findings(LateBackend(), OPS["add"], inputs, T, 3, Comparisons())] == ["error"]
    found = list(rerun_findings(LateBackend(), OPS["add"], {"first": inputs}, T, Comparisons()))
    assert {f.check for f in found} == {"error"}
    assert list(soak_findings(LateBackend(), OPS["add"], {"x": X, "y": X}, T, 3, Comparisons())) == []


def test_after_a_refusal_nothing_given_is_changed() -> None:
    """The device has written both results by the time it says no."""
    x, residual, weight = BAD.copy(), X.copy(), np.ones(4, np.float32)
    with pytest.raises(BadInput, match="late"):
        F.fused_add_rms_norm(x, residual, weight, backend=LATE)
    assert (x.tobytes(), residual.tobytes()) == (BAD.tobytes(), X.tobytes())
    F.fused_add_rms_norm(X.copy(), residual, weight, backend=LATE)
    assert (residual == 2).all()


def test_rope_in_place_writes_both_or_none() -> None:
    q, k = np.ones((2, 1, 4), np.float32), np.full((2, 1, 4), np.nan, np.float32)
    with pytest.raises(BadInput, match="late"):
        F.apply_llama31_rope_pos_ids_inplace(q, k, np.array([3, 5], np.int32), backend=LATE)
    assert (q == 1).all()


def test_an_error_of_the_launch_comes_first_and_takes_the_refusal_with_it() -> None:
    LateBackend.fails_to_launch = True
    with pytest.raises(Unsupported, match="could not be launched") as caught:
        F.add(BAD, X, backend=LATE)
    assert caught.value.__notes__ == ["and while waiting for late: late: input is a NaN, but must be numbers"]


def test_an_interrupted_call_leaves_no_refusal() -> None:
    def interrupted() -> None:
        with Finished(LateBackend()):
            LateBackend.fault = BadInput("late", "input", "a NaN", "numbers")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_run_op_writes_into_nothing_that_was_given() -> None:
    op = OPS["append_paged_kv_cache"]
    inputs, same = make_inputs(op, op.cases[0]), make_inputs(op, op.cases[0])
    results = run_op(ReferenceBackend(), bind(op, **inputs), T)
    assert same_bytes(inputs["k_cache"], same["k_cache"])
    assert [same_bytes(got, want) for got, want in zip(results, evaluate(bind(op, **same)), strict=True)] == [True] * 2


def test_what_a_model_loads_as_weights() -> None:
    loaded = {(op.name, name) for op in OPS for name in weight_kinds(op)}
    products = {(name, "weight") for name in ("gemm", "grouped_gemm", "head_gemm", "gemm_q8", "gemm_silu_q8")}
    experts = {(name, "weight") for name in ("expert_gemm", "expert_gemm_q8", "expert_gate_q8")}
    assert loaded == products | experts | {("embedding", "table")}


def test_open_sizes_and_results_in_memory_of_the_callers() -> None:
    backend = CpuBackend()
    spec = TensorSpec((Sym("T", 8), 4), "f32")
    one = OneOp(backend, OPS["add"], {"x": spec, "y": spec}, {}, T)
    ((index, value),) = one.own_results().items()
    for rows in (2, 5):
        x: HostTensor = np.full((rows, 4), rows, np.float32)
        target = backend.alloc(TensorSpec((rows, 4), "f32"))
        one.put({"x": x, "y": x})
        one.bind({value.name: target})
        one.run({"T": rows})
        assert np.array_equal(backend.copy_out(target), 2 * x)
        assert np.array_equal(one.result(index), 2 * x)


def test_a_graph_by_hand_is_built_nowhere_else() -> None:
    """A second way to run one op would be a second way to forget a refusal."""
    package = Path(samebits.__file__).parent
    builders = {str(p.relative_to(package)) for p in package.rglob("*.py") if "GraphBuilder()" in p.read_text()}
    assert builders == {"backends/one_op.py", "ops/build.py"}
