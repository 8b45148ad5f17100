"""Gemma 3 as Ollama converts it: bases of the rotations under names of its own, and layers with a window in a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checkpoint_runs import DATA
from config_checks import gguf_with
from test_bad_checkpoints import refusal

from samebits.models.checkpoint import open_checkpoint

PATTERN = "gemma3.attention.sliding_window_pattern"
THETAS = ("gemma3.rope.freq_base", "gemma3.rope.freq_base_swa")
OLLAMA = ("gemma3.rope.global.freq_base", "gemma3.rope.local.freq_base")


def read(change: dict[str, Any]) -> Any:
    """The configuration of the tiny Gemma 3 with other metadata."""
    return gguf_with("gemma3", change)()[1]


def test_the_bases_of_the_rotations() -> None:
    checkpoint = open_checkpoint(DATA / "gemma3" / "model-f32.gguf")
    stated = [checkpoint.file.metadata[key] for key in THETAS]
    without = dict.fromkeys(THETAS)
    assert read({**without, **dict(zip(OLLAMA, stated, strict=True))}) == checkpoint.config
    assert read({THETAS[1]: None, OLLAMA[1]: stated[1]}) == checkpoint.config  # as newer versions of Ollama write it
    assert read(dict(zip(OLLAMA, stated, strict=True))) == checkpoint.config
    assert read({**without, OLLAMA[0]: 7.0}) != checkpoint.config


def test_the_layers_with_a_window() -> None:
    config = open_checkpoint(DATA / "gemma3" / "model-f32.gguf").config
    assert read({PATTERN: np.array([True, True, False, True])}) == config
    other = read({PATTERN: np.array([False, True, True, True])})
    assert [layer.window for layer in other.layers] == [None, 9, 9, 9]


@pytest.mark.parametrize("pattern", [[True, False], [], [True] * 5, [1, 1, 0, 1], "sliding", -1], ids=str)
def test_other_patterns_are_refused(pattern: Any) -> None:
    kind = np.bool_ if pattern in ([], [True, False], [True] * 5) else None
    given = np.array(pattern, kind) if isinstance(pattern, list) else pattern
    assert f"{PATTERN} is" in refusal(gguf_with("gemma3", {PATTERN: given}))
