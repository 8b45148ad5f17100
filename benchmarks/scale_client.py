"""Servers of replicas and the clients that measure them, for scale_bars.py: processes, plain sockets, raw bytes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEALTHY_SECONDS = 300
TITLE = b"ray::ServeReplica:samebits"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


NEUTRAL = ("--sampling-defaults", "neutral")


class Served:
    """`samebits serve` with some flags, in a process of its own."""

    def __init__(self, *flags: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-c", "from samebits.cli.main import main; main()", "serve", *NEUTRAL, *flags]
        environment = {**os.environ, "RAY_raylet_start_wait_time_s": str(HEALTHY_SECONDS)}
        command += ["--port", str(self.port)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)

    def __enter__(self) -> Served:
        deadline = time.monotonic() + HEALTHY_SECONDS
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server does not become healthy")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health")
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def get(self, path: str) -> str:
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}").read().decode()

    def metric(self, name: str) -> float:
        """Of all replicas together."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.split()[-1]) for line in lines)

    def cpu_seconds(self) -> dict[str, float]:
        """What the server, its replicas and the processes of Ray have used so far."""
        found = dict.fromkeys(("server", "replicas", "Ray"), 0.0)
        for process in _processes(b""):
            if self._process.pid in _ancestors(process):
                is_replica = _title(process).startswith(TITLE)
                kind = "server" if process == self._process.pid else "replicas" if is_replica else "Ray"
                found[kind] += _cpu_seconds(process)
        return found

    def replicas(self) -> list[int]:
        """Processes of its replicas that are there."""
        return [process for process in _processes(TITLE) if self._process.pid in _ancestors(process)]


def _title(process: int) -> bytes:
    """Empty for one that has ended meanwhile."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _processes(title: bytes) -> list[int]:
    found = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal())
    return [process for process in found if _title(process).startswith(title)]


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ancestors(process: int) -> set[int]:
    found = set()
    while process > 1:
        found.add(process)
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


@dataclass
class Answer:
    """A streamed answer: its text, the hash of its logits, the seconds to each part, and its tokens if told."""

    text: str = ""
    sha256: str | None = None
    gaps: list[float] = field(default_factory=list)
    completion_tokens: int = 0


async def ask(
    port: int, body: dict[str, Any], reads: bool = True, on_parts: Callable[[int], None] = lambda _: None
) -> Answer:
    """One POST to completions on a connection of its own.

    Without `reads` a stream's bytes are not looked into, and on_parts hears how many parts came at once.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    data = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
    head += f"content-length: {len(data)}\r\n\r\n"
    last = time.perf_counter()
    writer.write(head.encode() + data)
    answer = Answer()
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            raise SystemExit((status + await reader.read(1000)).decode(errors="replace"))
        if not (reads and body.get("stream")):
            while data := await reader.read(1 << 16):
                on_parts(data.count(b"data: {"))
            return answer
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                answer.gaps.append(now - last)
                last = now
                told = json.loads(line[6:])
                if "error" in told:
                    raise SystemExit(str(told))
                answer.completion_tokens = (told.get("usage") or {}).get("completion_tokens", answer.completion_tokens)
                for choice in told["choices"]:  # none in a last part that tells the usage
                    answer.text += choice["text"]
                    answer.sha256 = choice.get("logits_sha256") or answer.sha256
        return answer
    finally:
        writer.close()


def words(seed: int, count: int) -> str:
    """A text of common words, some token each."""
    drawn = random.Random(seed)
    known = "the of and to in is it that was for on are with as they at be this from have or by one had not"
    return " ".join(drawn.choice(known.split()) for _ in range(count))
