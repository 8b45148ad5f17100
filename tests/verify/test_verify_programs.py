"""Executables that run again, graphs of several nodes, many launches: ours pass, planted defects are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import planted_programs as p
import pytest

from samebits.backends.discovery import get
from samebits.backends.interface import Backend
from samebits.backends.reference import ReferenceBackend
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.graph import Graph, Node
from samebits.ops import OPS, bind, make_inputs
from samebits.ops.cases import in_format
from samebits.verify.graph_cases import GRAPH_CASES, GraphCase
from samebits.verify.graphs import verify_graph
from samebits.verify.input_sets import calls_of, signature_of
from samebits.verify.model import Finding, Result
from samebits.verify.refusals import Comparisons
from samebits.verify.reruns import rerun_findings
from samebits.verify.soak import soak_case, soak_findings
from samebits.verify.tolerance import is_far

TIERS = ("fast", "invariant", "portable")
BY_ID = {case.id: case for case in GRAPH_CASES}


def reran(backend: Backend, op: str, tier: Tier = Tier.PORTABLE) -> list[Finding]:
    return list(rerun_findings(backend, OPS[op], calls_of(OPS[op], soak_case(OPS[op]), 0), tier, Comparisons()))


def soaked(backend: Backend, op: str, num_runs: int, tier: Tier = Tier.PORTABLE) -> list[Finding]:
    inputs = make_inputs(OPS[op], soak_case(OPS[op]), 0)
    return list(soak_findings(backend, OPS[op], inputs, tier, num_runs, Comparisons()))


def on_graph(backend: Backend, case: str, tiers: tuple[str, ...] = ("portable",)) -> list[Result]:
    return verify_graph(backend, backend.probe(), BY_ID[case], tiers, 0)


MANNERS = BUFFERS, COPIES, ROWS = (
    "other buffers bound",
    "bound buffers copied into",
    "other rows of the same buffers bound",
)
RERUN_DEFECTS = [  # executable, op, the manners that show it, words of the first
    (p.WeightKept, "gemm", (BUFFERS, COPIES, ROWS), "run 2 (other values after first): y: token 0, output 0"),
    (p.WeightKept, "embedding", (BUFFERS, COPIES, ROWS), "run 2 (other values after first): y: token"),
    (p.WeightPacked, "gemm", (COPIES, ROWS), "bound buffers copied into, run 2 (other values after first): y"),
    (p.TableKept, "append_paged_kv_cache", (BUFFERS, COPIES, ROWS), "k_cache: page"),
    (p.FirstGrid, "rms_norm", (BUFFERS, COPIES, ROWS), "run 4 (many rows after first): y: row"),
    (p.StaleTail, "rms_norm", (BUFFERS,), "run 5 (fewer rows after many rows): y: shape"),
    (p.FirstBinding, "add", (BUFFERS, ROWS), "run 2 (other values after first): z: row 0"),
    (p.CopyNotSeen, "add", (COPIES,), "run 2 (other values after first): z: row 0"),
    (p.CopyNotSeen, "top_k", (COPIES,), "run 2 (other values after first): values: row 0"),
]


def test_a_stale_page_table_leads_to_cells_that_nobody_wrote() -> None:
    found = reran(p.planted(p.TableKept), "paged_attention", tier=Tier.PORTABLE)
    assert {f.check for f in found} == {"error"}
    assert sorted({f.where.partition(", run")[0] for f in found}) == sorted(MANNERS)
    assert "BadInput: paged_attention: k_cache" in found[0].where


@pytest.mark.parametrize(("executable", "op", "manners", "words"), RERUN_DEFECTS)
@pytest.mark.parametrize("tier", [Tier.FAST, Tier.PORTABLE], ids=["fast", "portable"])
def test_a_run_that_remembers_another_is_found(
    executable: type[p.HookedExecutable], op: str, manners: tuple[str, ...], words: str, tier: Tier
) -> None:
    found = reran(p.planted(executable), op, tier=tier)
    assert {f.check for f in found} - {"guard"} == {"reruns"}  # "guard": what is no longer bound is written
    assert sorted({f.where.partition(", run")[0] for f in found}) == sorted(manners)
    assert words in found[0].where


GRAPH_DEFECTS = [  # executable, graph, the check, words of the reason
    (p.ValueOfTheRunBefore, "rows-0", "graph", "(add) on, in step 2, which is right alone"),
    (p.SameSizeSkipped, "rows-0", "graph", "(rms_norm) on, in step 8, which is right alone"),
    (p.AttrsOfTheFirst, "rows-0", "graph", "(rms_norm) on, in step 1, which is right alone"),
    (p.AttrsOfTheFirst, "random-1", "graph", "(scale) on, in step 1, which is right alone"),
    (p.OverwrittenTooEarly, "rows-1", "graph", "(add) on, in step 1, which is right alone"),
    (p.StaleTail, "rows-1", "graph", "shape [20, 64] instead of [9, 64]"),
    (p.AliasNotSeen, "random-0", "error", "step 1 of 8 (20 tokens): BadInput: paged_attention"),
    (p.TableKept, "random-0", "error", "step 3 of 8 (3 tokens): BadInput: append_paged_kv_cache"),
]


@pytest.mark.parametrize(("executable", "case", "check", "words"), GRAPH_DEFECTS)
def test_nodes_that_go_wrong_together_are_found_and_named(
    executable: type[p.HookedExecutable], case: str, check: str, words: str
) -> None:
    results = on_graph(p.planted(executable), case, TIERS)
    assert [(r.tier, r.status) for r in results] == [(tier, "fail") for tier in TIERS]
    assert results[0].reason.startswith(f"{check}: ")
    assert words in results[0].reason
    assert results[0].replay == f"samebits verify --backend planted --op graph --case {case}"


def test_a_kernel_that_is_wrong_alone_is_said_to_be() -> None:
    class WrongNorm(p.HookedExecutable):
        def call(self, index: int, node: Node, run: p.Run, **arguments: Any) -> tuple[HostTensor, ...]:
            return run(**{**arguments, "eps": 3.0}) if node.op.name == "rms_norm" else run(**arguments)

    (result,) = on_graph(p.planted(WrongNorm), "rows-0")
    assert "(rms_norm) is wrong alone too: " in result.reason


@pytest.mark.parametrize("op", ["add", "gemm", "top_k"])
def test_one_bad_launch_of_five_hundred_is_found(op: str) -> None:
    (found,) = soaked(p.planted(p.BadLaunch), op, 600)
    assert found.check == "soak"
    assert "of 600: " in found.where


def test_a_last_bit_breaks_no_tolerance_but_the_promise_of_bits() -> None:
    assert [f.check for f in soaked(p.planted(p.BadLastBit), "softmax", 600)] == ["run-to-run"]
    assert soaked(p.planted(p.BadLastBit), "softmax", 600, Tier.FAST) == []


def test_a_stray_write_of_one_launch_is_found() -> None:
    assert [f.check for f in soaked(p.planted(p.StrayLaunch), "add", 600)] == ["guard"]


@pytest.mark.parametrize("case", [case for case in GRAPH_CASES if not case.full], ids=lambda case: case.id)
def test_the_native_backend_passes_on_the_graphs_of_a_quick_run(case: GraphCase) -> None:
    found = get("cpu")
    results = verify_graph(found.backend, found.caps, case, TIERS, 0)
    assert [(r.tier, r.status, r.reason) for r in results] == [(tier, "pass", "") for tier in TIERS]


@pytest.mark.parametrize("case", ["llama-q4_0", "mixture", "rows-0", "random-0", "random-3", "random-4"])
def test_the_reference_passes_on_graphs(case: str) -> None:
    (result,) = on_graph(ReferenceBackend(), case)
    assert (result.status, result.reason) == ("pass", "")


@pytest.mark.parametrize("op", [op.name for op in OPS])
def test_the_native_backend_remembers_nothing_and_repeats_itself(op: str) -> None:
    backend = get("cpu").backend
    assert reran(backend, op) == []
    if op not in ("add_rms_norm_q8", "rope_both_and_append"):  # it has no kernels for them
        assert soaked(backend, op, 20) == []


@pytest.mark.parametrize("op", ["gemm", "rms_norm", "fused_add_rms_norm", "append_paged_kv_cache", "copy_kv_pages"])
def test_the_reference_remembers_nothing_and_repeats_itself(op: str) -> None:
    assert reran(ReferenceBackend(), op) == []
    assert soaked(ReferenceBackend(), op, 20) == []


@pytest.mark.parametrize("fmt", ["nvfp4", "q4_k", "f16"])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_what_is_copied_into_a_bound_tensor_is_seen_with_its_scale(backend: str, fmt: str) -> None:
    op, calls = OPS["gemm"], {}
    for name, seed in (("first", 0), ("other values", 1)):
        values = Stream("copied", seed).normal((20, 256))
        calls[name] = {"x": Stream("x").normal((3, 256)), "weight": in_format(values * np.float32(1 + seed), fmt)}
    assert list(rerun_findings(get(backend).backend, op, calls, Tier.PORTABLE, Comparisons())) == []


def test_what_a_backend_raises_is_a_finding() -> None:
    class Broken(ReferenceBackend):
        def compile(self, graph: Graph, tier: Tier) -> p.ReferenceExecutable:
            if len(graph.nodes) == 1 and graph.inputs[0].spec.shape[0] == 3:
                return super().compile(graph, tier)
            raise TypeError("a size\nthat is no number")

    text = "TypeError: a size that is no number"
    assert [(f.check, f.where) for f in reran(Broken(), "rms_norm")] == [("error", f"{m}: {text}") for m in MANNERS]
    assert [(f.check, f.where) for f in soaked(Broken(), "rms_norm", 20)] == [("error", text)]
    (result,) = on_graph(Broken(), "rows-0")
    assert result.reason == f"error: node for node: {text}"


def test_a_backend_that_lacks_an_op_is_told_which() -> None:
    class Lacking(ReferenceBackend):
        def kernels(self):  # type: ignore[no-untyped-def]
            table = type(super().kernels()[0])("numpy")
            for kernel in super().kernels()[0]:
                if kernel.op.name != "append_paged_kv_cache" and "append" not in kernel.op.name:
                    table.add(kernel)
            return (table,)

    (result,) = on_graph(Lacking(), "llama-q4_0")
    assert result.status == "unsupported"
    assert "has no kernel for append_paged_kv_cache" in result.reason


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_tensors_without_axes_have_no_rows_to_lie_among(backend: str) -> None:
    op, chosen = OPS["softmax"], get(backend).backend
    calls = {
        name: {"x": Stream(name).normal((33,)), "sinks": np.full((), seed, np.float32)}
        for seed, name in enumerate(("first", "other values"))
    }
    assert list(rerun_findings(chosen, op, calls, Tier.PORTABLE, Comparisons())) == []
    assert list(soak_findings(chosen, op, calls["first"], Tier.PORTABLE, 30, Comparisons())) == []
    argmax = {name: {"x": call["x"]} for name, call in calls.items()}  # its result has no axes
    assert list(rerun_findings(chosen, OPS["argmax"], argmax, Tier.PORTABLE, Comparisons())) == []
    assert list(soak_findings(chosen, OPS["argmax"], argmax["first"], Tier.PORTABLE, 30, Comparisons())) == []


def test_a_value_is_far_where_rounding_does_not_explain_it() -> None:
    want = Stream("far").normal((3, 64))
    near, far, holed = want * np.float32(1.02), want.copy(), want.copy()
    far[1] = want[2]
    holed[0, 0] = np.nan
    assert [is_far(x, want) for x in (want, near, far, holed, want[:2])] == [False, False, True, True, True]
    packed = in_format(want, "q4_0")
    assert not is_far(in_format(near, "q4_0"), packed)
    assert is_far(in_format(far, "q4_0"), packed)


def test_calls_of_another_signature_are_refused() -> None:
    op = OPS["gemm"]
    x = Stream("x").normal((3, 64))
    calls = [{"x": x, "weight": in_format(Stream("w").normal((8, 64)), fmt)} for fmt in ("f32", "q4_0")]
    with pytest.raises(BadInput, match="one signature for all"):
        signature_of(op, [bind(op, **call) for call in calls])


def test_random_graphs_reach_what_they_are_for() -> None:
    graphs = [case.make(0) for case in GRAPH_CASES if case.id.startswith("random")]
    ops = {node.op.name for graph in graphs for node in graph.nodes}
    assert {"fused_add_rms_norm", "argmax", "rope", "soft_cap", "gemm", "paged_attention"} <= ops
    for graph in graphs[:6]:
        twice = [n for n, uses in graph.uses.items() if len(uses) > 1 and n not in {v.name for v in graph.inputs}]
        assert twice, "a value that two nodes read"
        interior = [v for v in graph.outputs if graph.uses[v.name][0] < len(graph.nodes)]
        assert interior, "an output that a node reads"
