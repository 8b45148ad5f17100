"""`samebits serve` as a process: its start, its mistakes, and its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from live_server import free_port, plain_client, running

from samebits.cli.main import main

COMMAND = [sys.executable, "-c", "from samebits.cli.main import main; main()", "serve"]


@contextmanager
def process(*options: str) -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield server
    finally:
        server.kill()
        server.communicate()


def called(monkeypatch: pytest.MonkeyPatch, *options: str) -> int | str | None:
    """The exit status of a call that ends by itself, in this process: most of a process would be its imports."""
    monkeypatch.setattr(sys, "argv", ["samebits", "serve", *options])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return end.value.code


def wait_healthy(url: str, server: subprocess.Popen[str], seconds: float = 60.0) -> set[int]:
    """Statuses that /health gave until it was healthy."""
    seen: set[int] = set()
    deadline = time.monotonic() + seconds
    with plain_client() as client:
        while True:
            assert server.poll() is None, f"it ended: {server.communicate()}"
            assert time.monotonic() < deadline, f"never healthy: {seen}"
            try:
                reply = client.get(f"{url}/health")
                seen.add(reply.status_code)
                if reply.status_code == 200:
                    return seen
                assert reply.json()["reason"] == "the model is loading"
            except httpx.TransportError:
                pass
            time.sleep(0.02)  # what starts may have this core only


def test_a_signal_lets_answers_end(model_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with process("--model", str(model_path), "--port", str(port), "--context-len", "2000") as server:
        wait_healthy(url, server)
        wishes = {"prompt": "hello", "max_tokens": 300, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=wishes, timeout=60, verify=False) as reply:
            lines = reply.iter_lines()
            next(lines)
            server.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
        assert server.wait(30) == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/health", verify=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "0.0.0.0"), "--api-key is missing: it must be a key, to listen on 0.0.0.0"),
        (("--deterministic", "--numerics", "fast"), "--numerics is fast"),
        (("--receipts", "60", "--numerics", "fast"), "--numerics is fast"),
        (("--model", "no-such-model"), "no-such-model"),
        (("--backend", "no-such-backend"), "no-such-backend"),
        (("--numerics", "best"), "best"),
        (("--k-format", "f99"), "f99"),
        (("--prefill-budget", "often"), "often"),
        (("--memory", "lots"), "memory is 'lots', but must be a fraction above 0 and up to 1, or a size such as 12G"),
        (("--memory", "10K"), "no page fits: weights take "),
        (("--ctx-size", "3000"), "context_len is 3000, but must be at most 2048"),
        (("--num-pages", "2000000"), "num_pages 2,000,000 needs "),
    ],
)
def test_mistakes_in_the_call_are_one_line(
    model_path: Path,
    options: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They end the process, and no address is told before that."""
    status = called(monkeypatch, "--model", str(model_path), "--port", "0", *options)
    done = capsys.readouterr()
    assert status == 2
    assert message in done.err
    assert "Traceback" not in done.err + caplog.text
    assert "http://" not in done.err + done.out


def test_a_damaged_model_ends_the_process_unless_it_is_to_stay(model_path: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(model_path.read_bytes()[:5000])
    done = subprocess.run(
        [*COMMAND, "--model", str(damaged), "--port", "0"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "damaged.gguf cannot be served: " in " ".join(done.stderr.split())
    assert "http://" not in done.stderr
    port = free_port()
    with process("--model", str(damaged), "--port", str(port), "--stay") as server:
        assert server.stderr is not None
        while "says that" not in (line := server.stderr.readline()):
            assert line
        health = httpx.get(f"http://127.0.0.1:{port}/health", verify=False)
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        assert server.poll() is None


def test_ready_is_said_when_it_is(model_path: Path) -> None:
    odd_name = "a[/]b"  # not markup of the terminal's
    with process("--model", str(model_path), "--port", "0", "--context-len", "64", "--served-name", odd_name) as server:
        assert server.stderr is not None
        assert "loading" in server.stderr.readline()
        assert server.stderr.readline().startswith("memory 512.0 MiB of ")
        line = server.stderr.readline()
        assert f"{odd_name} is ready at http://127.0.0.1:" in line
        url = line.partition(" at ")[2].partition(",")[0]
        assert httpx.get(f"{url}/health", verify=False).status_code == 200


def test_defaults_fit_the_model_and_the_memory(model_path: Path) -> None:
    """The context is the model's own. /state and `inspect --memory` have the figures that the server prints."""
    with process("--model", str(model_path), "--port", "0") as server:
        assert server.stderr is not None
        lines = [server.stderr.readline() for _ in range(3)]
        url = lines[2].partition(" at ")[2].partition(",")[0]
        with plain_client() as client:
            memory = client.get(f"{url}/state").json()["memory"]
            card = client.get(f"{url}/v1/models").json()["data"][0]
            long_prompt = {"prompt": [7] * 2040, "max_tokens": 8, "ignore_eos": True}
            usage = client.post(f"{url}/v1/completions", json=long_prompt, timeout=60).json()["usage"]
    assert lines[1].startswith("memory 512.0 MiB of ")
    assert lines[1].endswith("; up to 32 sequences, context 2,048\n")
    assert card["max_model_len"] == memory["context_len"] == 2048
    assert usage["total_tokens"] == 2048
    assert memory["max_sequences"] == 32
    assert memory["num_pages"] == 1 + 32 * 2048 // 16
    command = [*COMMAND[:-1], "inspect", str(model_path), "--memory", "--json"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    varying = {"free_bytes", "total_bytes"}
    assert {n: v for n, v in told.items() if n not in varying} == {n: v for n, v in memory.items() if n not in varying}


def test_a_context_that_does_not_fit_is_said_at_the_start(model_path: Path) -> None:
    with process("--model", str(model_path), "--port", "0", "--memory", "1500K") as server:
        assert server.stderr is not None
        lines = [server.stderr.readline() for _ in range(4)]
    assert "context lowered from 2,048 to " in lines[1]
    assert lines[2].startswith("memory 1.5 MiB of ")
    assert " is ready at " in lines[3]


def test_a_port_that_is_taken(model_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = ["--model", str(model_path), "--port", str(taken.getsockname()[1])]
        done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "of 127.0.0.1 is in use; choose another with --port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dead_engine_is_said_by_health(model_path: Path) -> None:
    with running(model_path) as server, server.client() as client:
        server.llm.engine.step = lambda *_: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        replies = []
        asking = threading.Thread(target=lambda: replies.append(client.post("/v1/completions", json={"prompt": "x"})))
        asking.start()
        asking.join(30)
        assert replies[0].status_code in (500, 503)
        health = client.get("/health")
        assert health.status_code == 503
        assert "ZeroDivisionError" in health.json()["reason"]
