"""Texts of megabytes: refused before they are tokenized where the context cannot hold them, and no one waits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import Running, free_port

MEGABYTE = 1 << 20
BYTES = 4 * MEGABYTE - 4096  # a body may have 4 MiB
TEXTS = {
    "spaces": " " * BYTES,
    "one letter": "a" * BYTES,
    "one word": random.Random(1).randbytes(BYTES).translate(bytes(ord("a") + i % 26 for i in range(256))).decode(),
}
MAX_BYTES = 512 * len("<|endoftext|>")  # the tests' context, of the tests' longest token


def routes(text: str) -> dict[str, tuple[dict[str, Any], str]]:
    return {
        "/v1/completions": ({"prompt": text}, "prompt"),
        "/v1/embeddings": ({"input": [text[:9], text]}, "input"),
        "/v1/chat/completions": ({"messages": [{"role": "user", "content": text}]}, "messages"),
    }


@pytest.mark.parametrize("route", routes(""))
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_cannot_fit_is_refused_at_once(server: Running, route: str, name: str) -> None:
    body, param = routes(TEXTS[name])[route]
    with server.client() as client:
        start = time.process_time()
        reply = client.post(route, json=body)
        seconds = time.process_time() - start  # of this process, which is both ends
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["code"]) == (400, param, "context_length_exceeded")
    assert f"must have at most {MAX_BYTES}, what 512 tokens of 13 bytes can hold" in error["message"]
    assert seconds < 10


@pytest.mark.parametrize("route", routes(""))
def test_a_text_that_might_fit_is_counted(server: Running, route: str) -> None:
    body, param = routes("bc" * 300)[route]
    with server.client() as client:
        error = client.post(route, json=body).json()["error"]
    assert (error["param"], error["code"]) == (param, "context_length_exceeded")
    assert " tokens, but must have " in error["message"]


def test_tokenize_takes_a_million_characters(server: Running) -> None:
    with server.client() as client:
        reply = client.post("/tokenize", json={"text": "hi" * (MEGABYTE // 2)}).json()
        assert (reply["count"], len(reply["tokens"]), reply["max_model_len"]) == (MEGABYTE // 2, MEGABYTE // 2, 512)
        assert client.post("/tokenize", json={"text": ""}).json()["tokens"] == []
        refused = client.post("/tokenize", json={"text": " " * (MEGABYTE + 1)})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "text has 1048577 characters, but must have at most 1048576"


def test_a_signal_ends_a_server_that_tokenizes(model_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", "from samebits.cli.main import main; main()", "serve", "--model", str(model_path)]
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stop = threading.Event()

    def storm() -> None:
        while not stop.is_set():
            try:
                httpx.post(f"{url}/tokenize", json={"text": TEXTS["one word"][:MEGABYTE]}, timeout=30, verify=False)
            except httpx.TransportError:
                time.sleep(0.05)

    threads = [threading.Thread(target=storm) for _ in range(6)]
    try:
        while True:
            try:
                if httpx.get(f"{url}/health", verify=False).status_code == 200:
                    break
            except httpx.TransportError:
                assert server.poll() is None
            time.sleep(0.05)
        for thread in threads:
            thread.start()
        time.sleep(1)
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        stop.set()
        server.kill()
        server.wait()
        for thread in threads:
            if thread.is_alive():
                thread.join()
