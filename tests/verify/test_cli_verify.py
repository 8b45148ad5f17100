"""`samebits verify` as a user runs it: exit status, messages and the files it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import samebits
from samebits.backends.discovery import default_name
from samebits.cli.main import main
from samebits.core.errors import BadInput
from samebits.core.files import write_atomically
from samebits.ops import OPS
from samebits.verify.coverage import stated_classes
from samebits.verify.select import op_tasks

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "samebits.cli.main", "verify", "-j", "1"]
TIERS = ("fast", "invariant", "portable")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE), "COLUMNS": "80"}


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--backend", "reference", *arguments], capture_output=True, text=True, timeout=60, env=environment()
    )


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same in this process, whose imports are made, and a worker's."""
    monkeypatch.setenv("COLUMNS", "80")

    def in_here(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["samebits", *COMMAND[3:], *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return subprocess.CompletedProcess(sys.argv, int(stop.value.code or 0), output.out, output.err)

    return in_here


def verdicts(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text())["results"]


def test_the_reference_passes_and_every_file_says_so(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("output", "html", "certificate")}
    options = [text for name, file in files.items() for text in (f"--{name}", str(file))]
    done = process("--op", "split_heads", "--seed", "3", *options)
    assert done.returncode == 0, done.stderr
    assert "; proven for split_heads: fast, invariant, portable\n" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(files)

    report = json.loads(files["output"].read_text())
    assert report["device"].startswith("numpy")
    assert report["numerics_version"] == samebits.NUMERICS_VERSION
    cases = [t.case for t in op_tasks("reference", TIERS, OPS["split_heads"], full=False, seed=3)]
    ran = {(r["op"], r["case"], r["tier"]) for r in report["results"]}
    assert ran == {("split_heads", c, t) for c in cases for t in TIERS}
    assert {(r["status"], r["reason"]) for r in report["results"]} == {("pass", "")}
    assert (report["set"], report["seeds"]) == ("part", [3, 3])
    assert "cases drawn with seed 3; another --seed draws others" in done.stdout

    page = files["html"].read_text()
    assert page.startswith("<!doctype html>")
    assert "proven for split_heads: fast, invariant, portable" in page

    proof = json.loads(files["certificate"].read_text())
    assert proof["certificate"] == "samebits-conformance"
    assert proof["proven_tiers"] == []  # one op is not the quick set
    assert proof["proven"]["portable"] == {"proven": ["split_heads"], "unsupported": [], "not_proven": []}
    assert (proof["set"], proof["drawn"], proof["selection"]) == ("part", "quick", {"op": "split_heads"})
    about = proof["environment"]
    assert about["cpu"]
    assert len(about["kernels_sha256"]) == len(about["native_sha256"]) == 64
    assert {"commit", "driver", "samebits"} <= about.keys()
    assert proof["counts"]["portable"] == {"pass": len(cases)}
    assert (proof["failed"], proof["unsupported"]) == ([], [])
    covered = proof["coverage"]["split_heads"]["portable"]
    assert covered["classes"] == covered["of"] == len(stated_classes(OPS["split_heads"]))
    assert covered["reached"]["x"] == ["f32", "f16", "bf16"]
    assert len(proof["verdicts_sha256"]) == 64


def test_a_defect_is_exit_status_1_with_reason_and_replay_in_every_file(run: Run, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("output", "html", "certificate")}
    options = [text for name, file in files.items() for text in (f"--{name}", str(file))]
    done = run("--backend", "planted:BatchDependent", "--op", "gemm", "--case", "small-f32", *options)
    assert done.returncode == 1
    replay = "samebits verify --backend planted:BatchDependent --op gemm --case small-f32"
    assert f"     replay: {replay}\n" in done.stdout
    assert "fail gemm/small-f32 at portable: batch-size: y (8 rows along T" in done.stdout
    by_tier = {r["tier"]: r for r in verdicts(files["output"])}
    assert {t: r["status"] for t, r in by_tier.items()} == {"fast": "pass", "invariant": "fail", "portable": "fail"}
    assert by_tier["portable"]["replay"] == replay
    assert [f["check"] for f in by_tier["portable"]["findings"]] == ["batch-size"]
    assert "2 fail, 0 unsupported; proven for gemm/small-f32: fast\n" in done.stdout
    proof = json.loads(files["certificate"].read_text())
    assert proof["proven"]["fast"]["proven"] == proof["proven"]["portable"]["not_proven"] == ["gemm/small-f32"]
    assert [f[:3] for f in proof["failed"]] == [["gemm", "small-f32", "invariant"], ["gemm", "small-f32", "portable"]]
    assert "batch-size: y (8 rows along T" in files["html"].read_text()


def test_text_that_looks_like_markup_is_printed_as_it_is(run: Run, tmp_path: Path) -> None:
    done = run("--backend", "planted:Raises", "--op", "mul", "--case", "small-f32", "--html", str(tmp_path / "page"))
    assert done.returncode == 1
    assert "error: RuntimeError: launch failed: invalid argument [/usr/lib]\n" in done.stdout


def test_a_refuted_tier_is_not_proven(run: Run, tmp_path: Path) -> None:
    chosen = ["--op", "scale", "--case", "small-f16"]
    done = run("--backend", "planted:Refuted", *chosen, "--certificate", str(tmp_path / "proof"))
    assert done.returncode == 0
    proof = json.loads((tmp_path / "proof").read_text())
    assert [tier for tier in TIERS if proof["proven"][tier]["proven"]] == ["fast", "invariant"]
    assert "proven for scale/small-f16: fast, invariant; unsupported at portable: scale/small-f16" in done.stdout
    assert {tuple(u[2:]) for u in proof["unsupported"]} == {
        ("portable", "planted cannot keep portable: sums are contracted")
    }


def test_a_backend_that_computes_nothing_is_unsupported_with_a_reason_and_exit_status_1(
    run: Run, tmp_path: Path
) -> None:
    done = run(
        "--backend", "null", "--op", "mul", "--output", str(tmp_path / "r"), "--certificate", str(tmp_path / "c")
    )
    assert done.returncode == 1
    assert "proven: nothing; unsupported: mul" in done.stdout
    assert {r["status"] for r in verdicts(tmp_path / "r")} == {"unsupported"}
    assert all("claims only none" in r["reason"] for r in verdicts(tmp_path / "r"))
    assert json.loads((tmp_path / "c").read_text())["proven_tiers"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--op conv9", "unknown op 'conv9'; known: add"),
        ("--op [/b]", "unknown op '[/b]'"),
        ("--op add --case nine", "unknown case of add 'nine'; known: "),
        ("--op graph --case nine", "unknown graph 'nine'; of "),
        ("--op add --case K=many", "case: K is many, but must be 1 or 2 or 3..4"),
        ("--case small-f32", "--case is small-f32, but needs --op as well"),
        ("--op add --tier loose", "numerics tier is 'loose', but must be one of fast, invariant, portable"),
        ("--op add --tier none", "--tier is 'none', but must be one of fast, invariant, portable"),
        ("--backend abacus", "unknown backend 'abacus'; known: "),
        ("--backend planted:Nothing --op add", "backend planted:Nothing: failed to load: AttributeError"),
        ("--backend nowhere:Nothing --op add", "backend nowhere:Nothing: failed to load: ModuleNotFoundError"),
        ("--op gemm --m many", "--m is 'many', but must be a whole number up to 1048576"),
        ("--op gemm --m -1", "--m is '-1', but must be a whole number"),
        ("--op gemm --m ²", "--m is '²', but must be a whole number"),
        ("--op gemm --m 1048577", "--m is '1048577', but must be a whole number"),
        ("--op gemm --depth 3", "--depth is a size, but must be one of gemm's: "),
        ("--op gemm --m", "argument is '--m', but must be a known option, or a size as --name VALUE"),
        ("--m 3", "--m is a size, but needs --op, and no --case"),
        ("--op gemm --case small-f32 --m 3", "--m is a size, but needs --op, and no --case"),
        ("--op paged_attention --page_size 0", "a head or page size is 0, but must be 1 or more"),
        ("--op paged_attention --num_heads 5 --num_kv_heads 2", "--num_heads is 5, but must be a multiple of"),
        ("--op add --output /nowhere/at/all", "--output is /nowhere/at/all, but must be a file in a folder"),
        ("--op add --html /", "--html is /, but must be a file in a folder that exists"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["samebits", "verify", *arguments.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    output = capsys.readouterr()
    assert (stop.value.code, output.out) == (2, "")
    assert output.err.startswith(f"error: {message}")
    assert output.err.count("\n") == 1


def test_a_mistake_is_the_same_in_a_process_of_its_own() -> None:
    done = process("--op", "conv9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown op 'conv9'; known: add")


@pytest.mark.parametrize(
    ("op", "sizes"),
    [
        ("gemm", "--m 32 --n 128 --k 64"),
        ("rms_norm", "--num_tokens 16 --hidden_size 128"),
        (
            "paged_attention",
            "--batch_size 2 --length 33 --num_heads 4 --num_kv_heads 2 --head_size 32 --num_tokens 3 --page_size 16",
        ),
        ("append_paged_kv_cache", "--batch_size 2 --length 20 --num_kv_heads 2 --head_size 32 --num_tokens 3"),
    ],
)
def test_sizes_make_a_case(op: str, sizes: str, run: Run, tmp_path: Path) -> None:
    done = run("--op", op, *sizes.split(), "--seed", "7", "--output", str(tmp_path / "r"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {(r["op"], r["case"], r["status"]) for r in verdicts(tmp_path / "r")} == {(op, "sizes", "pass")}


def test_a_failure_at_given_sizes_is_replayed_with_them(run: Run) -> None:
    done = run("--backend", "planted:BatchDependent", "--op", "gemm", "--m", "3", "--k", "96", "--seed", "5")
    assert done.returncode == 1
    assert "replay: samebits verify --backend planted:BatchDependent --op gemm --m 3 --k 96 --seed 5\n" in done.stdout


def test_a_row_of_the_space_is_a_case_and_its_own_replay(run: Run, tmp_path: Path) -> None:
    rows = ("rows=5,K=7,x=f16", "reruns:rows=5,K=7", "soak:rows=1,K=7")
    for case in rows:
        done = run("--op", "scale", "--case", case, "--output", str(tmp_path / "r"))
        assert done.returncode == 0, done.stdout + done.stderr
        prefix = case.partition("rows")[0]
        assert {r["case"].startswith(f"{prefix}rows=") for r in verdicts(tmp_path / "r")} == {True}
    done = run("--backend", "planted:BatchDependent", "--op", "gemm", "--case", "T=9,N=8,weight=f32")
    assert done.returncode == 1
    assert (
        "replay: samebits verify --backend planted:BatchDependent --op gemm --case T=9,N=8,K=512,tail=0" in done.stdout
    )


def test_a_graph_is_chosen_by_name(run: Run, tmp_path: Path) -> None:
    done = run("--op", "graph", "--case", "rows-0", "--tier", "portable", "--output", str(tmp_path / "r"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(r["op"], r["case"], r["status"]) for r in verdicts(tmp_path / "r")] == [("graph", "rows-0", "pass")]


def test_hours_go_on_with_further_seeds(run: Run, tmp_path: Path) -> None:
    chosen = ["--op", "merge_heads", "--tier", "fast"]
    done = run(*chosen, "--hours", "0.0001", "--output", str(tmp_path / "r"))
    assert done.returncode == 0, done.stdout + done.stderr
    first, last = json.loads((tmp_path / "r").read_text())["seeds"]
    assert first == 0
    assert f"cases drawn with seeds 0 to {last}" in done.stdout if last else "seed 0" in done.stdout
    own = {t.case for t in op_tasks("reference", ("fast",), OPS["merge_heads"], full=False, seed=last)}
    assert own <= {r["case"] for r in verdicts(tmp_path / "r")}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the workers")
def test_an_interrupted_run_reports_what_ran_and_leaves_no_certificate_and_no_worker(tmp_path: Path) -> None:
    files = ["--output", str(tmp_path / "r"), "--certificate", str(tmp_path / "c")]
    options = ["--backend", "planted:Hang", "--op", "mul", *files]
    process = subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 30
    started: list[str] = []
    # two children: the worker, which must have been told what to do, and the tracker of its resources
    while not (len(started) == 2 and any("numpy" in _maps_of(pid) for pid in started)):
        assert time.monotonic() < deadline, f"children: {started}"
        time.sleep(0.05)
        started = children.read_text().split()
    process.send_signal(signal.SIGINT)
    output = b"".join(process.communicate(timeout=20))
    assert process.returncode == 130
    assert b"Traceback" not in output
    assert re.search(rb"; proven: nothing, since \d+ cases did not run\n", output)
    report = json.loads((tmp_path / "r").read_text())
    assert (report["proven"], report["num_missing"] > 0) == ({}, True)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    assert json.loads((tmp_path / "r").read_text())["set"] == "part"
    assert not [pid for pid in started if b"spawn_main" in _command_of(pid)]


def test_a_case_without_an_answer_is_neither_a_pass_nor_a_failure(run: Run, tmp_path: Path) -> None:
    chosen = ["--op", "mul", "--case", "small-f32", "--time-limit", "0.5", "--certificate", str(tmp_path / "c")]
    done = run("--backend", "planted:Hang", *chosen)
    assert done.returncode == 3
    assert "0 pass, 0 fail, 0 unsupported, 3 unfinished; proven: nothing\n" in done.stdout
    assert "unfinished mul/small-f32 at portable: no answer within " in done.stdout
    proof = json.loads((tmp_path / "c").read_text())
    assert [u[:3] for u in proof["unfinished"]] == [["mul", "small-f32", tier] for tier in TIERS]
    assert proof["proven"]["fast"]["not_proven"] == ["mul/small-f32"]


def test_the_backend_is_that_on_which_models_run_by_default(run: Run, tmp_path: Path) -> None:
    done = run("--op", "scale", "--case", "small-f16", "--output", str(tmp_path / "r"))
    assert done.returncode == 0
    assert json.loads((tmp_path / "r").read_text())["environment"]["backend"] == default_name() == "cpu"


def _maps_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def _command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report"
    target.write_text("old")
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):

        def half(path: Path, text: str, encoding: str, error: BaseException = error) -> None:
            path.write_bytes(text[:2].encode())
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_text", half)
            with pytest.raises((BadInput, KeyboardInterrupt)):
                write_atomically(target, "new content")
        assert [p.name for p in tmp_path.iterdir()] == ["report"]
        assert target.read_text() == "old"


def test_a_folder_in_the_way_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    with pytest.raises(BadInput, match=r"must be a file that can be written"):
        write_atomically(tmp_path / "report", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["report"]
