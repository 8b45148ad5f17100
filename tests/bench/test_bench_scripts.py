"""benchmarks/: random models that load and compute, and the table of bars."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from samebits import LLM
from samebits.bench.results import Spread


@pytest.mark.parametrize("fmt", ["q4_0", "q8_0", "q4_k", "f16"])
def test_random_model_loads_and_its_logits_are_finite(fmt: str, tmp_path: Path) -> None:
    from random_model import write_model

    from samebits.bench.shapes import llama

    file = write_model(llama(1, 256, 256, 4, 2, 300, 64), fmt, tmp_path / "m.gguf")
    llm = LLM(file)
    assert llm.tokenizer.decode(llm.tokenizer.encode("hi \u00e9", add_special=False)).strip() == "hi \u00e9"
    logits = llm.score([1, 42, 7], logits=True).logits
    assert logits.shape == (3, 300)
    assert np.isfinite(logits).all()
    assert logits.std() > 0.05
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_a_random_hybrid_loads_and_is_the_checkpoint_that_lies_in_no_file(tmp_path: Path) -> None:
    from random_model import write_model

    from samebits.bench.random_checkpoint import RandomCheckpoint
    from samebits.bench.shapes import SHAPES
    from samebits.models.checkpoint import open_checkpoint

    shape = SHAPES["tiny-hybrid"]
    file = write_model(shape, "q4_0", tmp_path / "m.gguf")
    stored, made = open_checkpoint(file), RandomCheckpoint(shape, "q4_0")
    assert {name: stored.spec(name) for name in stored.tensors} == {name: made.spec(name) for name in stored.tensors}
    assert stored.config.recurrence == shape.recurrence
    logits = LLM(file).score([1, 42, 7] * 7, logits=True).logits
    assert np.isfinite(logits).all()
    assert logits.std() > 0.05


@pytest.mark.parametrize(("shape", "fmt"), [("tiny-moe", "q4_0"), ("gpt-oss-20b", "mxfp4"), ("qwen3-30b-a3b", "q4_0")])
def test_a_random_mixture_loads_and_is_the_checkpoint_that_lies_in_no_file(
    shape: str, fmt: str, tmp_path: Path
) -> None:
    """The large ones with few and small experts: sizes are all that is left out."""
    from random_model import write_model

    from samebits.bench.random_checkpoint import RandomCheckpoint
    from samebits.bench.shapes import SHAPES
    from samebits.models.checkpoint import open_checkpoint

    config = SHAPES[shape]
    assert config.mixture is not None
    if shape != "tiny-moe":
        experts = replace(config.mixture, num_experts=8, expert_size=64)
        small = {"hidden_size": 64, "ffn_size": 64, "num_heads": 4, "num_kv_heads": 2, "vocab_size": 300}
        config = replace(config, **small, num_layers=2, layers=config.layers[:2], mixture=experts)
    file = write_model(config, fmt, tmp_path / "m.gguf")
    stored, made = open_checkpoint(file), RandomCheckpoint(config, fmt)
    assert {name: stored.spec(name) for name in stored.tensors} == {name: made.spec(name) for name in stored.tensors}
    assert (stored.config.mixture, stored.config.layers) == (config.mixture, config.layers)
    assert stored.spec("layers.0.ffn.router").format == "f32"
    assert stored.spec("layers.0.ffn.experts.up").format == fmt
    logits = LLM(file, context_len=64).score([1, 42, 7] * 7, logits=True).logits
    assert np.isfinite(logits).all()
    assert logits.std() > 0.05


def test_bars_are_kept_judged_and_shown(tmp_path: Path) -> None:
    from bars import Bar, Book, all_bars, print_book

    bars = list(all_bars())
    assert len({bar.name for bar in bars}) == len(bars)
    memory = next(bar for bar in bars if bar.what.startswith("resident"))
    assert (memory.verdict(1.15), memory.verdict(1.16)) == ("met", "missed")
    faster = Bar("m", "decode / peer", 1.4)
    assert (faster.verdict(1.4), faster.verdict(1.39), Bar("m", "x").verdict(0)) == ("met", "missed", "")
    file = tmp_path / "bars.json"
    Book(file).add(memory, Spread.of([1.0, 1.2, 1.1]))
    again = Book(file)
    assert again.entries[memory.name]["verdict"] == "met"
    assert json.loads(file.read_text()) == again.entries
    console = Console(width=200, record=True, file=StringIO())
    print_book(console, [*bars[:1], memory], again)
    shown = console.export_text()
    assert "1.1 (1..1.2)" in shown
    assert "not measured" in shown
