"""The worker as a process: answers, reasons, an end that is noticed; and finding peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from samebits.bench import peer as peer_module
from samebits.bench.peer import WORKER, WorkerPeer, open_peer
from samebits.bench.results import Row
from samebits.core.errors import Unavailable, UnknownName
from samebits.models.checkpoint import open_checkpoint

LOAD = {"path": "m.gguf", "threads": 2, "shape": {}}
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
        open_peer("vllm", None, checkpoint, 1)
    monkeypatch.setattr(peer_module, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"llama_cpp is not installed here; .* --peer-python"):
        open_peer("llama.cpp", None, checkpoint, 1)


def test_llama_bench_is_asked_for_one_row_at_a_time(
    bench_model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps([{"avg_ns": 2_500_000_000, "build_number": 7}])
    tool = tmp_path / "llama-bench"
    tool.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{answer}'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(peer_module, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    peer = open_peer("llama.cpp", None, open_checkpoint(bench_model_file), 3)
    assert peer.seconds(Row("decode", 32, depth=512), "bf16 fa") == 2.5
    asked = (tmp_path / "asked").read_text()
    assert "-t 3 -p 0 -n 32 -d 512 -ctk bf16 -ctv bf16 -fa 1 -r 1 -o json" in asked
    assert peer.facts["version"] == "llama-bench build 7"
    with pytest.raises(Unavailable, match="one sequence"):
        peer.seconds(Row("decode", 32, num_sequences=8), "f16")
