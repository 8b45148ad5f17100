"""How long /health waits while others attack the server: `python benchmarks/server_attacks.py [--seconds 5]`.

A tiny random model is served by a process of its own. Each attack runs for some seconds in a second process, while a
third asks for /health every 20 ms. A row says, in milliseconds: the longest answer of /health (the bar is 100 on two
idle cores); the longest answer, in the same time, of a server beside it that does nothing else, which is what the
machine itself takes; the longest time for which a task of the event loop that was due did not run; and the most
processor time that the loop itself took in one turn. The last column says what the loop did in that turn. Above the
table is the machine's load at the start. `--only NAME` runs one attack.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
BAR_SECONDS, BEAT_SECONDS, PROBE_SECONDS = 0.1, 0.005, 0.02
CONTEXT_LEN = 2048
CHAT, COMPLETE, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
HELLO = [{"role": "user", "content": "hi"}]
Attack = tuple[str, Callable[[], dict[str, Any]], int, bool]  # path, body, how many at once, whether anybody reads


def _called(arguments: str, count: int = 1) -> dict[str, Any]:
    calls = [
        {"id": f"{i}", "type": "function", "function": {"name": "f", "arguments": arguments}} for i in range(count)
    ]
    return {"messages": [*HELLO, {"role": "assistant", "content": "", "tool_calls": calls}], "max_tokens": 2}


def _format(kind: str, source: Any) -> dict[str, Any]:
    return {"messages": HELLO, "max_tokens": 2, kind: source}


LONG = {"max_tokens": 400, "ignore_eos": True, "stream": True}
ATTACKS: dict[str, Attack] = {
    "nothing": ("/tokenize", lambda: {"text": "hi"}, 1, True),
    "many small requests": (COMPLETE, lambda: {"prompt": "hi", "max_tokens": 1}, 200, True),
    "streams": (COMPLETE, lambda: {"prompt": "hi", **LONG}, 32, True),
    "one bad id among texts": (EMBED, lambda: {"input": [[5] * 1500] * 60 + [[1 << 30]]}, 6, True),
    "texts to embed": (EMBED, lambda: {"input": [[5] * 1500] * 60}, 6, True),
    "texts nobody waits for": (EMBED, lambda: {"input": [[5] * 1500] * 60}, 6, False),
    "echoes with log-probabilities": (
        COMPLETE,
        lambda: {"prompt": [5] * 700, "n": 16, "max_tokens": 1, "echo": True, "logprobs": 20},
        4,
        True,
    ),
    "streamed echoes": (
        COMPLETE,
        lambda: {"prompt": [5] * 700, "n": 16, "echo": True, "logprobs": 20, **LONG, "max_tokens": 2},
        4,
        True,
    ),
    "log-probabilities of prompts": (
        COMPLETE,
        lambda: {"prompt": [[5] * 1000] * 12, "max_tokens": 1, "prompt_logprobs": 20},
        4,
        True,
    ),
    "too many log-probabilities": (
        COMPLETE,
        lambda: {"prompt": [[5] * 1900] * 128, "n": 16, "max_tokens": 1, "prompt_logprobs": 20},
        4,
        True,
    ),
    "answers with log-probabilities": (
        CHAT,
        lambda: {"messages": HELLO, "n": 16, "max_tokens": 600, "logprobs": True, "top_logprobs": 20},
        4,
        True,
    ),
    "streams nobody reads": (COMPLETE, lambda: {"prompt": "hi", "n": 16, "logprobs": 20, **LONG}, 8, False),
    "nested arguments": (CHAT, lambda: _called("[" + "[]," * 1_300_000 + "0]"), 4, True),
    "many arguments": (CHAT, lambda: _called('{"a":[' + "1," * 250_000 + "0]}"), 4, True),
    "arguments of many calls": (CHAT, lambda: _called("{" + '"a":' * 30 + "0" + "}", 1000), 4, True),
    "many ids": (COMPLETE, lambda: {"prompt": [[5] * 2000] * 100, "max_tokens": 1}, 4, True),
    "long texts": (COMPLETE, lambda: {"prompt": ["hello " * 300] * 128, "max_tokens": 1}, 4, True),
    "receipts": (COMPLETE, lambda: {"prompt": "hi", "n": 16, "receipt": True, **LONG}, 4, True),
    "a grammar of 5000 alternatives": (
        CHAT,
        lambda: _format("grammar", "root ::= " + " | ".join(f'"a{i}"' for i in range(5000))),
        4,
        True,
    ),
    "a costly pattern": (CHAT, lambda: _format("guided_regex", "(a?){3000}a{3000}"), 4, True),
    "formats of every answer": (
        CHAT,
        lambda: {"messages": HELLO, "n": 8, "max_tokens": 200, "response_format": {"type": "json_object"}},
        4,
        True,
    ),
}


async def ask(port: int, path: str, data: bytes, is_read: bool) -> None:
    """Send one request. Read its answer to the end, or leave after a while without reading."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    try:
        writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(data) + data)
        if is_read:
            while await reader.read(1 << 16):
                pass
        else:
            await asyncio.sleep(0.5)
    finally:
        writer.close()


async def attack(port: int, name: str, seconds: float) -> None:
    path, make, count, is_read = ATTACKS[name]
    data, end = json.dumps(make()).encode(), time.monotonic() + seconds

    async def repeat() -> None:
        while time.monotonic() < end:
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(ask(port, path, data, is_read), max(0.1, end - time.monotonic()))
            await asyncio.sleep(0.01)

    await asyncio.gather(*(repeat() for _ in range(count)))


def probe(port: int) -> None:
    """Ask for /health until told to report; print the longest answer in seconds for each line on standard input."""
    longest, lock = [0.0], threading.Lock()

    def report() -> None:
        for _ in sys.stdin:
            with lock:
                print(longest[0], flush=True)
                longest[0] = 0.0

    threading.Thread(target=report, daemon=True).start()
    while True:
        began = time.perf_counter()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            while sock.recv(4096):
                pass
        with lock:
            longest[0] = max(longest[0], time.perf_counter() - began)
        time.sleep(PROBE_SECONDS)


class Watch:
    """Measures how late the event loop is, how much processor time it takes in one turn, and what it does then."""

    def __init__(self) -> None:
        self._loop_thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._loop_thread)
        self._began, self._seen = self._cpu(), Counter[str]()
        self.clear()

    def clear(self) -> None:
        self.longest, self.most_cpu, self.did = 0.0, 0.0, ""

    def _cpu(self) -> float:
        return time.clock_gettime(self._clock)

    async def beat(self) -> None:
        while True:
            self._began = self._cpu()
            due = time.perf_counter() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            late = time.perf_counter() - due
            cpu, seen, self._seen = self._cpu() - self._began, self._seen, Counter()
            self.longest = max(self.longest, late)
            if cpu > self.most_cpu:
                self.most_cpu, self.did = cpu, "".join(place for place, _ in seen.most_common(1))

    def look(self) -> None:
        """Note from another thread, again and again, where the loop is when a turn takes long."""
        while True:
            time.sleep(BEAT_SECONDS / 2)
            if self._cpu() - self._began > 2 * BEAT_SECONDS:
                frames = traceback.walk_stack(sys._current_frames().get(self._loop_thread))
                stack = traceback.StackSummary.extract(frames, lookup_lines=False)  # reading source files takes long
                own = [f for f in stack if "samebits" in f.filename and "benchmarks" not in f.filename] or stack
                shown = [*own[:1], *stack[:1]]
                self._seen[" > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in shown)] += 1

    def report(self) -> None:
        for _ in sys.stdin:
            print(json.dumps([self.longest, self.most_cpu, self.did]), flush=True)
            self.clear()


async def serve(path: str, port: int) -> None:
    from samebits import LLM
    from samebits.core.collector import leave_out_what_is_there
    from samebits.server.run import make_server

    watch = Watch()
    server = make_server(
        lambda: LLM(path, context_len=CONTEXT_LEN, sampling_defaults="neutral"),
        "tiny",
        Path(path),
        port=port,
        on_settled=lambda _: leave_out_what_is_there(),  # as `samebits serve` does
    )
    beating = asyncio.create_task(watch.beat())
    for work in (watch.look, watch.report):
        threading.Thread(target=work, daemon=True).start()
    await server.serve()
    beating.cancel()


async def serve_nothing(port: int) -> None:
    """Answer every request with a line at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()


def asked(process: subprocess.Popen[str]) -> Any:
    """Return what a process reports for a line on its standard input."""
    if process.stdin is None or process.stdout is None:
        raise SystemExit("no pipes")
    process.stdin.write("\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def own(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def await_health(port: int) -> None:
    until = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        if time.monotonic() > until:
            raise SystemExit("the server does not become healthy")
        time.sleep(0.1)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def measured(path: str, names: list[str], seconds: float) -> dict[str, dict[str, Any]]:
    port, idle_port = free_port(), free_port()
    with contextlib.ExitStack() as ends:

        def started(*arguments: str) -> subprocess.Popen[str]:
            process = own(*arguments)
            ends.callback(process.terminate)
            return process

        server, _ = started("--serve", path, port), started("--serve-nothing", idle_port)
        await_health(int(port)), await_health(int(idle_port))
        prober, idle_prober = started("--probe", port), started("--probe", idle_port)
        found: dict[str, dict[str, Any]] = {}
        for name in names:
            asked(server), asked(prober), asked(idle_prober)
            own("--attack", name, port, str(seconds)).wait()
            longest, cpu, did = asked(server)
            health, idle = asked(prober), asked(idle_prober)
            found[name] = {"health": health, "idle": idle, "stall": longest, "cpu": cpu, "did": did}
            if server.poll() is not None:
                raise SystemExit(f"the server ended under: {name}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each attack")
    parser.add_argument("--only", choices=ATTACKS, action="append", help="run these attacks alone")
    parser.add_argument("--json", type=Path, metavar="F", help="write the figures there too")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve-nothing", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.serve[0], int(args.serve[1])))
    elif args.serve_nothing:
        asyncio.run(serve_nothing(args.serve_nothing))
    elif args.probe:
        probe(args.probe)
    elif args.attack:
        name, port, seconds = args.attack
        asyncio.run(attack(int(port), name, float(seconds)))
    else:
        sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("engine", "loaders")]
        from random_tiny import write_random_tiny

        with TemporaryDirectory() as folder:
            path, load = write_random_tiny(Path(folder) / "tiny.gguf"), os.getloadavg()[0]
            found = measured(str(path), args.only or list(ATTACKS), args.seconds)
        table = Table("attack", "/health ms", "idle server ms", "loop stalled ms", "loop's CPU ms", "what it did")
        for name, row in found.items():
            mark = "" if row["health"] < BAR_SECONDS else " !"
            figures = (f"{1000 * row[column]:.0f}" for column in ("idle", "stall", "cpu"))
            table.add_row(name, f"{1000 * row['health']:.0f}{mark}", *figures, row["did"])
        console = Console(width=180)
        console.print(f"load {load:.1f}")
        console.print(table)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
