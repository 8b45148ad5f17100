"""llama.cpp through its own `llama-bench`: a process for each measurement, its model in the file cache."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from samebits.bench.peers.llama_cpp_side import MAX_LAYERS, SETTINGS, wrong_device
from samebits.bench.results import Row
from samebits.core.errors import Unavailable


class LlamaBench:
    """Prefill, and decode of one sequence; it has no batches. Refuses a build that does not compute where we do."""

    name = "llama.cpp"
    settings = tuple(SETTINGS)

    def __init__(self, tool: str, model: Path, threads: int, on_gpu: bool) -> None:
        self._tool, self._model, self._threads, self._on_gpu = tool, model, threads, on_gpu
        self.facts: dict[str, Any] = {"version": "llama-bench"}

    def seconds(self, row: Row, setting: str) -> float:
        if row.num_sequences > 1:
            raise Unavailable("llama.cpp: llama-bench decodes one sequence; llama-cpp-python can do more")
        kv, _, flash = setting.partition(" ")
        counts = (row.num_tokens, 0) if row.kind == "prefill" else (0, row.num_tokens)
        options = {"-m": self._model, "-t": self._threads, "-p": counts[0], "-n": counts[1], "-d": row.depth}
        options["-ngl"] = MAX_LAYERS if self._on_gpu else 0
        options |= {"-ctk": kv, "-ctv": kv, "-fa": int(bool(flash)), "-r": 1, "-o": "json"}
        command = [self._tool, *(str(part) for option in options.items() for part in option)]
        done = subprocess.run(command, capture_output=True, text=True)
        try:
            (result,) = json.loads(done.stdout)
        except ValueError:
            raise Unavailable(f"llama.cpp: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}") from None
        gpu = result.get("gpu_info", "")
        if reason := wrong_device(self._on_gpu, gpu):
            raise Unavailable(f"llama.cpp: this llama-bench {reason}")
        self.facts["version"] = f"llama-bench build {result.get('build_number')}"
        self.facts["device"] = gpu or result.get("cpu_info", "")
        return float(result["avg_ns"]) / 1e9

    def close(self) -> None:
        """Nothing runs between measurements."""
