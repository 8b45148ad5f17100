"""Sizes that cases share: real models' widths, and the batch sizes at which kernels like to change their mind."""

from __future__ import annotations

from typing import Any

from samebits.ops.record import FLOATS, Case

BATCHES = (1, 2, 3, 4, 8, 16, 32, 33)

# hidden, ffn, query heads, kv heads, head size
MODELS = {
    "smollm2-135m": (576, 1536, 9, 3, 64),
    "llama-7b": (4096, 11008, 32, 32, 128),
    "llama-3-8b": (4096, 14336, 32, 8, 128),
    "qwen3-0.6b": (1024, 3072, 16, 8, 128),
    "gemma-2-2b": (2304, 9216, 8, 4, 256),
}


def rows(num_rows: int, width: int) -> dict[str, Any]:
    """Dimensions of an op on rows: "... K"."""
    return {"...": (num_rows,), "K": width}


def float_cases(*inputs: str, attrs: dict[str, Any] | None = None) -> list[Case]:
    """Per float format one small case and one of special values, all the named inputs in it."""
    settings = dict(attrs or {})
    small = [Case(f"small-{f}", rows(3, 96), settings, dict.fromkeys(inputs, f)) for f in FLOATS]
    special = [
        Case(f"special-{f}", rows(4, 67), settings, dict.fromkeys(inputs, f), extra={"special": True}) for f in FLOATS
    ]
    return [*small, *special]
