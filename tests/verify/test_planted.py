"""Every planted defect is caught by the check that names it, at the tiers it breaks, and nothing else is blamed."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import planted
import planted_paged
import pytest

from samebits.backends.discovery import get
from samebits.cli.main import main
from samebits.verify.calibrate import USUAL_SECONDS, slowness
from samebits.verify.examine import examine
from samebits.verify.model import CHECKS, Result, Task
from samebits.verify.pool import Pool, Worker

HERE = Path(__file__).parent
TIERS = ("fast", "invariant", "portable")
ALL, STRICT, LAST = TIERS, TIERS[1:], TIERS[2:]
OTHERS = ("add/small-f32", "scale/small-f16")
DEADLY = ("Crash", "Hang")  # of whatever process they run in
REPLAYED = ("Crash", "BatchDependent")  # by the command in the report; it has the same form for all


@dataclass(frozen=True)
class Defect:
    """Cases that must fail: op/case -> (the check blamed, the tiers that fail); cases that must pass although the
    defective kernel runs them; words the reason must hold; further checks that must be among the findings."""

    backend: str
    fails: dict[str, tuple[str, tuple[str, ...]]]
    passes: tuple[str, ...] = ()
    words: str = ""
    also: frozenset[str] = frozenset()
    limit: float = 60.0


def attention(**fails: tuple[str, tuple[str, ...]]) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {f"paged_attention/{case.replace('_', '-')}": blame for case, blame in fails.items()}


K8, K16 = "paged_attention/k-q8_0-v-q8_0", "paged_attention/k-f16-v-f16"
APPEND = "append_paged_kv_cache"
NAN, VALUES, ERROR = ("nan", ALL), ("values", ALL), ("error", ALL)  # "error": the definition refuses poisoned cells

DEFECTS = [
    Defect("WrongEps", {"rms_norm/small-f32": VALUES}, ("fused_add_rms_norm/small-f32",)),
    Defect("EpsIgnored", {"rms_norm/smollm2-135m": ("bits", LAST)}, ("rms_norm/small-f32",)),
    Defect("StrayWriteBefore", {"mul/small-f32": ("guard", ALL)}, words="z: bytes before the buffer"),
    Defect("StrayWriteAfter", {"silu_and_mul/small-bf16": ("guard", ALL)}, words="y: bytes after the buffer"),
    Defect("StrayWriteAt33Rows", {"mul/small-f32": ("guard", ALL)}, ("mul/empty",), "z: bytes after the buffer"),
    Defect("StrayWriteIntoInput", {"gemm/small-q4_0": ("guard", ALL)}, words="weight: bytes after the buffer"),
    Defect("Unwritten", {"rms_norm/odd-width": ("unwritten", ALL)}, ("rms_norm/small-f32",), "element 256 and 1 more"),
    Defect("InputChanged", {"softmax/small-f32": ("input", ALL)}, words="x: the op changed an input"),
    Defect("BatchDependent", {"gemm/small-f32": ("batch-size", STRICT)}, words="8 rows along T instead of 3"),
    Defect("ThreadDependent", {f"gemm/small-{f}": ("threads", STRICT) for f in ("f32", "f16")}, words="3 threads"),
    Defect("ThreadsRaise", {"gemm/small-f32": ERROR}, words="threads, 2 threads: RuntimeError: no pool"),
    Defect("NeighbourDependent", {"rms_norm/plain": ("batch-size", STRICT)}, also=frozenset({"neighbours"})),
    Defect("PositionDependent", {"rms_norm/plain": ("order", STRICT)}, words="reversed"),
    Defect("Nondeterministic", {"add/small-f32": ("run-to-run", STRICT), "add/small-f16": VALUES}),
    Defect("ContractedMultiplyAdd", {"rms_norm/mul-add": ("bits", LAST)}, ("rms_norm/small-f32",)),
    Defect("FusedUnrounded", {"fused_add_rms_norm/small-f32": ("fusion", LAST)}, ("rms_norm/small-f32",)),
    Defect("TieBreak", {"top_k/ties": VALUES}, ("argmax/ties",), "indices: row 0, rank 1"),
    Defect("ScaleOffInQ4K", {"gemm/small-q4_k": VALUES}, ("gemm/small-q4_0", "gemm/small-q5_k"), "token 0, output 0"),
    Defect("Crash", {"mul/small-f32": ("crash", ALL), "mul/one-row": ("crash", ALL)}, words="SIGSEGV"),
    Defect("Raises", {"mul/small-f32": ("error", ALL)}, words="launch failed: invalid argument [/usr/lib]"),
    Defect("TableIgnored", {K8: ERROR, **attention(contiguous=ERROR)}),
    Defect("OddPagesRounded", {K8: ("batch-size", STRICT)}, words="out", also=frozenset({"pages"})),
    Defect("TableIgnoredByAppend", {f"{APPEND}/f16-bf16": NAN}, (f"{APPEND}/contiguous",), "slot 1, head 0, element 0"),
    Defect("PageEdgeRead", attention(page_edges=VALUES, empty_sequence=("page-size", STRICT)), words="token 1, head 0"),
    Defect("PageEdgeAppend", {f"{APPEND}/page-edge": NAN, f"{APPEND}/unified": NAN}, words="slot 15, head 0"),
    Defect("LastPageLengthIgnored", {K8: ERROR}, words="BadInput: paged_attention: k_cache"),
    Defect("SwappedInHnd", {**attention(hnd=VALUES), K16: ("layout", STRICT)}, words="token 0, head 0"),
    Defect("SwappedInUnifiedAppend", {f"{APPEND}/unified": VALUES}, (f"{APPEND}/hnd",), "K/V 0, slot"),
    Defect("CausalTopLeft", attention(decode=VALUES, whole_prompt=("split", STRICT)), ("paged_attention/not-causal",)),
    Defect("ContiguousShift", {K16: ("contiguous", STRICT), **attention(contiguous=VALUES)}),
    Defect("MaskedNan", {K16: NAN}, words="token 0, head 0, element 0"),
]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def full_name(class_name: str) -> str:
    module = planted if hasattr(planted, class_name) else planted_paged
    return f"{module.__name__}:{class_name}"


def verified(backend: str, cases: list[str], limit: float = 60.0) -> list[Result]:
    """Results of cases, in this process: a worker's imports cost more than most cases do."""
    tasks = [Task(backend, *case.split("/"), TIERS) for case in cases]
    if backend.endswith(DEADLY):
        return [result for results in Pool(backend, 1, limit).run(tasks) for result in results]
    found = get(backend)
    assert found.backend is not None
    assert found.caps is not None
    return [result for task in tasks for result in examine(found.backend, found.caps, task)]


def blamed(results: list[Result]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """op/case -> (check, tiers) of every failure, in the form of the table."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for r in results:
        if r.status == "fail":
            tiers = found.get(f"{r.op}/{r.case}", ("", ()))[1]
            found[f"{r.op}/{r.case}"] = (r.reason.partition(":")[0], (*tiers, r.tier))
    return found


def replayed(result: Result, folder: Path, limit: float, monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """What the command in the report gives, run in this process and its worker."""
    file = folder / "replay.json"
    options = ["-j", "1", "--time-limit", str(limit), "--output", str(file)]
    monkeypatch.setattr(sys, "argv", [*shlex.split(result.replay), *options])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    fields = ("op", "case", "tier", "status", "reason")
    return [Result(**{f: r[f] for f in fields}) for r in json.loads(file.read_text())["results"]]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: d.backend)
def test_a_defect_is_blamed_by_name_and_nothing_else_is(
    defect: Defect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = full_name(defect.backend)
    others = [c for c in OTHERS if c.split("/")[0] not in {f.split("/")[0] for f in defect.fails}]
    cases = [*defect.fails, *defect.passes, *others]
    results = verified(backend, cases, defect.limit)
    assert blamed(results) == defect.fails
    assert sorted((f"{r.op}/{r.case}", r.tier) for r in results) == sorted((c, t) for c in cases for t in TIERS)
    assert {r.status for r in results} == {"pass", "fail"}
    worst = next(r for r in results if r.status == "fail" and r.tier == "portable")
    assert defect.words in worst.reason
    assert "\n" not in worst.reason
    assert defect.also <= {f.check for f in worst.findings}
    assert worst.replay == f"samebits verify --backend {backend} --op {worst.op} --case {worst.case}"
    if defect.backend in REPLAYED:
        again = blamed(replayed(worst, tmp_path, defect.limit, monkeypatch))
        assert again == {f"{worst.op}/{worst.case}": defect.fails[f"{worst.op}/{worst.case}"]}


def test_every_check_has_a_defect_that_it_catches() -> None:
    caught = {check for d in DEFECTS for check, _ in d.fails.values()}.union(*(d.also for d in DEFECTS))
    elsewhere = {"reruns", "soak", "graph", "flush"}  # test_verify_programs.py, test_flush.py
    elsewhere |= {"refused"}  # test_refusals.py
    assert caught | elsewhere == set(CHECKS)


def test_a_refuted_tier_is_unsupported_with_the_reason_and_the_others_are_proven() -> None:
    results = verified("planted:Refuted", list(OTHERS))
    refusal = ("unsupported", "planted cannot keep portable: sums are contracted")
    expected = {"fast": ("pass", ""), "invariant": ("pass", ""), "portable": refusal}
    assert {r.tier: (r.status, r.reason) for r in results} == expected


def test_a_worker_that_dies_between_others_loses_only_its_own_case() -> None:
    cases = ["add/small-f32", "mul/small-f32", "add/small-f16", "mul/one-row", "add/small-bf16"]
    tasks = [Task("planted:Crash", *case.split("/"), TIERS) for case in cases]
    results = [r for batch in Pool("planted:Crash", 2, 60.0).run(tasks) for r in batch]
    assert len(results) == len(cases) * len(TIERS)
    assert {r.op for r in results if r.status == "pass"} == {"add"}
    assert {r.op for r in results if r.status == "fail"} == {"mul"}


def test_a_case_without_an_answer_is_unfinished_and_the_run_goes_on() -> None:
    results = verified("planted:Hang", ["mul/small-f32", "add/small-f32"], limit=1.0)
    assert {(r.op, r.status) for r in results} == {("mul", "unfinished"), ("add", "pass")}
    assert [r.tier for r in results if r.op == "mul"] == list(TIERS)
    stopped = next(r for r in results if r.op == "mul")
    assert stopped.reason.startswith("no answer within ")
    assert stopped.replay == "samebits verify --backend planted:Hang --op mul --case small-f32"


@pytest.mark.parametrize(("now", "is_late"), [(1.0, True), (3.0, False), (2.0, True)])
def test_a_time_limit_grows_with_the_slowness_of_the_machine(
    now: float, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samebits.verify.pool.slowness", lambda: now)
    pool = Pool("reference", 1, case_seconds=100.0)
    worker = Worker(None, None, time.monotonic() - 250.0, Task("reference", "add", "small-f32", TIERS), is_ready=True)
    assert pool._is_late(worker) == is_late


def test_a_machine_is_never_called_faster_than_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 0.0, 0.0, 10 * USUAL_SECONDS))
    monkeypatch.setattr("samebits.verify.calibrate.time.perf_counter", lambda: next(clock))
    assert [slowness(), slowness()] == [1.0, 10.0]


def test_no_worker_is_left_behind() -> None:
    verified("planted:Hang", ["mul/small-f32"], limit=0.3)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children.read_text().split()]
    assert not [c for c in commands if b"spawn_main" in c]
