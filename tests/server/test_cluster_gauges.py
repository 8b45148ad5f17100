"""Gauges under the names that cluster schedulers read, from a real server through Prometheus's own parser."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
from live_server import NAME, Running, running
from prometheus_client.parser import text_string_to_metric_families

from samebits.server.http.security import Door


def gauges(server: Running) -> dict[str, tuple[dict[str, str], float]]:
    """vLLM's names: labels and value of the only sample of each."""
    with server.client() as client:
        text = client.get("/metrics").text
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("vllm:"):
            assert family.type == "gauge"
            (sample,) = family.samples
            found[sample.name] = (sample.labels, sample.value)
    return found


def test_an_idle_server_has_the_gauges_that_schedulers_ask_for(server: Running) -> None:
    server.check_idle()
    num_pages = server.llm.engine.scheduler.pages.pool.num_pages - 1
    label = {"model_name": NAME}
    assert gauges(server) == {
        "vllm:num_requests_waiting": (label, 0),
        "vllm:num_requests_running": (label, 0),
        "vllm:kv_cache_usage_perc": (label, 0),
        "vllm:cache_config_info": ({**label, "block_size": "16", "num_gpu_blocks": str(num_pages)}, 1),
    }


def test_they_follow_queue_batch_and_pages(model_path: Path) -> None:
    options = {"context_len": 2048, "max_sequences": 2}
    with running(model_path, options) as server, server.client() as client:
        body = {"prompt": "hello", "n": 3, "max_tokens": 1900, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as reply:
            assert reply.status_code == 200
            found, deadline = gauges(server), time.monotonic() + 30
            while found["vllm:num_requests_running"][1] < 2 and time.monotonic() < deadline:
                found = gauges(server)
        assert found["vllm:num_requests_running"][1] == 2
        assert found["vllm:num_requests_waiting"][1] == 1
        pages = server.llm.engine.scheduler.pages.pool.num_pages - 1
        held = found["vllm:kv_cache_usage_perc"][1] * pages
        assert 1 <= round(held) < pages
        assert abs(held - round(held)) < 1e-9
        server.check_idle()


def test_metrics_ask_for_the_key_unless_they_are_open(model_path: Path) -> None:
    for is_open, status in ((False, 401), (True, 200)):
        with running(model_path, door=Door("secret", has_open_metrics=is_open)) as server:
            assert httpx.get(f"{server.url}/metrics", verify=False).status_code == status
            assert httpx.get(f"{server.url}/v1/models", verify=False).status_code == 401
            assert httpx.get(f"{server.url}/state", verify=False).status_code == 401
