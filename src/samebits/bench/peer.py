"""Other engines as sides: a worker process under the peer's interpreter, or llama.cpp's own benchmark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, Self

from samebits.backends.discovery import ON_GPU
from samebits.bench.llama_bench import LlamaBench
from samebits.bench.ours import Settings
from samebits.bench.results import Row, Side
from samebits.core.errors import Unavailable, UnknownName
from samebits.models.checkpoint import FileCheckpoint

WORKER = Path(__file__).with_name("peers") / "worker.py"
PACKAGES = {"llama.cpp": ("llama_cpp_side", "llama_cpp"), "transformers": ("transformers_side", "transformers")}
MAX_REASON = 300


class Peer(Side, Protocol):
    """A side of another's making; `facts` say which version it is and what it runs."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    def close(self) -> None: ...


class WorkerPeer:
    """A worker process, started by `command`. Idle, it blocks on a read: nothing spins."""

    def __init__(self, name: str, command: list[str], load: Mapping[str, Any]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
            )
        except OSError as error:
            self._errors.close()
            raise Unavailable(f"{name}: cannot start {command[0]}: {error.strerror}") from None
        try:
            loaded = self._ask({"command": "load", **load})
        except BaseException:
            self.close()
            raise
        self.facts: dict[str, Any] = loaded["facts"]
        self.settings: tuple[str, ...] = tuple(loaded["settings"])

    def seconds(self, row: Row, setting: str) -> float:
        work: dict[str, Any] = {"command": row.kind, "num_tokens": row.num_tokens, "setting": setting}
        if row.kind == "decode":
            work |= {"num_sequences": row.num_sequences, "depth": row.depth}
        if row.kind == "serve":
            work["prompt_lens"] = row.prompt_lens
        return float(self._ask(work)["seconds"])

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer; Unavailable with its reason where it gives one, or died."""
        line = ""
        if self._process.stdin and self._process.stdout:
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise Unavailable(f"{self.name}: the worker ended: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Unavailable(f"{self.name}: {reply['error'][:MAX_REASON]}")
        return reply

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1][:MAX_REASON] if lines else f"exit status {status}"

    def close(self) -> None:
        """Ends the process, also one that is in the midst of a row."""
        self._process.terminate()
        with suppress(BrokenPipeError):  # a request that a dead worker never read
            self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_peer(name: str, python: str | None, checkpoint: FileCheckpoint, settings: Settings) -> Peer:
    """Open the peer with the model loaded, in the given interpreter, in this one, or for llama.cpp as the llama-bench
    on PATH.

    The peer gets our threads, and computes on a GPU if our backend does, else on the CPU alone. Raise Unavailable if
    the peer is not installed or cannot load the model there; llama-bench says so only in its first measurement.
    """
    if name not in PACKAGES:
        raise UnknownName("peer", name, list(PACKAGES))
    module, package = PACKAGES[name]
    on_gpu = settings.backend in ON_GPU
    if python is None and find_spec(package) is None:
        tool = shutil.which("llama-bench") if name == "llama.cpp" else None
        if tool is None:
            raise Unavailable(
                f"{name}: {package} is not installed here; name an interpreter that has it, --peer-python"
            )
        return LlamaBench(tool, checkpoint.path, settings.threads, on_gpu)
    shape = {**asdict(checkpoint.config), "architecture": checkpoint.architecture.hf[0]}
    load = {"path": str(checkpoint.path), "threads": settings.threads, "shape": shape, "on_gpu": on_gpu}
    return WorkerPeer(name, [python or sys.executable, str(WORKER), module], load)
