"""Latent attention against transformers' float32 logits, and the same bits however a prompt is cut."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
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
from config_checks import gguf_with

from samebits import LLM, SamplingParams
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
    "deepseek_dense": 2.2e-6,
    "deepseek2": 2.3e-6,
    "deepseek2/model-f32.gguf": 2.3e-6,
    "deepseek3": 2.0e-6,
    "deepseek3/model-f32.gguf": 2.0e-6,
}
NAMES = ("deepseek_dense", "deepseek2", "deepseek3")
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
@pytest.mark.parametrize("file", ["deepseek_dense", "deepseek2/model-joint-q8_0.gguf", "deepseek3"])
def test_the_default_backend_has_the_bits_of_the_reference(file: str, kv_format: str) -> None:
    checkpoint, token_ids = open_checkpoint(DATA / file), expected(file.split("/")[0]).token_ids
    limits = Limits(96, 16, NUM_PAGES, 16, max_positions=64, k_format=kv_format)
    got, want = (
        run_prompt(Runner(checkpoint, get(name), limits, "portable"), token_ids, CUTS)
        for name in (default_name(), "reference")
    )
    assert_same_bits(got, want)


@pytest.mark.parametrize("name", ["deepseek2/model-q8_0.gguf", "deepseek3"])
def test_an_answer_alone_and_among_others(name: str) -> None:
    """Through the engine, in steps of few tokens; the second time after a prefix that is known."""
    prompt = expected(name.split("/")[0]).token_ids[:35].tolist()
    params = SamplingParams(max_tokens=12, temperature=0, hash_logits=True, ignore_eos=True)
    sizes = {"max_sequences": 8, "context_len": 64, "k_format": "bf16", "numerics": "portable"}
    (alone,) = LLM(DATA / name, max_batch_tokens=64, **sizes).generate([prompt], params)
    llm = LLM(DATA / name, max_batch_tokens=11, **sizes)
    others = [[*prompt[i:], 7] for i in range(1, 7)]
    for _ in range(2):
        among = llm.generate([*others[:3], prompt, *others[3:]], params)[3]
        assert (among.token_ids, among.logits_sha256) == (alone.token_ids, alone.logits_sha256)


@pytest.mark.parametrize(
    "file", ["deepseek2/model-f32.gguf", "deepseek2/model-joint-f32.gguf", "deepseek3/model-f32.gguf"]
)
def test_gguf_has_the_bits_of_safetensors(file: str) -> None:
    """Whether it stores the projections to keys and to values apart or as one tensor."""
    assert_same_bits(whole_prompt(file), whole_prompt(file.split("/")[0]))


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


ROUTING: list[tuple[str, dict[str, Any]]] = [
    ("deepseek2", {"group_best": 2}),
    ("deepseek2", {"num_groups": 1, "num_groups_kept": 1}),
    ("deepseek2", {"scores": "sigmoid"}),
    ("deepseek2", {"is_normalized": True}),
    ("deepseek2", {"scale": 1.0}),
    ("deepseek2", {"shared_size": 0}),
    ("deepseek3", {"group_best": 1}),
    ("deepseek3", {"has_choice_bias": False}),
    ("deepseek3", {"is_normalized": False}),
]


@pytest.mark.parametrize(("name", "change"), ROUTING, ids=[f"{n}-{'-'.join(c)}" for n, c in ROUTING])
def test_every_rule_of_the_router_matters(name: str, change: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(DATA / name)
    assert checkpoint.config.mixture is not None
    changed = replace(checkpoint.config, mixture=replace(checkpoint.config.mixture, **change))
    assert error_with(replace(checkpoint, config=changed), name) > FAR


def config_with(tmp_path: Path, name: str, change: dict[str, Any], without: tuple[str, ...] = ()) -> Path:
    """A copy of a tiny checkpoint with other config values, some left out."""
    folder = tmp_path / name
    shutil.copytree(DATA / name, folder)
    config = json.loads((folder / "config.json").read_text()) | change
    kept = {key: value for key, value in config.items() if key not in without}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder


def test_a_published_config_means_the_same(tmp_path: Path) -> None:
    """Keys as DeepSeek wrote them: rope_scaling with its type, no rope_interleave, no head_dim."""
    rope = json.loads((DATA / "deepseek3" / "config.json").read_text())["rope_parameters"]
    theta = rope.pop("rope_theta")
    published = {"rope_theta": theta, "rope_scaling": {"type": rope.pop("rope_type"), **rope}, "moe_layer_freq": 1}
    published |= {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    folder = config_with(tmp_path, "deepseek3", published, ("rope_parameters", "rope_interleave", "head_dim"))
    assert open_checkpoint(folder).config == open_checkpoint(DATA / "deepseek3").config


def test_greedy_choice_has_no_groups(tmp_path: Path) -> None:
    mixture = open_checkpoint(config_with(tmp_path, "deepseek2", {"topk_method": "greedy"})).config.mixture
    assert mixture is not None
    assert (mixture.num_groups, mixture.num_groups_kept) == (1, 1)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("deepseek2", {"norm_topk_prob": True}, "norm_topk_prob is True, but must be false"),
    ("deepseek3", {"moe_layer_freq": 2}, "moe_layer_freq is 2, but must be 1"),
    ("deepseek3", {"attention_bias": True}, "attention_bias is True, but must be false"),
    ("deepseek3", {"n_group": 3}, "groups of experts is 3, but must be a divisor of the 8 experts"),
]


@pytest.mark.parametrize(("name", "change", "line"), REFUSED, ids=[next(iter(c)) for _, c, _ in REFUSED])
def test_what_is_not_supported_is_refused_in_a_line(
    tmp_path: Path, name: str, change: dict[str, Any], line: str
) -> None:
    with pytest.raises(BadInput, match=line):
        open_checkpoint(config_with(tmp_path, name, change))


def test_scores_that_grow_with_the_position_are_refused() -> None:
    """As in the GGUF files of Mistral Large 3, which are of this architecture."""
    key = "deepseek2.attention.temperature_scale"
    assert gguf_with("deepseek2", {key: 0.0})()
    with pytest.raises(BadInput, match=r"attention.temperature_scale is 0.1, but must be 0"):
        gguf_with("deepseek2", {key: 0.1})()


def test_a_quantized_cache_is_refused_in_a_line() -> None:
    with pytest.raises(
        BadInput, match="k_format is q8_0, but must be f32, f16, bf16: rows of a latent cache are plain"
    ):
        make_runner(open_checkpoint(DATA / "deepseek2"), "q8_0")
