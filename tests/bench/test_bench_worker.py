"""The worker as a process: answers, reasons, an end that is noticed; and finding peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from samebits.bench import peer as peer_module
from samebits.bench.ours import Settings
from samebits.bench.peer import WORKER, WorkerPeer, open_peer
from samebits.bench.report import peer_line
from samebits.bench.results import Row
from samebits.core.errors import Unavailable, UnknownName
from samebits.models.checkpoint import open_checkpoint

LOAD = {"path": "m.gguf", "threads": 2, "shape": {}, "on_gpu": False}
OURS = Settings("m.gguf", "cpu", threads=3)
COMMAND = [sys.executable, str(WORKER), "bench_fake_peer"]


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture
def worker(on_path: None) -> Iterator[WorkerPeer]:
    with WorkerPeer("fake", COMMAND, LOAD) as opened:
        yield opened


def test_worker_answers_over_its_own_prints(worker: WorkerPeer) -> None:
    assert worker.facts == {"version": "fake for 2 threads"}
    assert worker.settings == ("plain", "odd")
    assert worker.seconds(Row("prefill", 512), "plain") == 5.12
    assert worker.seconds(Row("decode", 3, num_sequences=8, depth=16), "plain") == 24.016


def test_a_worker_that_dies_gives_a_line(worker: WorkerPeer) -> None:
    with pytest.raises(Unavailable, match="fake: the worker ended: loading, on standard output"):
        worker.seconds(Row("decode", 1), "odd")
    with pytest.raises(Unavailable, match="fake: the worker ended"):
        worker.seconds(Row("decode", 1), "plain")


@pytest.mark.usefixtures("on_path")
def test_what_fails_in_the_worker_is_its_reason_in_a_line() -> None:
    with pytest.raises(Unavailable, match=r"^fake: ValueError: cannot read this file$"):
        WorkerPeer("fake", COMMAND, {**LOAD, "path": "broken"})
    with pytest.raises(Unavailable, match="No module named 'no_such_peer'"):
        WorkerPeer("none", [*COMMAND[:2], "no_such_peer"], LOAD)
    with pytest.raises(Unavailable, match="cannot start /no/such/python"):
        WorkerPeer("none", ["/no/such/python"], LOAD)


def test_peers_that_are_not_here_say_what_to_do(bench_model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = open_checkpoint(bench_model_file)
    with pytest.raises(UnknownName, match=r"unknown peer 'vllm'; known: llama\.cpp, transformers"):
        open_peer("vllm", None, checkpoint, OURS)
    monkeypatch.setattr(peer_module, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"llama_cpp is not installed here; .* --peer-python"):
        open_peer("llama.cpp", None, checkpoint, OURS)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a llama-bench on PATH that keeps its arguments in a file and answers with these facts of its build."""

    def put(**facts: object) -> Path:
        answer = json.dumps([{"avg_ns": 2_500_000_000, "build_number": 7, **facts}])
        tool = tmp_path / "llama-bench"
        tool.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{answer}'\n")
        tool.chmod(0o755)
        monkeypatch.setattr(peer_module, "find_spec", lambda name: None)
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path / "asked"

    return put


def test_llama_bench_is_asked_for_one_row_at_a_time(bench_model_file: Path, stand_in: Callable[..., Path]) -> None:
    asked = stand_in(cpu_info="A CPU", gpu_info="", backends="CPU")
    peer = open_peer("llama.cpp", None, open_checkpoint(bench_model_file), OURS)
    assert peer.seconds(Row("decode", 32, depth=512), "bf16 fa") == 2.5
    assert "-t 3 -p 0 -n 32 -d 512 -ngl 0 -ctk bf16 -ctv bf16 -fa 1 -r 1 -o json" in asked.read_text()
    assert peer_line(peer.name, peer.facts) == "llama.cpp: llama-bench build 7, A CPU"
    with pytest.raises(Unavailable, match="one sequence"):
        peer.seconds(Row("decode", 32, num_sequences=8), "f16")


def test_llama_bench_computes_where_we_do(bench_model_file: Path, stand_in: Callable[..., Path]) -> None:
    checkpoint, row = open_checkpoint(bench_model_file), Row("prefill", 512)
    asked = stand_in(gpu_info="NVIDIA H200", backends="CUDA")
    on_cpu = open_peer("llama.cpp", None, checkpoint, OURS)
    on_gpu = open_peer("llama.cpp", None, checkpoint, replace(OURS, backend="cuda"))
    assert on_gpu.seconds(row, "f16") == 2.5
    assert "-ngl 99" in asked.read_text()
    assert on_gpu.facts["device"] == "NVIDIA H200"
    with pytest.raises(Unavailable, match=r"this llama-bench computes on NVIDIA H200 too, and samebits on the CPU"):
        on_cpu.seconds(row, "f16")

    stand_in(gpu_info="", backends="CPU")
    with pytest.raises(Unavailable, match=r"computes on the CPU, and samebits on a GPU; needs a build for the GPU"):
        on_gpu.seconds(row, "f16")
