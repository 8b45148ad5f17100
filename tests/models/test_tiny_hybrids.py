"""Hybrids against transformers' float32 logits, and the same bits however a prompt is cut and in whatever slot."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from checkpoint_runs import (
    DATA,
    HYBRID_NAMES,
    HYBRID_PAGE_SIZE,
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
from safetensors.numpy import load_file, save_file

from samebits.core.format import Packed
from samebits.models.checkpoint import open_checkpoint

BAR = 1e-5  # of the largest logit, with float32 caches; states are float32 always
# Largest error over the largest logit, as measured, of the folder and of the GGUF file; tests allow twice that.
MEASURED = {
    "qwen3next": (2.1e-6, 2.1e-6),
    "qwen35": (4.7e-6, 4.5e-6),
    "mamba2": (8.1e-7, 7.4e-7),
    "lfm2": (1.8e-6, 1.8e-6),
    "granitehybrid": (2.3e-6, 2.3e-6),
    "falcon_h1": (1.6e-6, 1.1e-6),
    "falcon_h1_norm": (9.9e-7, None),
    "nemotron_h": (2.4e-6, 2.4e-6),
}
FILES = [(name, bound) for name, (bound, _) in MEASURED.items()]
FILES += [(f"{name}/model-f32.gguf", bound) for name, (_, bound) in MEASURED.items() if bound]
SPLITS = (
    (16, 32, 48),  # at boundaries alone
    (5, 6, 15, 16, 17, 31, 47),  # on all sides of them
    tuple(range(12, 36)),  # token by token, over two of them
    (40,),  # a chunk over two of them
)


@pytest.mark.parametrize(("file", "measured"), FILES)
def test_logits_of_transformers(file: str, measured: float) -> None:
    want = expected(file.split("/")[0])
    error = relative_error(whole_prompt(file), want.logits, want.scale)
    assert error <= min(2 * measured, BAR)


@pytest.mark.parametrize("name", HYBRID_NAMES)
def test_greedy_tokens_of_transformers(name: str) -> None:
    np.testing.assert_array_equal(whole_prompt(name).argmax(axis=-1), expected(name).logits.argmax(axis=-1))


@pytest.mark.parametrize("cuts", SPLITS, ids=["boundaries", "around", "tokens", "over"])
@pytest.mark.parametrize("name", HYBRID_NAMES)
def test_any_split_has_the_bits_of_the_whole_prompt(name: str, cuts: tuple[int, ...]) -> None:
    runner = make_runner(open_checkpoint(DATA / name))
    assert_same_bits(run_prompt(runner, expected(name).token_ids, cuts), whole_prompt(name))


@pytest.mark.parametrize("name", HYBRID_NAMES)
def test_a_slot_and_a_neighbour_do_not_move_a_bit(name: str) -> None:
    """Another sequence had the slot before; a third one prefills and decodes beside it, before or after it."""
    token_ids = expected(name).token_ids
    runner = make_runner(open_checkpoint(DATA / name))
    pages, other_pages = range(1, NUM_PAGES, 2), range(0, NUM_PAGES, 2)
    run_prompt(runner, token_ids[::-1].copy(), (9,), pages, slot=11)
    got = []
    for turn, (start, end) in enumerate(pairwise((0, 13, 14, 30, 31, 34, 48, 49, 52))):
        mine = Part(token_ids[start:end], start, pages, slot=11)
        other = Part(token_ids[3 * turn : 3 * turn + 3], 3 * turn, other_pages, slot=turn // 8)
        is_first = turn % 2 == 0
        logits = runner.run(step_batch([mine, other] if is_first else [other, mine], HYBRID_PAGE_SIZE)).logits
        got.append(logits[: end - start] if is_first else logits[start - end :])
    assert_same_bits(np.concatenate(got), whole_prompt(name))


def test_text_part_of_a_model_of_pictures(tmp_path: Path) -> None:
    """As Qwen 3.5 is published: its configuration within another, its tensors below a name of their own."""
    config = json.loads((DATA / "qwen35" / "config.json").read_text())
    whole = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": config}
    (tmp_path / "config.json").write_text(json.dumps(whole | {"tie_word_embeddings": False, "vision_config": {}}))
    stored = load_file(DATA / "qwen35" / "model.safetensors")
    renamed = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in stored.items()}
    save_file(renamed | {"model.visual.norm.weight": np.ones(3, np.float32)}, tmp_path / "model.safetensors")
    got = run_prompt(make_runner(open_checkpoint(tmp_path)), expected("qwen35").token_ids)
    assert_same_bits(got, whole_prompt("qwen35"))


@pytest.mark.parametrize("name", ["qwen3next", "nemotron_h"])
def test_16_bit_checkpoints(tmp_path: Path, name: str) -> None:
    """Taps, decays and biases are read as float32 whatever files hold; only matrix products round what enters them."""
    (tmp_path / "config.json").write_bytes((DATA / name / "config.json").read_bytes())
    stored = load_file(DATA / name / "model.safetensors")
    save_file({k: v.astype(np.float16) for k, v in stored.items()}, tmp_path / "model.safetensors")
    checkpoint, want = open_checkpoint(tmp_path), expected(name)
    mixer = "delta" if name == "qwen3next" else "ssm"
    formats = {part: checkpoint.spec(f"layers.0.{mixer}.{part}").format for part in ("taps", "decay", "dt_bias", "out")}
    assert formats == {"taps": "f32", "decay": "f32", "dt_bias": "f32", "out": "f16"}
    error = relative_error(run_prompt(make_runner(checkpoint), want.token_ids), want.logits, want.scale)
    assert error <= 1e-2  # measured: 4.4e-3, 3.9e-3


def test_rows_of_packed_tensors() -> None:
    """Queries, gates and heads are gathered out of joined tensors block by block, as they are out of plain ones."""
    packed, plain = (open_checkpoint(DATA / "qwen3next" / f"model-{kind}.gguf") for kind in ("q8_0", "f32"))
    num_packed = 0
    for name in plain.tensors:
        got, want = packed.tensor(name), plain.tensor(name)
        assert isinstance(want, np.ndarray)
        num_packed += isinstance(got, Packed)
        numbers = got.unpack() if isinstance(got, Packed) else got
        assert np.abs(numbers - want).max() <= np.abs(want).max() / 240, name  # half a code of the largest block
    assert num_packed == 24
    want_logits = expected("qwen3next")
    error = relative_error(whole_prompt("qwen3next/model-q8_0.gguf"), want_logits.logits, want_logits.scale)
    assert error <= 0.2  # measured: 0.131; weights and what enters them in 8 bits
