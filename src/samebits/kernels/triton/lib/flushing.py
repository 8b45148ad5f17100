"""Kernels that flush subnormals: a way to see that no result depends on them.

PTX says at every float32 instruction whether it flushes, so flushing is a rewriting of a kernel's text before it is
assembled: what Triton made and what our inline assembly holds alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from triton import knobs

from samebits.core.errors import Unsupported

MODE = "samebits-flushing"  # a compile option that has no other meaning here: Triton's caches tell kernels apart by it
HOOK = "add_stages_inspection_hook"

# Instructions on float32 that take .ftz, by where it stands: after the rounding, or first.
_ROUNDINGS = r"(?:\.(?:rn|rz|rm|rp|rna|approx|full))?"
_AFTER_ROUNDING = r"(?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos)" + _ROUNDINGS
_FIRST = r"(?:abs|neg|min|max)"
_COMPARISON = r"(?:setp|set)\.(?:eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(?:\.(?:and|or|xor))?"
_FLOAT32 = re.compile(rf"(?<![\w.])({_AFTER_ROUNDING}|{_FIRST}|{_COMPARISON})((?:\.[a-zA-Z]+)*\.f32(?:x2)?)(?=\s)")
_CONVERSION = re.compile(r"(?<![\w.])(cvt(?:\.r[nzmp]i?)?)(\.f32\.f32|\.f16\.f32|\.f32\.f16)(?=\s)")


def flushed(ptx: str) -> str:
    """The text with .ftz at every float32 instruction that computes, compares or converts and can have it."""
    text = _FLOAT32.sub(lambda m: m.group() if ".ftz" in m.group() else f"{m.group(1)}.ftz{m.group(2)}", ptx)
    return _CONVERSION.sub(r"\1.ftz\2", text)


def _add_flushing(_backend: Any, stages: dict[str, Callable[..., Any]], options: Any, *_given: Any) -> None:
    """Triton's hook: `stages` makes each form of a kernel from the one before."""
    if getattr(options, "instrumentation_mode", "") == MODE and "ptx" in stages:
        make_ptx = stages["ptx"]
        stages["ptx"] = lambda source, metadata: flushed(make_ptx(source, metadata))


def refusal() -> str | None:
    """Why kernels cannot be asked to flush here; None where they can."""
    if torch.version.hip is not None:
        return "flushing subnormals can be asked of CUDA kernels only, not of ROCm's"
    if not (hasattr(knobs.runtime, HOOK) and hasattr(knobs.compilation, "instrumentation_mode")):
        return f"flushing subnormals cannot be asked for: this Triton has no knobs.runtime.{HOOK}"
    if knobs.compilation.instrumentation_mode or getattr(knobs.runtime, HOOK) is not None:
        return f"flushing subnormals cannot be asked for: knobs.runtime.{HOOK} is in use"
    return None


@contextmanager
def flushing() -> Iterator[None]:
    """Kernels launched inside count float32 subnormals as zero; they are compiled and kept beside the others.

    Unsupported where Triton or the device gives no way to ask for it.
    """
    reason = refusal()
    if reason is not None:
        raise Unsupported(reason)
    mode_before = knobs.compilation.instrumentation_mode
    setattr(knobs.runtime, HOOK, _add_flushing)
    knobs.compilation.instrumentation_mode = MODE
    try:
        yield
    finally:
        setattr(knobs.runtime, HOOK, None)
        knobs.compilation.instrumentation_mode = mode_before
