"""NVFP4 folders of ModelOpt and compressed-tensors: the same bytes as our format, sensible logits, clear refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from samebits.backends.discovery import get
from samebits.core.errors import BadInput
from samebits.engine.engine import Engine
from samebits.engine.runner import Runner
from samebits.formats import NVFP4, Packed
from samebits.loaders.fields import Fields
from samebits.loaders.quantization import quantization_of
from samebits.models.checkpoint import open_checkpoint, read_config
from samebits.models.parts import Limits

Tensors = dict[str, np.ndarray]
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 80,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
MODELOPT = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "ignore": ["lm_head"],
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt", "version": "0.33.0"},
}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "config_groups": {
        "group_0": {
            "format": "nvfp4-pack-quantized",
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
        }
    },
    "ignore": ["lm_head"],
}
HADAMARD = {"config_groups": {"R4": {"type": "hadamard", "apply": [{"targets": ["down_proj"], "location": "input"}]}}}
QUANTIZED = {"modelopt": MODELOPT, "compressed-tensors": COMPRESSED}
DOWN = "model.layers.1.mlp.down_proj"


def float_weights() -> Tensors:
    architecture, config = read_config(Fields(CONFIG, "config"), False, {})
    rng = np.random.default_rng(3)
    made = {}
    for i, stored in enumerate(architecture.tensors(config, is_gguf=False).values()):
        shape = stored.shape
        x = rng.standard_normal(shape) * (1.0 if len(shape) == 1 else 0.05 * 2.0 ** (i % 3))  # so that scales differ
        made[stored.name] = x.astype(ml_dtypes.bfloat16)
    return made


def is_layer(name: str) -> bool:
    return name.endswith("_proj.weight")


def quantized(weights: Tensors, method: str) -> Tensors:
    """The tensors as `method` stores them; what is not a projection stays bf16."""
    tensors: Tensors = {}
    for name, x in weights.items():
        if not is_layer(name):
            tensors[name] = x
            continue
        packed = NVFP4.pack(x.astype(np.float32))
        blocks = packed.data.reshape(len(x), -1, 9)
        layer = name.removesuffix(".weight")
        tensors[f"{layer}.weight_scale"] = blocks[..., 0].copy().view(ml_dtypes.float8_e4m3fn)
        codes = blocks[..., 1:].reshape(len(x), -1)
        if method == "modelopt":
            tensors[name] = codes
            tensors[f"{layer}.weight_scale_2"] = np.full((), packed.scale, np.float32)
            tensors[f"{layer}.input_scale"] = np.full((), 0.01, np.float32)
            if layer.endswith("k_proj"):  # of keys in 8 bits
                tensors[f"{layer}.k_scale"] = np.full((), 0.5, np.float32)
        else:
            tensors[f"{layer}.weight_packed"] = codes
            tensors[f"{layer}.weight_global_scale"] = np.full(1, np.float32(1) / packed.scale, np.float32)
            tensors[f"{layer}.input_global_scale"] = np.full(1, 100.0, np.float32)
            if layer.endswith("v_proj"):
                tensors[f"{layer.removesuffix('.v_proj')}.v_scale"] = np.full(1, 0.5, np.float32)
    return tensors


def write(folder: Path, tensors: Tensors, quantization: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    config = CONFIG | ({"quantization_config": quantization} if quantization else {})
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def logits(path: Path) -> np.ndarray:
    limits = Limits(max_tokens=32, max_sequences=1, num_pages=4, max_positions=64, k_format="f32", v_format="f32")
    engine = Engine(Runner(open_checkpoint(path), get("reference"), limits, "portable"))
    job = engine.score([5, 71, 3, 40, 12, 9, 66, 21], keep_logits=True)
    engine.complete(job)
    result = job.score().logits
    assert result is not None
    return result


@pytest.mark.parametrize("method", QUANTIZED)
def test_the_bytes_are_those_of_our_format(tmp_path: Path, method: str) -> None:
    weights = float_weights()
    checkpoint = open_checkpoint(write(tmp_path / "m", quantized(weights, method), QUANTIZED[method]))
    for name, stored in checkpoint.tensors.items():
        x, got = weights[stored.name], checkpoint.tensor(name)
        if not is_layer(stored.name):
            assert np.array_equal(got, x)
            continue
        want = NVFP4.pack(x.astype(np.float32))
        assert isinstance(got, Packed)
        assert np.array_equal(got.data, want.data)
        assert got.scale == pytest.approx(want.scale, rel=2.0**-23)  # a reciprocal of a reciprocal
        assert checkpoint.num_bytes(name) == got.data.nbytes


@pytest.mark.parametrize("method", QUANTIZED)
def test_logits_are_those_of_the_same_weights_in_float(tmp_path: Path, method: str) -> None:
    """Activations in int8 blocks are the only difference; each projection has a scale of its own."""
    weights = float_weights()
    plain = {name: NVFP4.pack(x.astype(np.float32)).unpack() if is_layer(name) else x for name, x in weights.items()}
    want = logits(write(tmp_path / "plain", plain))
    got = logits(write(tmp_path / "packed", quantized(weights, method), QUANTIZED[method]))
    assert np.square(got - want).mean() < 0.04**2 * np.square(want).mean()  # 14 products of int8 blocks, 0.5 % each
    assert np.array_equal(got.argmax(axis=-1), want.argmax(axis=-1))


def test_the_file_of_modelopt_serves_where_the_config_is_silent(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", quantized(float_weights(), "modelopt"))
    with pytest.raises(BadInput, match=r"shape 64x32, but must have shape 64x64"):
        open_checkpoint(folder)
    quant = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"}
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": quant}))
    assert isinstance(open_checkpoint(folder).tensor("layers.0.attn.q"), Packed)
    quant["quant_algo"] = "FP8"
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": quant}))
    with pytest.raises(
        BadInput, match=r"hf_quant_config\.json: quantization: quant_algo is 'FP8', but must be one of NVFP4"
    ):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "gptq"}, r"quantization_config is quant_method 'gptq'"),
        ({"bits": 4}, r"quantization_config is quant_method 'nothing'"),
        (MODELOPT | {"quant_algo": "NVFP4_AWQ"}, r"quant_algo is 'NVFP4_AWQ'"),
        (MODELOPT | {"group_size": 32}, r"group_size is 32"),
        (COMPRESSED | {"format": "pack-quantized"}, r"format is 'pack-quantized'"),
        (COMPRESSED | {"config_groups": {"g": {"weights": {"num_bits": 8}}}}, r"num_bits is 8"),
        (COMPRESSED | {"config_groups": {"g": {"weights": {"group_size": 32}}}}, r"group_size is 32"),
        (COMPRESSED | {"config_groups": 3}, r"config_groups is 3"),
        (COMPRESSED | {"config_groups": {"g": {"weights": {"type": "int"}}}}, r"type is 'int', but must be float"),
        (
            COMPRESSED | {"config_groups": {"g": {"weights": {"symmetric": False}}}},
            r"symmetric is false, but must be true",
        ),
        (
            COMPRESSED | {"transform_config": HADAMARD},
            r"transform_config is rotations of activations, which is not supported",
        ),
        (COMPRESSED | {"transform_config": 3}, r"transform_config is 3"),
        (COMPRESSED | {"transform_config": {"config_groups": 3}}, r"config_groups is 3"),
    ],
)
def test_other_quantizations_are_refused(quantization: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        quantization_of(CONFIG | {"quantization_config": quantization}, "config.json")


def test_a_configuration_without_transforms_is_read() -> None:
    for empty in (None, {}, {"config_groups": {}}):
        config = CONFIG | {"quantization_config": COMPRESSED | {"transform_config": empty}}
        assert quantization_of(config, "config.json") is not None


def without(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.__delitem__(f"{DOWN}.{name}")


def with_(name: str, value: np.ndarray) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({f"{DOWN}.{name}": value})


def number(value: float) -> np.ndarray:
    return np.full((), value, np.float32)


E4M3 = ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("weight_scale"), r"tensor .*down_proj\.weight_scale is missing: it must be the f8_e4m3 scale of"),
        (without("weight_scale_2"), r"weight_scale_2 is missing: it must be the f32 scale of"),
        (without("weight"), r"tensor .*down_proj\.weight .* is missing: it must be shape 64x96"),
        (with_("weight_scale", np.ones((64, 6), np.float32)), r"weight_scale is format f32, but must be f8_e4m3"),
        (
            with_("weight_scale", np.ones((64, 3)).astype(E4M3)),
            r"weight_scale has shape 64x3, but must have shape 64x6",
        ),
        (with_("weight_scale_2", np.ones(2, np.float32)), r"weight_scale_2 has shape 2, but must have one number"),
        (with_("weight_scale_2", np.ones((), np.float16)), r"weight_scale_2 is format f16, but must be f32"),
        (
            with_("weight", np.ones((64, 24), np.uint8)),
            r"weight has shape 64x24, but must have two axes, the second a mult",
        ),
        (with_("weight", np.ones((64, 32), np.uint8)), r"weight_scale has shape 64x6, but must have shape 64x4"),
        (with_("weight", np.ones(64, np.uint8)), r"weight has shape 64, but must have two axes"),
        (with_("pre_quant_scale", np.ones(96, np.float32)), r"pre_quant_scale is a tensor, which is not supported"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, change: Callable[[Tensors], None], message: str) -> None:
    tensors = quantized(float_weights(), "modelopt")
    change(tensors)
    with pytest.raises(BadInput, match=message):
        open_checkpoint(write(tmp_path / "m", tensors, MODELOPT))


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("modelopt", with_("weight_scale_2", number(np.nan)), "weight_scale_2 is nan, but must be a number from"),
        ("modelopt", with_("weight_scale_2", number(np.inf)), "weight_scale_2 is inf"),
        ("modelopt", with_("weight_scale_2", number(0)), r"weight_scale_2 is 0\.0"),
        ("modelopt", with_("weight_scale_2", number(-1)), r"weight_scale_2 is -1\.0"),
        (
            "compressed-tensors",
            with_("weight_global_scale", number(0)),
            r"weight_global_scale is 0\.0, but must be 1 / a",
        ),
        ("compressed-tensors", with_("weight_global_scale", number(np.inf)), "weight_global_scale is inf"),
        (
            "modelopt",
            with_("weight_scale", np.full((64, 6), np.nan).astype(E4M3)),
            "weight_scale has NaN, but must have num",
        ),
    ],
)
def test_scales_that_are_no_numbers(
    tmp_path: Path, method: str, change: Callable[[Tensors], None], message: str
) -> None:
    tensors = quantized(float_weights(), method)
    change(tensors)
    checkpoint = open_checkpoint(write(tmp_path / "m", tensors, QUANTIZED[method]))
    with pytest.raises(BadInput, match=message):
        checkpoint.tensor("layers.1.ffn.down")


def test_a_layer_that_is_there_twice(tmp_path: Path) -> None:
    tensors = quantized(float_weights(), "compressed-tensors") | {f"{DOWN}.weight": np.ones((64, 96), np.float32)}
    with pytest.raises(BadInput, match=r"down_proj\.weight is beside .*weight_packed, but must be only one of them"):
        open_checkpoint(write(tmp_path / "m", tensors, COMPRESSED))


def test_a_layer_left_out_stays_as_it_is(tmp_path: Path) -> None:
    weights = float_weights()
    tensors = quantized(weights, "modelopt")
    for part in ("weight_scale", "weight_scale_2", "input_scale"):
        del tensors[f"{DOWN}.{part}"]
    tensors[f"{DOWN}.weight"] = weights[f"{DOWN}.weight"]
    checkpoint = open_checkpoint(write(tmp_path / "m", tensors, MODELOPT))
    assert checkpoint.tensor("layers.1.ffn.down").dtype == ml_dtypes.bfloat16
    assert isinstance(checkpoint.tensor("layers.0.ffn.down"), Packed)


def test_a_file_that_shrinks_meanwhile(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", quantized(float_weights(), "modelopt"), MODELOPT)
    checkpoint = open_checkpoint(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(BadInput, match="a readable tensor"):
        checkpoint.tensor("layers.1.ffn.down")
