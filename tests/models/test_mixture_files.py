"""The layouts in which published files store experts: joined, in MXFP4, with layers that predict more tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checkpoint_runs import DATA, assert_same_bits, expected, make_runner, run_prompt, whole_prompt
from safetensors.numpy import load_file, save_file
from test_hybrid_configs import gguf_with

from samebits.core.format import Packed
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import GgufFile
from samebits.models.checkpoint import open_checkpoint, read_config

NUM_EXPERTS = 4


def joined_folder(tmp_path: Path, name: str) -> Path:
    """A tiny checkpoint with the gate and up of all experts as one tensor, as Qwen 3.5 is published."""
    (tmp_path / "config.json").write_bytes((DATA / name / "config.json").read_bytes())
    stored = load_file(DATA / name / "model.safetensors")
    layers = {key.split(".experts.")[0] for key in stored if ".experts." in key}
    for layer in layers:
        parts = {
            part: np.stack([stored.pop(f"{layer}.experts.{e}.{part}_proj.weight") for e in range(NUM_EXPERTS)])
            for part in ("gate", "up", "down")
        }
        stored[f"{layer}.experts.gate_up_proj"] = np.concatenate([parts["gate"], parts["up"]], axis=1)
        stored[f"{layer}.experts.down_proj"] = parts["down"]
    save_file(stored, tmp_path / "model.safetensors")
    return tmp_path


def test_gate_and_up_of_all_experts_in_one_tensor(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(joined_folder(tmp_path, "qwen35moe"))
    assert checkpoint.config.mixture is not None
    assert checkpoint.config.mixture.is_joined
    got = run_prompt(make_runner(checkpoint), expected("qwen35moe").token_ids)
    assert_same_bits(got, whole_prompt("qwen35moe"))


def test_gate_and_up_in_one_tensor_of_a_gguf_file() -> None:
    """Recent converters may write it."""
    checkpoint = open_checkpoint(DATA / "qwen3moe" / "model-f32.gguf")
    entries = dict(checkpoint.file.tensors)
    for layer in range(2):
        gate, _ = (entries.pop(f"blk.{layer}.ffn_{part}_exps.weight") for part in ("gate", "up"))
        name = f"blk.{layer}.ffn_gate_up_exps.weight"
        entries[name] = replace(gate, name=name, shape=(8, 24, 32), num_bytes=2 * gate.num_bytes)
    architecture, config = read_config(Fields(checkpoint.file.metadata, "x"), True, entries)
    stored = architecture.tensors(config, is_gguf=True)
    gate_up = [stored[f"layers.1.ffn.experts.{part}"] for part in ("gate", "up")]
    assert [(s.name, s.needed, s.shape) for s in gate_up] == [
        ("blk.1.ffn_gate_up_exps.weight", (8, 24, 32), (8, 12, 32))
    ] * 2
    assert [s.rows and s.rows.index() for s in gate_up] == [slice(0, 12), slice(12, 24)]
    assert stored["layers.1.ffn.experts.down"].name == "blk.1.ffn_down_exps.weight"


def test_text_part_of_a_model_of_pictures(tmp_path: Path) -> None:
    """As Qwen 3.5 with experts is published: its configuration within another, tensors below a name of their own."""
    config = json.loads((joined_folder(tmp_path, "qwen35moe") / "config.json").read_text())
    whole = {"model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"]}
    (tmp_path / "config.json").write_text(json.dumps(whole | {"text_config": config, "tie_word_embeddings": False}))
    stored = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in stored.items()}
    save_file(renamed, tmp_path / "model.safetensors")
    got = run_prompt(make_runner(open_checkpoint(tmp_path)), expected("qwen35moe").token_ids)
    assert_same_bits(got, whole_prompt("qwen35moe"))


def mxfp4_folder(tmp_path: Path) -> Path:
    """gpt-oss as it is published: blocks and scales, gate and up row by row in turn, element 2j beside 2j + 1."""
    config = json.loads((DATA / "gpt_oss" / "config.json").read_text())
    quantized = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    (tmp_path / "config.json").write_text(json.dumps(config | quantized))
    stored = load_file(DATA / "gpt_oss" / "model.safetensors")
    packed = open_checkpoint(DATA / "gpt_oss" / "model-mxfp4.gguf")
    for layer in range(2):
        tensors = [packed.tensor(f"layers.{layer}.ffn.experts.{part}") for part in ("gate", "up", "down")]
        gate, up, down = (tensor.data for tensor in tensors if isinstance(tensor, Packed))
        both = np.stack([gate, up], axis=2).reshape(NUM_EXPERTS, -1, gate.shape[-1])
        for name, rows in (("gate_up_proj", both), ("down_proj", down)):
            full = f"model.layers.{layer}.mlp.experts.{name}"
            del stored[full]
            blocks = rows.reshape(*rows.shape[:-1], -1, 17)
            codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], axis=-1)  # in order
            stored[f"{full}_blocks"] = codes[..., ::2] | (codes[..., 1::2] << 4)
            stored[f"{full}_scales"] = np.ascontiguousarray(blocks[..., 0])
    save_file(stored, tmp_path / "model.safetensors")
    return tmp_path


def test_gpt_oss_in_mxfp4(tmp_path: Path) -> None:
    """Both kinds of files hold the numbers of the float32 ones, and give the same bits."""
    file, plain = (open_checkpoint(DATA / "gpt_oss" / f"model-{kind}.gguf") for kind in ("mxfp4", "f32"))
    folder = open_checkpoint(mxfp4_folder(tmp_path))
    for name in plain.tensors:
        want = plain.tensor(name)
        for checkpoint in (file, folder):
            got = checkpoint.tensor(name)
            assert isinstance(got, Packed) == (".experts." in name and not name.endswith("_bias"))
            assert np.array_equal(got.unpack() if isinstance(got, Packed) else got, want), name
    assert folder.num_bytes("layers.0.ffn.experts.gate") == file.num_bytes("layers.0.ffn.experts.gate")
    got, want = run_prompt(make_runner(folder), expected("gpt_oss").token_ids), expected("gpt_oss")
    assert_same_bits(got, whole_prompt("gpt_oss/model-mxfp4.gguf"))
    errors = np.abs(got - want.logits).max(axis=-1) / want.scale
    assert np.sort(errors)[-2] <= 0.05  # measured: 0.037; what enters experts is in 8 bits
    assert errors.max() > 0.1  # one token of 40 chooses another expert for it


@pytest.mark.parametrize("name", ["glm4moe", "gpt_oss"])
def test_16_bit_checkpoints(tmp_path: Path, name: str) -> None:
    """Biases and sinks are read as float32 whatever files hold; only matrix products round what enters them."""
    (tmp_path / "config.json").write_bytes((DATA / name / "config.json").read_bytes())
    stored = load_file(DATA / name / "model.safetensors")
    save_file({k: v.astype(np.float16) for k, v in stored.items()}, tmp_path / "model.safetensors")
    checkpoint, want = open_checkpoint(tmp_path), expected(name)
    formats = {key: spec.format for key in checkpoint.tensors if (spec := checkpoint.spec(key))}
    assert {formats[f"layers.1.ffn.{part}"] for part in ("router", "experts.gate", "experts.down")} == {"f16"}
    read = ["ffn.choice_bias"] if name == "glm4moe" else ["attn.sinks", "ffn.experts.up_bias", "ffn.experts.down_bias"]
    assert {formats[f"layers.1.{part}"] for part in read} == {"f32"}
    errors = np.abs(run_prompt(make_runner(checkpoint), want.token_ids) - want.logits).max(axis=-1) / want.scale
    assert errors.max() <= 1e-2  # measured: 1.9e-3, 5.3e-3


@pytest.mark.parametrize(("name", "prefix"), [("glm4moe", "glm4moe"), ("nemotron_h_moe", "nemotron_h_moe")])
def test_layers_that_predict_more_tokens_are_left_out(name: str, prefix: str) -> None:
    """Files of llama.cpp count them among the others; the last layer of these is taken for such a one."""
    _, config = gguf_with(name, {f"{prefix}.nextn_predict_layers": 1})()
    whole = open_checkpoint(DATA / name / "model-f32.gguf").config
    assert config == replace(whole, num_layers=whole.num_layers - 1, layers=whole.layers[:-1])


def test_files_say_by_their_tensors_whether_there_are_head_norms() -> None:
    checkpoint = open_checkpoint(DATA / "glm4moe" / "model-f32.gguf")
    assert "layers.0.attn.q_norm" in checkpoint.tensors
    assert isinstance(checkpoint.file, GgufFile)
    fewer = {name: entry for name, entry in checkpoint.file.tensors.items() if "attn_q_norm" not in name}
    architecture, config = read_config(Fields(checkpoint.file.metadata, "x"), True, fewer)
    assert "layers.0.attn.q_norm" not in architecture.tensors(config, is_gguf=True)
