"""What the worker loads in tests: a peer of exact seconds that prints where it should not."""

from __future__ import annotations

import os
from typing import Any


class Peer:
    def load(self, path: str, threads: int, shape: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        print("loading, on standard output")
        if path == "broken":
            raise ValueError("cannot read\nthis file")
        return {"facts": {"version": f"fake for {threads} threads"}, "settings": ["plain", "odd"]}

    def prefill(self, num_tokens: int, setting: str) -> float:
        return num_tokens / 100

    def decode(self, num_tokens: int, num_sequences: int, depth: int, setting: str) -> float:
        if setting == "odd":
            os._exit(3)
        return num_tokens * num_sequences + depth / 1000
