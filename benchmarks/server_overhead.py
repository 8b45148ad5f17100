"""What the server adds to the engine: `python benchmarks/server_overhead.py [--streams 32] [--json F]`.

SmolLM2's graph runs on the null backend, which computes nothing. The same work is done by the engine alone and through
HTTP, by a client process with plain sockets; the difference is the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from typing import Any

from rich.console import Console
from rich.table import Table

TOKENS, REQUESTS, ROUNDS = 64, 100, 5
PROMPT = "Why is the sky blue?"


def body_of(max_tokens: int, stream: bool) -> dict[str, Any]:
    return {"prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": stream}


async def one_request(port: int, body: dict[str, Any]) -> None:
    """One POST on a connection of its own, read to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    answer = await reader.read(-1)
    writer.close()
    if b" 200 " not in answer[:20]:
        raise SystemExit(answer[:300].decode(errors="replace"))


async def client(port: int, streams: int) -> None:
    """Prints seconds a request, one after another, and seconds of all streams together."""
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(REQUESTS):
            await one_request(port, body_of(1, stream=False))
        singles = (time.perf_counter() - started) / REQUESTS
        started = time.perf_counter()
        await asyncio.gather(*(one_request(port, body_of(TOKENS, stream=True)) for _ in range(streams)))
        print(json.dumps([singles, time.perf_counter() - started]), flush=True)


def alone(llm: Any, streams: int) -> tuple[float, float]:
    """The engine's seconds for the same work."""
    from samebits import SamplingParams

    def params(count: int) -> SamplingParams:
        return SamplingParams(max_tokens=count, temperature=0, ignore_eos=True, seed=0)

    started = time.perf_counter()
    for _ in range(REQUESTS):
        llm.generate([PROMPT], params(1))
    singles = (time.perf_counter() - started) / REQUESTS
    started = time.perf_counter()
    llm.generate([PROMPT] * streams, params(TOKENS))
    return singles, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        asyncio.run(client(given.client, given.streams))
        return
    from samebits import LLM
    from samebits.loaders.catalog import DEFAULT_MODEL
    from samebits.server.run import make_server

    options: dict[str, Any] = {"backend": "null", "context_len": 512, "max_sequences": given.streams}
    llm = LLM(DEFAULT_MODEL, sampling_defaults="neutral", **options)
    bare = [alone(llm, given.streams) for _ in range(ROUNDS)]
    port = free_port()
    server = make_server(lambda: llm, DEFAULT_MODEL, None, port=port)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_healthy(port)
    command = [sys.executable, __file__, "--client", str(port), "--streams", str(given.streams)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    server.should_exit = True
    thread.join()
    report(bare, [json.loads(line) for line in lines], sorted(seconds_to_healthy() for _ in range(ROUNDS)), given)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_healthy(port: int) -> None:
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
            return
        except OSError:
            time.sleep(0.005)


def seconds_to_healthy() -> float:
    """From the start of `samebits serve` on the native kernels to the first healthy answer."""
    port = free_port()
    command = [sys.executable, "-c", "from samebits.cli.main import main; main()", "serve", "--port", str(port)]
    started = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_healthy(port)
    taken = time.perf_counter() - started
    process.terminate()
    process.wait()
    return taken


def report(
    bare: list[tuple[float, float]], served: list[list[float]], healthy: list[float], given: argparse.Namespace
) -> None:
    """Medians over the rounds; the bars are 3 ms a request, 0.2 ms a token and 3 s to be healthy."""
    tokens = given.streams * TOKENS
    alone_ms = [1000 * sorted(r[i] for r in bare)[len(bare) // 2] for i in (0, 1)]
    served_ms = [1000 * sorted(r[i] for r in served)[len(served) // 2] for i in (0, 1)]
    rows = {
        "a request, ms": (alone_ms[0], served_ms[0], 3.0),
        f"a streamed token of {given.streams} streams, ms": (alone_ms[1] / tokens, served_ms[1] / tokens, 0.2),
    }
    table = Table("", "engine alone", "through the server", "the server's part", "bar")
    for name, (engine, whole, bar) in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in (engine, whole, whole - engine)), f"{bar:g}")
    table.add_row("seconds to healthy", "", f"{healthy[len(healthy) // 2]:.2f}", "", "3")
    Console().print(table)
    if given.json:
        keys = ("engine_ms", "served_ms", "bar_ms")
        figures: dict[str, Any] = {name: dict(zip(keys, row, strict=True)) for name, row in rows.items()}
        with open(given.json, "w") as file:
            json.dump({**figures, "seconds to healthy": healthy}, file, indent=1)


if __name__ == "__main__":
    main()
