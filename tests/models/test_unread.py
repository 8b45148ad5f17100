"""A file that holds something that nobody reads is refused: a key or a tensor that could change answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_runs import DATA, HYBRID_NAMES, MIXTURE_NAMES, NAMES
from published_keys import FOLDERS, GENERAL, GGUF, SAVED, WHOLE
from test_bad_checkpoints import damaged_folder, refusal

from samebits.core.errors import BadInput
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import GgufFile
from samebits.loaders.safetensors_dir import SafetensorsDir
from samebits.loaders.source import TensorEntry
from samebits.models import ARCHITECTURES
from samebits.models.checkpoint import FileCheckpoint, build_step, open_checkpoint, read_config
from samebits.models.parts import ROPE_TABLE, Limits

UNKNOWN_KEY, UNKNOWN_TENSOR = "attention_warp_scale", "attn_warp.weight"
LATENT_NAMES = ("deepseek_dense", "deepseek2", "deepseek3")
HF_LAYER = {"mamba2": "backbone.layers.1", "nemotron_h": "backbone.layers.1", "nemotron_h_moe": "backbone.layers.1"}
HEAD_NORMS = [f"blk.{layer}.attn_{part}_norm.weight" for layer in range(2) for part in "qk"]


def with_tensors(file: GgufFile | SafetensorsDir, *names: str, length: int = 8) -> Any:
    """The file with more tensors, which are never read."""
    extra = {name: TensorEntry(name, (length,), "f32", 4 * length, True, str(file.path)) for name in names}
    return replace(file, tensors=file.tensors | extra)


def checked(file: GgufFile | SafetensorsDir, stated: dict[str, Any]) -> FileCheckpoint:
    """The checkpoint of a file that states something else, checked as one is that is opened."""
    is_gguf = isinstance(file, GgufFile)
    architecture, config = read_config(Fields(stated, "the file"), is_gguf, file.tensors)
    checkpoint = FileCheckpoint(file.path, file, architecture, config, architecture.tensors(config, is_gguf))
    checkpoint.check()
    return checkpoint


def folder(architecture: str) -> tuple[SafetensorsDir, dict[str, Any]]:
    """A tiny folder of an architecture, and its config.json with all keys of published ones."""
    name, published = FOLDERS[architecture]
    file = open_checkpoint(DATA / name).file
    assert isinstance(file, SafetensorsDir)
    own = json.loads((DATA / name / "config.json").read_text())
    rotation = own.get("rope_parameters", {})
    theta = rotation.get("full_attention", rotation).get("rope_theta", 10000.0)  # which transformers 4 keeps outside
    return file, SAVED | {"rope_theta": theta} | published | own


def gguf(architecture: str) -> tuple[GgufFile, dict[str, Any]]:
    """A tiny GGUF file of an architecture, and its metadata with all keys of published ones.

    llama.cpp has no files named mistral, mixtral or deepseek3: those keys of another name stand for them.
    """
    name, published = GGUF[architecture]
    file = open_checkpoint(DATA / name / "model-f32.gguf").file
    assert isinstance(file, GgufFile)
    old = file.metadata["general.architecture"]
    own = {key.replace(f"{old}.", f"{architecture}.", 1): value for key, value in file.metadata.items()}
    more = {f"{architecture}.{key}": value for key, value in published.items()}
    if architecture == "qwen3":
        file = with_tensors(file, *HEAD_NORMS)
    return file, GENERAL | more | own | {"general.architecture": architecture}


def test_every_architecture_is_here() -> None:
    assert FOLDERS.keys() == GGUF.keys() == set(ARCHITECTURES)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_keys_of_published_folders_are_let_through(architecture: str) -> None:
    file, stated = folder(architecture)
    expected = open_checkpoint(DATA / FOLDERS[architecture][0])
    assert checked(file, stated).config == expected.config
    assert stated.keys() >= FOLDERS[architecture][1].keys()


@pytest.mark.parametrize("architecture", ["qwen35", "qwen35moe"])
def test_keys_beside_the_text_model_are_let_through(architecture: str) -> None:
    file, stated = folder(architecture)
    whole = SAVED | WHOLE | {"model_type": ARCHITECTURES[architecture].hf_whole[0], "text_config": stated}
    renamed = {n.replace("model.", "model.language_model.", 1): entry for n, entry in file.tensors.items()}
    file = with_tensors(replace(file, tensors=renamed), "model.visual.blocks.0.attn.qkv.bias", "mtp.fc.weight")
    assert checked(file, whole).config.hf_root == "model.language_model"
    with pytest.raises(BadInput, match=r"the file: residual_scale is 2, which is not supported"):
        checked(file, whole | {"residual_scale": 2})
    with pytest.raises(BadInput, match=r"the file: text_config: residual_scale is 2, which is not supported"):
        checked(file, whole | {"text_config": stated | {"residual_scale": 2}})
    with pytest.raises(BadInput, match=r"tensor model\.language_model\.layers\.0\.warp\.weight has shape 8"):
        checked(with_tensors(file, "model.language_model.layers.0.warp.weight"), whole)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_keys_of_published_gguf_files_are_let_through(architecture: str) -> None:
    file, stated = gguf(architecture)
    assert checked(file, stated).architecture.name == architecture


@pytest.mark.parametrize("value", [True, False, 0, 2.0, "linear", [1, 2], {"a": 1}], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_unknown_key_of_a_folder_is_refused(architecture: str, value: Any) -> None:
    file, stated = folder(architecture)
    assert_names_it(file, stated | {UNKNOWN_KEY: value}, f"the file: {UNKNOWN_KEY} is ", "which is not supported")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_unknown_key_of_a_gguf_file_is_refused(architecture: str) -> None:
    file, stated = gguf(architecture)
    for value in (True, False, 0, 2.0, "linear", np.array([1, 2])):
        more = {f"{architecture}.{UNKNOWN_KEY}": value}
        assert_names_it(file, stated | more, f"the file: {architecture}.{UNKNOWN_KEY} is ", "which is not supported")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_unknown_tensor_of_a_layer_is_refused(architecture: str) -> None:
    file, stated = folder(architecture)
    name = f"{HF_LAYER.get(architecture, 'model.layers.1')}.{UNKNOWN_TENSOR}"
    assert_names_it(with_tensors(file, name), stated, f"tensor {name} has shape 8", "which is not supported")
    of_gguf, metadata = gguf(architecture)
    name = f"blk.1.{UNKNOWN_TENSOR}"
    assert_names_it(with_tensors(of_gguf, name), metadata, f"tensor {name} has shape 8", "which is not supported")


def assert_names_it(file: GgufFile | SafetensorsDir, stated: dict[str, Any], *parts: str) -> None:
    message = refusal(lambda: checked(file, stated))
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("nothing", [None, "", [], {}], ids=str)
def test_an_unknown_key_without_a_value_says_nothing(nothing: Any) -> None:
    file, stated = folder("llama")
    checked(file, stated | {UNKNOWN_KEY: nothing})


OTHER_VALUES: list[tuple[str, str, Any, str]] = [
    ("gemma2", "use_bidirectional_attention", "all", "must be false: this version supports no other value"),
    ("granitemoe", "normalization_function", "layernorm", "must be 'rmsnorm'"),
    ("deepseek3", "scoring_func", "softmax", "must be 'sigmoid'"),
    ("deepseek2", "topk_method", "noaux_tc", "must be greedy or group_limited_greedy"),
    ("deepseek2", "num_key_value_heads", 2, "must be num_attention_heads, 4"),
    ("qwen35", "attn_output_gate", False, "must be true"),
    ("lfm2", "block_use_swiglu", False, "must be true"),
    ("lfm2", "theta", 1000.0, "must be 500 as in rope_theta: versions of transformers differ in which one they take"),
    ("qwen3moe", "shared_expert_intermediate_size", 64, "must be false"),
    ("qwen3moe", "use_qk_norm", False, "must be true"),
    ("phi3", "full_attn_mod", 2, "must be 1"),
    ("llama", "is_encoder_decoder", True, "must be false"),
    ("llama", "num_experts_per_tok", 2, "which is not supported"),
    ("mistral", "attention_bias", True, "must be false"),
    ("mixtral", "attention_bias", True, "must be false"),
    ("phi3", "attention_bias", True, "must be false"),
    ("lfm2", "attention_bias", True, "must be false"),
    ("qwen35", "num_experts", 8, "which is not supported"),
    ("llama", "partial_rotary_factor", "half", "must be a number"),
]


def test_a_folder_that_mlx_has_quantized() -> None:
    file, stated = folder("llama")
    more = {"quantization": {"bits": 4, "group_size": 64}, "quantization_config": {"bits": 4, "group_size": 64}}
    assert_names_it(
        file, stated | more, "quantization is a dict of 2, but must be weights that MLX has not quantized: f32"
    )


@pytest.mark.parametrize(("architecture", "key", "value", "needed"), OTHER_VALUES)
def test_a_known_key_with_another_value_is_refused(architecture: str, key: str, value: Any, needed: str) -> None:
    file, stated = folder(architecture)
    assert_names_it(file, stated | {key: value}, f"the file: {key} is {value!r}".rstrip("'"), needed)


OTHER_GGUF_VALUES: list[tuple[str, str, Any, str]] = [
    ("qwen3", "attention.causal", False, "must be true"),
    ("llama", "attention.clamp_kqv", 8.0, "must be false"),
    ("llama", "rope.scaling.yarn_log_multiplier", 0.1, "must be false"),
    ("llama", "logit_scale", 16.0, "which is not supported"),
    ("lfm2", "rope.dimension_count", 4, "must be the head size, 8"),
    ("llama", "attention.head_dim", 4, "must be the head size"),
    ("qwen3moe", "norm_top_k_prob", False, "must be true"),
    ("qwen35", "ssm.v_head_reordered", False, "must be true"),
    ("gemma3", "rope.global.freq_base", 5.0, "as in rope.freq_base"),
    ("gemma3", "rope.local.freq_base", 5.0, "as in rope.freq_base_swa"),
    ("gemma2", "rope.global.freq_base", 1e6, "which is not supported"),
]


@pytest.mark.parametrize(("architecture", "key", "value", "needed"), OTHER_GGUF_VALUES)
def test_a_known_key_of_gguf_with_another_value_is_refused(
    architecture: str, key: str, value: Any, needed: str
) -> None:
    file, stated = gguf(architecture)
    more = {f"{architecture}.{key}": value}
    assert_names_it(file, stated | more, f"the file: {architecture}.{key} is {value}", needed)


def test_mixtral_may_state_the_size_of_an_expert_twice() -> None:
    file = open_checkpoint(DATA / "mixtral" / "model-f32.gguf").file
    assert isinstance(file, GgufFile)
    checked(file, file.metadata | {"llama.expert_feed_forward_length": 20})
    more = {"llama.expert_feed_forward_length": 40}
    assert_names_it(file, file.metadata | more, "expert_feed_forward_length is 40, but must be feed_forward_length, 20")


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_an_unknown_key_of_a_rotation_is_refused(key: str) -> None:
    file, stated = folder("llama")
    stated = {k: v for k, v in stated.items() if not k.startswith("rope_")}
    rotation = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0, "low_freq_factor": 1.0}
    checked(file, stated | {key: rotation})  # transformers knows that factor, and a linear rotation ignores it
    more = {key: rotation | {"llama_4_scaling_beta": 0.1}}
    assert_names_it(file, stated | more, f"the file: {key}: llama_4_scaling_beta is 0.1", "which is not supported")


def test_an_unknown_key_of_one_of_several_rotations_is_refused() -> None:
    file, stated = folder("gemma3")
    rotations = {**stated["rope_parameters"], "sliding_attention": {"rope_theta": 100.0, "alpha": 3.0}}
    named = "the file: rope_parameters: sliding_attention: alpha is 3.0"
    assert_names_it(file, stated | {"rope_parameters": rotations}, named, "which is not supported")


UNREAD_IN_FOLDERS = {
    "a buffer of the first Llamas": ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
    "a part that predicts more tokens": ("nemotron_h_moe", "mtp.layers.0.norm.weight"),
}
UNREAD_IN_GGUF = {
    "a tower for images": ("gemma3", "v.blk.0.attn_q.weight"),
    "its projection": ("gemma3", "mm.input_projection.weight"),
    "keys and values in one tensor beside each": ("deepseek2", "blk.1.attn_kv_b.weight"),
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_layers_beyond_the_count_are_refused_unless_a_key_counts_them(architecture: str) -> None:
    file, stated = folder(architecture)
    count = checked(file, stated).config.num_layers
    root = HF_LAYER.get(architecture, "model.layers.1").removesuffix(".1")
    stated = {key: value for key, value in stated.items() if key != "num_nextn_predict_layers"}
    beyond = with_tensors(file, f"{root}.{count}.eh_proj.weight")
    assert_names_it(beyond, stated, f"tensor {root}.{count}.eh_proj.weight has shape 8", "which is not supported")
    of_gguf, metadata = gguf(architecture)
    count = metadata[f"{architecture}.block_count"]
    beyond = with_tensors(of_gguf, f"blk.{count}.attn_q.weight")
    assert_names_it(beyond, metadata, f"tensor blk.{count}.attn_q.weight has shape 8", "which is not supported")


@pytest.mark.parametrize("architecture", ["deepseek2", "deepseek3", "glm4moe", "qwen35"])
def test_layers_that_predict_further_tokens_are_left_out(architecture: str) -> None:
    file, stated = folder(architecture)
    count = checked(file, stated).config.num_layers
    names = [f"model.layers.{count + i}.eh_proj.weight" for i in range(2)]
    stated = {key: value for key, value in stated.items() if key != "num_nextn_predict_layers"}
    for key in ("num_nextn_predict_layers", "num_mtp_layers"):
        assert checked(with_tensors(file, *names), stated | {key: 2}).config.num_layers == count
        assert_names_it(with_tensors(file, *names), stated | {key: 1}, f"tensor {names[1]} has shape 8")
    of_gguf, metadata = gguf(architecture)
    count = metadata[f"{architecture}.block_count"]
    more = {f"{architecture}.block_count": count + 1, f"{architecture}.nextn_predict_layers": 1}
    beyond = with_tensors(of_gguf, f"blk.{count}.nextn.eh_proj.weight")
    assert checked(beyond, metadata | more).config.num_layers == count


@pytest.mark.parametrize("name", UNREAD_IN_FOLDERS)
def test_tensors_of_folders_that_change_no_answer(name: str) -> None:
    architecture, tensor = UNREAD_IN_FOLDERS[name]
    file, stated = folder(architecture)
    checked(with_tensors(file, tensor), stated)


@pytest.mark.parametrize("name", UNREAD_IN_GGUF)
def test_tensors_of_gguf_files_that_change_no_answer(name: str) -> None:
    architecture, tensor = UNREAD_IN_GGUF[name]
    file, stated = gguf(architecture)
    checked(with_tensors(file, tensor), stated)


@pytest.mark.parametrize(
    "tensor", ["lm_head.bias", "model.norm.bias", "score.weight", "model.layers.0.mlp.up_proj.weight_scale"]
)
def test_tensors_outside_layers_and_scales_of_plain_weights_are_refused(tensor: str) -> None:
    file, stated = folder("llama")
    assert_names_it(with_tensors(file, tensor), stated, f"tensor {tensor} has shape 8", "which is not supported")


@pytest.mark.parametrize("tensor", ["output.bias", "token_embd_norm.weight", "blk.00000000001.attn_q.weight"])
def test_tensors_of_gguf_files_outside_layers_are_refused(tensor: str) -> None:
    file, stated = gguf("llama")
    assert_names_it(with_tensors(file, tensor), stated, f"tensor {tensor} has shape 8", "which is not supported")


def test_one_line_names_the_others(tmp_path: Path) -> None:
    path = damaged_folder(tmp_path, "llama", {f"warp_{i}": i for i in range(1, 8)})
    assert refusal(lambda: open_checkpoint(path)) == (
        f"{path}/config.json: warp_1 is 1, which is not supported: this version does not read it in llama models, "
        "and it may change answers; nor does it read warp_2, warp_3, warp_4, warp_5 and 2 more"
    )


@pytest.mark.parametrize("name", ["a\nb\x1b[31m\u202e", "k" * 100_000], ids=["controls", "long"])
def test_names_from_outside_stay_in_one_short_line(name: str) -> None:
    file, stated = folder("llama")
    of_gguf, metadata = gguf("llama")
    for key in ("layer_types", "hidden_act"):
        assert refusal(lambda key=key: checked(file, stated | {key: name})).isprintable()
    inner = {"rope_parameters": {name: 1, f"{name}2": 1}}
    below = metadata | {f"llama.{name}": 1, f"llama.{name}2": name}
    for call in (
        lambda: checked(file, stated | {name: 1, f"{name}2": 1}),
        lambda: checked(file, stated | inner),
        lambda: checked(of_gguf, below),
        lambda: checked(with_tensors(of_gguf, name, f"{name}2"), metadata),
    ):
        message = refusal(call)
        assert message.isprintable()
        assert len(message) < 600


def test_a_folder_with_a_tensor_too_many(tmp_path: Path) -> None:
    bias = {"model.layers.1.mlp.down_proj.bias": np.zeros(32, np.float32)}
    path = damaged_folder(tmp_path, "qwen3", {}, bias)
    assert refusal(lambda: open_checkpoint(path)) == (
        f"{path}/model.safetensors: tensor model.layers.1.mlp.down_proj.bias has shape 32, which is not supported: "
        "this version does not read it in qwen3 models, and it may change answers"
    )


@pytest.mark.parametrize("missing", ["gate", "up", "down"])
def test_biases_of_feed_forward_parts_come_together(missing: str) -> None:
    file = open_checkpoint(DATA / "llama_biases" / "model-f32.gguf").file
    assert isinstance(file, GgufFile)
    name = f"blk.1.ffn_{missing}.bias"
    fewer = replace(file, tensors={n: entry for n, entry in file.tensors.items() if n != name})
    assert_names_it(fewer, file.metadata, f"tensor {name} (layers.1.ffn.{missing}_bias) is missing")


@pytest.mark.parametrize("name", [*NAMES, *HYBRID_NAMES, *MIXTURE_NAMES, *LATENT_NAMES, "llama_biases"])
def test_the_graph_reads_every_tensor_of_the_tables(name: str) -> None:
    """A tensor that a table names counts as read; rotary tables are made from the tensors that rotations name."""
    file = DATA / name / "model-f32.gguf"
    checkpoint = open_checkpoint(file if file.exists() else DATA / name)
    graph = build_step(checkpoint, Limits(8, 1, 4, max_positions=64)).graph
    read = {value for value in graph.weights if not value.startswith(ROPE_TABLE)}
    assert {tensor for tensor in checkpoint.tensors if not tensor.startswith("rope_")} == read
