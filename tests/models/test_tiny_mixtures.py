"""Mixtures of experts against transformers' float32 logits; the same bits however a prompt is cut and beside whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from checkpoint_runs import (
    DATA,
    MIXTURE_NAMES,
    NUM_PAGES,
    Part,
    assert_same_bits,
    expected,
    make_runner,
    relative_error,
    run_prompt,
    step_batch,
    whole_prompt,
)

from samebits.models.checkpoint import open_checkpoint

BAR = 1e-5  # of the largest logit, with float32 weights and caches
# Largest error over the largest logit, as measured, of the folder and of the GGUF file; tests allow twice that.
MEASURED = {
    "mixtral": (1.3e-6, 1.3e-6),
    "qwen3moe": (1.9e-6, 1.9e-6),
    "qwen3moe_mixed": (1.3e-6, None),
    "granitemoe": (1.8e-6, 1.7e-6),
    "glm4moe": (1.0e-6, 1.0e-6),
    "gpt_oss": (2.0e-6, 2.0e-6),
    "qwen3next_moe": (6.8e-6, 6.5e-6),
    "qwen35moe": (1.6e-6, 1.7e-6),
    "granitehybrid_moe": (1.8e-6, 1.6e-6),
    "nemotron_h_moe": (1.3e-6, 1.3e-6),
    "nemotron_h_latent": (7.5e-7, 8.5e-7),
}
FILES = [(name, bound) for name, (bound, _) in MEASURED.items()]
FILES += [(f"{name}/model-f32.gguf", bound) for name, (_, bound) in MEASURED.items() if bound]
CUTS = (5, 6, 15, 16, 17, *range(31, 38))  # chunks around boundaries of pages, then token by token
UNTOUCHED = ("qwen3moe", "glm4moe", "gpt_oss", "nemotron_h_moe")  # whose GGUF files have all rows in the same order


@pytest.mark.parametrize(("file", "measured"), FILES)
def test_logits_of_transformers(file: str, measured: float) -> None:
    want = expected(file.split("/")[0])
    assert relative_error(whole_prompt(file), want.logits, want.scale) <= min(2 * measured, BAR)
    np.testing.assert_array_equal(whole_prompt(file).argmax(axis=-1), want.logits.argmax(axis=-1))


@pytest.mark.parametrize("name", UNTOUCHED)
def test_gguf_has_the_bits_of_safetensors(name: str) -> None:
    assert_same_bits(whole_prompt(f"{name}/model-f32.gguf"), whole_prompt(name))


@pytest.mark.parametrize("name", MIXTURE_NAMES)
def test_chunks_and_decode_have_the_bits_of_the_whole_prompt(name: str) -> None:
    runner = make_runner(open_checkpoint(DATA / name))
    assert_same_bits(run_prompt(runner, expected(name).token_ids, CUTS), whole_prompt(name))


@pytest.mark.parametrize("name", MIXTURE_NAMES)
def test_a_neighbour_does_not_move_a_bit(name: str) -> None:
    """Its tokens choose experts too, before or after ours: which work lies together changes, and nothing else."""
    token_ids = expected(name).token_ids[:40]
    runner = make_runner(open_checkpoint(DATA / name))
    pages, other_pages = range(1, NUM_PAGES, 2), range(0, NUM_PAGES, 2)
    got = [run_prompt(runner, token_ids[:32], pages=pages, slot=3)]
    for turn, start in enumerate(range(32, 40, 2)):
        mine = Part(token_ids[start : start + 2], start, pages, slot=3)
        other = Part(token_ids[3 * turn : 3 * turn + 3], 3 * turn, other_pages, slot=0)
        is_first = turn % 2 == 0
        parts = [mine, other] if is_first else [other, mine]
        logits = runner.run(step_batch(parts, runner.limits.page_size, runner.windows[1:])).logits
        got.append(logits[:2] if is_first else logits[-2:])
    assert_same_bits(np.concatenate(got), whole_prompt(name)[:40])


@pytest.mark.parametrize("name", ["mixtral", "qwen3moe", "glm4moe", "gpt_oss", "qwen35moe", "nemotron_h_moe"])
def test_gguf_and_folder_agree(name: str) -> None:
    """But for what files of llama.cpp store otherwise: rotary pairs, value heads, numbers as float32."""
    folder, file = open_checkpoint(DATA / name).config, open_checkpoint(DATA / name / "model-f32.gguf").config
    assert file.mixture == folder.mixture
    assert file.layers == folder.layers
    apart = {"rms_eps": folder.rms_eps, "rope_is_interleaved": False, "recurrence": folder.recurrence, "ffn_size": 0}
    assert replace(file, **apart) == replace(folder, ffn_size=0)
