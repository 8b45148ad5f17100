"""Latent attention against transformers' float32 logits, and the same bits however a prompt is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checkpoint_runs import (
    DATA,
    NUM_PAGES,
    PAGE_SIZE,
    Part,
    assert_same_bits,
    expected,
    make_runner,
    relative_error,
    run_prompt,
    step_batch,
    whole_prompt,
)

from samebits.backends.discovery import default_name, get
from samebits.core.errors import BadInput
from samebits.core.format import Packed
from samebits.engine.runner import Runner
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint
from samebits.models.parts import Limits
from samebits.models.parts.rope import ROPE_TABLE

BAR = 1e-5  # of the largest logit, with float32 caches
FAR = 1e-3
# Largest error over the largest logit, as measured; tests allow twice that.
MEASURED = {
    "deepseek_dense": 3.3e-6,
    "deepseek2": 3.6e-6,
    "deepseek2/model-f32.gguf": 3.6e-6,
}
NAMES = ("deepseek_dense", "deepseek2")
CUTS = (7, 8, 20, *range(34, 40))  # a chunk, a token, chunks across pages, then token by token


@pytest.mark.parametrize("file", MEASURED)
def test_logits_of_transformers(file: str) -> None:
    want = expected(file.split("/")[0])
    assert relative_error(whole_prompt(file), want.logits, want.scale) <= min(2 * MEASURED[file], BAR)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_of_transformers(name: str) -> None:
    np.testing.assert_array_equal(whole_prompt(name).argmax(axis=-1), expected(name).logits.argmax(axis=-1))


@pytest.mark.parametrize("kv_format", ["f32", "bf16"])
@pytest.mark.parametrize("name", [*NAMES, "deepseek2/model-q8_0.gguf"])
def test_chunks_and_decode_have_the_bits_of_the_whole_prompt(name: str, kv_format: str) -> None:
    runner = make_runner(open_checkpoint(DATA / name), kv_format)
    token_ids = expected(name.split("/")[0]).token_ids
    assert_same_bits(run_prompt(runner, token_ids, CUTS), whole_prompt(name, kv_format))


def test_a_neighbour_and_its_pages_do_not_move_a_bit() -> None:
    token_ids = expected("deepseek2").token_ids
    runner = make_runner(open_checkpoint(DATA / "deepseek2"))
    pages, other_pages = range(1, NUM_PAGES, 2), range(0, NUM_PAGES, 2)
    run_prompt(runner, token_ids[::-1].copy(), pages=pages)
    got = [run_prompt(runner, token_ids[:33], pages=pages)]
    for turn, start in enumerate(range(33, 40)):
        mine = Part(token_ids[start : start + 1], start, pages)
        other = Part(token_ids[2 * turn : 2 * turn + 2], 2 * turn, other_pages)
        got.append(runner.run(step_batch([other, mine], PAGE_SIZE)).logits[-1:])
    assert_same_bits(np.concatenate(got), whole_prompt("deepseek2"))


@pytest.mark.parametrize("kv_format", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("file", ["deepseek_dense", "deepseek2/model-joint-q8_0.gguf"])
def test_the_default_backend_has_the_bits_of_the_reference(file: str, kv_format: str) -> None:
    checkpoint, token_ids = open_checkpoint(DATA / file), expected(file.split("/")[0]).token_ids
    limits = Limits(96, 16, NUM_PAGES, 16, max_positions=64, k_format=kv_format)
    got, want = (
        run_prompt(Runner(checkpoint, get(name), limits, "portable"), token_ids, CUTS)
        for name in (default_name(), "reference")
    )
    assert_same_bits(got, want)


@pytest.mark.parametrize("file", ["model-f32.gguf", "model-joint-f32.gguf"])
def test_gguf_has_the_bits_of_safetensors(file: str) -> None:
    """Whether it stores the projections to keys and to values apart or as one tensor."""
    assert_same_bits(whole_prompt(f"deepseek2/{file}"), whole_prompt("deepseek2"))


def test_blocks_stay_blocks_unless_they_are_transposed() -> None:
    joint, split = (open_checkpoint(DATA / "deepseek2" / f"model-{kind}.gguf") for kind in ("joint-q8_0", "q8_0"))
    values = [checkpoint.tensor("layers.1.attn.v_b") for checkpoint in (joint, split)]
    assert all(isinstance(v, Packed) and v.shape == (4, 16, 32) for v in values)
    assert np.array_equal(*(v.data for v in values if isinstance(v, Packed)))
    keys, whole = joint.tensor("layers.1.attn.k_b"), joint.file.read("blk.1.attn_kv_b.weight")
    assert isinstance(keys, np.ndarray)
    assert isinstance(whole, Packed)
    assert np.array_equal(keys, whole.unpack().reshape(4, 48, 32)[:, :32].swapaxes(1, 2))
    for checkpoint in (joint, split):
        for name in ("layers.1.attn.k_b", "layers.1.attn.v_b"):
            spec, tensor = checkpoint.spec(name), checkpoint.tensor(name)
            is_packed = isinstance(tensor, Packed)
            assert spec is not None
            assert (spec.shape, spec.format == "q8_0") == (tensor.shape, is_packed)
    assert sum(map(joint.num_bytes, ("layers.1.attn.k_b", "layers.1.attn.v_b"))) == whole.data.nbytes


def error_with(checkpoint: FileCheckpoint, name: str) -> float:
    want = expected(name)
    return relative_error(run_prompt(make_runner(checkpoint), want.token_ids), want.logits, want.scale)


@pytest.mark.parametrize("what", ["query_scalar", "rope_is_interleaved", "magnitude"])
def test_what_sets_latent_attention_apart_matters(what: str) -> None:
    """Without YaRN's factor of scores, with other pairs, without the magnitude of the rotated part."""
    checkpoint = open_checkpoint(DATA / "deepseek_dense")
    config = checkpoint.config
    assert config.latent is not None
    rope = config.ropes[ROPE_TABLE]
    changes: dict[str, Any] = {
        "query_scalar": float(config.latent.key_size),
        "rope_is_interleaved": True,
        "magnitude": {ROPE_TABLE: replace(rope, scaling=replace(rope.scaling, magnitude=1.0))},
    }
    changed = replace(config, **{"ropes" if what == "magnitude" else what: changes[what]})
    assert error_with(replace(checkpoint, config=changed), "deepseek_dense") > FAR


def test_a_quantized_cache_is_refused_in_a_line() -> None:
    with pytest.raises(BadInput, match="k_format: got q8_0; needs f32, f16, bf16: rows of a latent cache are plain"):
        make_runner(open_checkpoint(DATA / "deepseek2"), "q8_0")
