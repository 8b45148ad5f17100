"""A server of two replicas on Ray Serve: a plain server's answers, also while replicas are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from live_server import Running
from ray_cluster import Cluster

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
VARYING = ("id", "created", "system_fingerprint")
BODIES: dict[str, dict[str, Any]] = {
    "plain": {"prompt": "one two three", "max_tokens": 20, "seed": 3},
    "several": {"prompt": ["a b", "c d"], "n": 2, "max_tokens": 12, "seed": 5, "logprobs": 2, "echo": True},
    "penalties": {"prompt": "x", "max_tokens": 40, "seed": 1, "frequency_penalty": 1.0, "stop": ["e"]},
    "hash": {"prompt": "x y", "max_tokens": 16, "seed": 9, "logits_sha256": True},
    "receipt": {"prompt": "x y", "max_tokens": 16, "seed": 9, "receipt": True},
    "format": {"prompt": "n", "max_tokens": 30, "seed": 2, "guided_regex": "[0-9]{20}"},
    "too long": {"prompt": [5] * 4000, "max_tokens": 2},
    "no such token": {"prompt": [10**6], "max_tokens": 2},
    "bad format": {"prompt": "n", "max_tokens": 3, "guided_regex": "["},
}


def constant(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in VARYING}


@pytest.mark.parametrize("name", BODIES)
def test_answers_and_refusals_are_a_plain_server_s(cluster: Cluster, alone: Running, name: str) -> None:
    with cluster.client() as ours, alone.client() as theirs:
        got, want = (client.post("/v1/completions", json=BODIES[name]) for client in (ours, theirs))
    assert (got.status_code, constant(got.json())) == (want.status_code, constant(want.json()))


def test_the_other_routes_are_a_plain_server_s(cluster: Cluster, alone: Running) -> None:
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 4}
    with cluster.client() as ours, alone.client() as theirs:
        for path, body in (
            ("/v1/chat/completions", chat),
            ("/v1/embeddings", {"input": ["a b c", "d"]}),
            ("/tokenize", {"text": "a b c"}),
        ):
            got, want = (client.post(path, json=body).json() for client in (ours, theirs))
            assert constant(got) == constant(want)
        got, want = (client.get("/v1/models").json()["data"][0] for client in (ours, theirs))
        assert got["max_model_len"] == want["max_model_len"]
        parts, plain_parts = got["system_fingerprint"].split("-"), want["system_fingerprint"].split("-")
        assert [*parts[:5], parts[-1]] == plain_parts  # and the replicas' edition between
        assert ours.get("/").status_code == 200


def test_metrics_and_state_are_those_of_all_replicas(cluster: Cluster) -> None:
    cluster.wait_for(2)
    with cluster.client() as client:
        lines = client.get("/metrics").text.splitlines()
    of_replicas = [line for line in lines if line.startswith("samebits_generated_tokens_total{")]
    assert len(of_replicas) == 2
    state = cluster.state()
    assert state["num_running"] == 0
    assert state["pages"]["all"] > 0  # type: ignore[index]


def test_who_leaves_frees_its_replica(cluster: Cluster) -> None:
    body = {"prompt": "x", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with cluster.client() as client, client.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert cluster.state()["num_running"] == 1
    deadline = time.monotonic() + 30
    while cluster.state()["num_running"]:
        assert time.monotonic() < deadline, "the request still runs"
        time.sleep(0.05)


def streamed(url_client: Any, seed: int, max_tokens: int) -> tuple[list[str], str | None]:
    """The pieces of a streamed answer, and why it ended."""
    body = {
        "prompt": f"stream {seed}",
        "max_tokens": max_tokens,
        "seed": seed,
        "ignore_eos": True,
        "stream": True,
        "logits_sha256": True,
    }
    texts, end = [], None
    with url_client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line[6:])["choices"]
                texts.append(choice["text"])
                end = choice.get("logits_sha256") or end
    return texts, end


def by_load(pids: list[int]) -> list[int]:
    """Processes in the order of the processor time that they take just now, the busiest first."""

    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])  # in user mode and in the kernel

    before = {pid: ticks(pid) for pid in pids}
    time.sleep(0.1)
    return sorted(pids, key=lambda pid: before[pid] - ticks(pid))


def test_no_answer_is_lost_or_different_when_replicas_are_killed(cluster: Cluster, alone: Running) -> None:
    """For a few seconds; benchmarks/scale_bars.py does it for a minute."""
    num_streams, max_tokens = 8, 600
    with alone.client() as client:
        want = [streamed(client, seed, max_tokens) for seed in range(num_streams)]
    cluster.wait_for(2)
    got: dict[int, Any] = {}

    def ask(seed: int) -> None:
        with cluster.client() as client:
            got[seed] = streamed(client, seed, max_tokens)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(num_streams)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while not cluster.state()["num_running"]:
        assert time.monotonic() < deadline, "nothing runs"
    killed = by_load(cluster.replicas())  # one that answers first
    os.kill(killed[0], signal.SIGKILL)
    while set(cluster.replicas()) <= set(killed) and any(thread.is_alive() for thread in threads):
        time.sleep(0.1)  # until there is one in its place
    os.kill(killed[1], signal.SIGKILL)
    for thread in threads:
        thread.join(120)
    assert cluster.num_resumed
    assert [got.get(seed) for seed in range(num_streams)] == want
    cluster.wait_for(2)
