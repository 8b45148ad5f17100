"""Hugging Face folders: config.json, one file or shards, and everything that can be wrong with them."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from samebits.core.errors import BadInput, SamebitsError
from samebits.loaders.fields import Fields
from samebits.loaders.safetensors_dir import open_safetensors
from samebits.models.checkpoint import open_checkpoint, read_config
from samebits.models.parts import ROPE_TABLE

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
NORMS = ("input_layernorm", "post_attention_layernorm")
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def weights(dtype: Any = np.float32, norms: tuple[str, ...] = NORMS) -> dict[str, np.ndarray]:
    """The tensors of CONFIG's model."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (50, 64), "model.norm.weight": (64,)}
    shapes["lm_head.weight"] = (50, 64)
    for i in range(2):
        parts = {"q": (64, 64), "k": (32, 64), "v": (32, 64), "o": (64, 64)}
        layer = {f"self_attn.{p}_proj.weight": shape for p, shape in parts.items()}
        layer |= {"mlp.gate_proj.weight": (96, 64), "mlp.up_proj.weight": (96, 64), "mlp.down_proj.weight": (64, 96)}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
        shapes |= {f"model.layers.{i}.{name}.weight": (64,) for name in norms}
    return {name: (np.arange(np.prod(shape)) % 5).reshape(shape).astype(dtype) for name, shape in shapes.items()}


def folder(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors")
    return path


def config_of(**changes: Any) -> Any:
    return read_config(Fields(CONFIG | changes, "config.json"), False, {})[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_one_file(tmp_path: Path, dtype: Any) -> None:
    checkpoint = open_checkpoint(folder(tmp_path, CONFIG, weights(dtype)))
    config = checkpoint.config
    assert checkpoint.architecture.name == "llama"
    assert (config.head_size, config.ropes[ROPE_TABLE].theta, config.rope_is_interleaved, config.is_tied) == (
        16,
        500000.0,
        False,
        False,
    )
    q = checkpoint.tensor("layers.1.attn.q")
    assert isinstance(q, np.ndarray)
    assert q.dtype == dtype
    assert np.array_equal(q, weights(dtype)["model.layers.1.self_attn.q_proj.weight"])
    assert open_checkpoint(tmp_path / "model.safetensors").tensor("norm").shape == (64,)


def test_shards(tmp_path: Path) -> None:
    tensors = weights()
    names = sorted(tensors)
    halves = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, tmp_path / file)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {name: file for file, part in halves.items() for name in part}
    index.write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = open_checkpoint(tmp_path)
    for ours, stored in checkpoint.tensors.items():
        assert np.array_equal(checkpoint.tensor(ours), tensors[stored.name])
    for bad, expected in (
        ("../model-1.safetensors", "inside"),
        ("/etc/x.safetensors", "inside"),
        ("a.bin", "name of a"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map | {"x": bad}}))
        with pytest.raises(BadInput, match=expected):
            open_checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": weight_map | {"lost": "model-1.safetensors"}}))
    with pytest.raises(BadInput, match="tensor lost is missing"):
        open_checkpoint(tmp_path)
    for text, expected in (
        ("{", "JSON"),
        ("[]", "an object"),
        ('{"weight_map": 3}', "weight_map"),
        ("[" * 100000, "JSON"),
    ):
        index.write_text(text)
        with pytest.raises(BadInput, match=expected):
            open_checkpoint(tmp_path)


@pytest.mark.parametrize("index", ["whole", "of a missing shard", "no JSON"])
def test_a_folder_with_one_file_and_an_index_is_the_one_file(tmp_path: Path, index: str) -> None:
    """transformers looks for model.safetensors first, and reads no index then. It is not run here."""
    single, other = weights(), {name: array + 1 for name, array in weights().items()}
    save_file(single, tmp_path / "model.safetensors")
    save_file(other, tmp_path / "shard.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    shard = "shard.safetensors" if index == "whole" else "gone.safetensors"
    text = "{" if index == "no JSON" else json.dumps({"weight_map": dict.fromkeys(other, shard)})
    (tmp_path / "model.safetensors.index.json").write_text(text)
    checkpoint = open_checkpoint(tmp_path)
    for ours, stored in checkpoint.tensors.items():
        assert np.array_equal(checkpoint.tensor(ours), single[stored.name])
    (tmp_path / "model.safetensors").unlink()
    if index == "whole":
        assert np.array_equal(open_checkpoint(tmp_path).tensor("norm"), other["model.norm.weight"])
    else:
        with pytest.raises(BadInput):
            open_checkpoint(tmp_path)


def test_gemma2(tmp_path: Path) -> None:
    config = CONFIG | {"model_type": "gemma2", "query_pre_attn_scalar": 224, "sliding_window": 32, "head_dim": 16}
    config |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "tie_word_embeddings": True}
    norms = (*NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
    checkpoint = open_checkpoint(folder(tmp_path, config, weights(norms=norms)))
    config = checkpoint.config
    assert (config.query_scalar, config.activation, config.embed_scale) == (224.0, "gelu_tanh", 8.0)
    assert windows(config) == [32, None]
    stored = checkpoint.tensors
    assert stored["layers.0.ffn_norm"].name.endswith("pre_feedforward_layernorm.weight")
    assert stored["layers.0.post_attn_norm"].name.endswith("post_attention_layernorm.weight")
    assert {name for name, tensor in stored.items() if tensor.plus} == {n for n in stored if n.endswith("norm")}


def test_rope_scaling_in_both_spellings() -> None:
    for changes in ({"rope_scaling": LLAMA3}, {"rope_parameters": LLAMA3 | {"rope_theta": 7.0}}):
        config = config_of(**changes)
        scaling = config.ropes[ROPE_TABLE].scaling
        assert (scaling.kind, scaling.factor, scaling.original_len) == ("llama3", 8.0, 8192)
        assert config.ropes[ROPE_TABLE].theta == (7.0 if "rope_parameters" in changes else 500000.0)
    assert config_of(rope_scaling={"type": "linear", "factor": 2}).ropes[ROPE_TABLE].scaling.factor == 2.0
    assert config_of(rope_scaling=None).ropes[ROPE_TABLE].scaling.kind == "none"


def windows(config: Any) -> list[int | None]:
    return [layer.window for layer in config.layers]


def test_windows_and_biases() -> None:
    assert windows(config_of(model_type="mistral", sliding_window=16)) == [16, 16]
    assert windows(config_of(model_type="mistral", sliding_window=None)) == [None, None]
    assert windows(config_of(sliding_window=16)) == [None, None]
    switched_off = config_of(model_type="qwen2", sliding_window=16, use_sliding_window=False)
    assert windows(switched_off) == [None, None]
    qwen = config_of(model_type="qwen2", sliding_window=16, use_sliding_window=True, max_window_layers=1)
    assert (windows(qwen), qwen.has_qkv_bias, qwen.has_out_bias) == ([None, 16], True, False)
    biased = config_of(attention_bias=True)
    assert (biased.has_qkv_bias, biased.has_out_bias) == (True, True)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba', but must be one of llama"),
        ({"model_type": None, "architectures": ["XForCausalLM"]}, "model_type is 'XForCausalLM'"),
        ({"model_type": 3}, "model_type is 3"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers is 1000"),
        ({"num_key_value_heads": 3}, "a divisor of the 4"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"model_type": "mistral", "mlp_bias": True}, "mlp_bias"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, "rope_type is 'dynamic'"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 0.5}}, "high_freq_factor is 0.5"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "one rotation for all layers"),
        ({"rope_scaling": [1]}, "rope_scaling is a list of 1"),
        ({"model_type": "gemma2", "layer_types": ["x"]}, "layer_types"),
    ],
)
def test_wrong_configs(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        config_of(**changes)


def test_missing_tensors_and_formats(tmp_path: Path) -> None:
    tensors = weights()
    del tensors["lm_head.weight"]
    with pytest.raises(BadInput, match=r"tensor lm_head\.weight \(head\) is missing: it must be shape 50x64"):
        open_checkpoint(folder(tmp_path, CONFIG, tensors))
    open_checkpoint(folder(tmp_path, CONFIG | {"tie_word_embeddings": True}, tensors))
    tensors = weights() | {"model.norm.weight": np.zeros(64, np.int8)}
    with pytest.raises(BadInput, match=r"tensor model\.norm\.weight is format i8"):
        open_checkpoint(folder(tmp_path, CONFIG, tensors))


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^no model in the folder /.*: it has neither .* nor model\.safetensors nor "):
        open_checkpoint(tmp_path)
    save_file(weights(), tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match=r"config\.json: file is missing"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"x": NaN}')
    with pytest.raises(BadInput, match="NaN is not JSON"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(" " * (5 << 20))
    with pytest.raises(BadInput, match=r"config\.json: size has 5242880 bytes"):
        open_checkpoint(tmp_path)


VALID = save({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(4, np.float16)})


@pytest.mark.parametrize("num_bytes", [0, 7, 8, 20, len(VALID) - 1])
def test_truncated_files(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(VALID[:num_bytes])
    with pytest.raises(BadInput, match=r"m\.safetensors: "):
        open_safetensors(path)


def test_a_header_longer_than_allowed(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + VALID[8:])
    with pytest.raises(BadInput, match=r"header length is 1152921504606846976"):
        open_safetensors(path)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]]) -> None:
    data = bytearray(VALID)
    for at, value in edits:
        data[at] = value
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(data)
    with suppress(SamebitsError):
        file = open_safetensors(path)
        for name in file.tensors:
            file.read(name)
