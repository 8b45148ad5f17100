"""Folders with MXFP4 as gpt-oss has it: the same elements in our layout, experts one by one, clear refusals."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from samebits.core.errors import BadInput, SamebitsError
from samebits.core.format import HostTensor
from samebits.formats import MXFP4, Packed
from samebits.formats.nvfp4 import E2M1_VALUES
from samebits.loaders.fields import Fields
from samebits.loaders.files import with_quantized
from samebits.loaders.mxfp4_dir import join_mxfp4
from samebits.loaders.quantization import quantization_of
from samebits.loaders.safetensors_dir import open_safetensors
from samebits.models.architecture import Rows, Weight
from samebits.models.checkpoint import FileCheckpoint, read_config

Tensors = dict[str, np.ndarray]
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "vocab_size": 80,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
}
E, F, H = 4, 96, 64
NAME = "model.layers.0.mlp.experts"
GATE, UP = (Rows(("1", "1"), (part,), groups="F", axis=1) for part in (0, 1))
WEIGHTS = (
    Weight("ffn.gate", "4 F H", "-", "mlp.experts.gate_up_proj", hf_rows=GATE, hf_is_swapped=True, bare="hf"),
    Weight("ffn.up", "4 F H", "-", "mlp.experts.gate_up_proj", hf_rows=UP, hf_is_swapped=True, bare="hf"),
    Weight("ffn.down", "4 H F", "-", "mlp.experts.down_proj", hf_is_swapped=True, bare="hf"),
    Weight("ffn.down_bias", "4 H", "-", "mlp.experts.down_proj_bias", bare="hf"),
)


def random_parts(name: str, *shape: int) -> Tensors:
    """The two parts of a tensor of this shape."""
    rng, blocks = np.random.default_rng(len(name)), (*shape[:-1], shape[-1] // 32)
    return {
        f"{name}_blocks": rng.integers(0, 256, (*blocks, 16), np.uint8),
        f"{name}_scales": rng.integers(110, 130, blocks, np.uint8),
    }


def values(tensors: Tensors, name: str) -> np.ndarray:
    """What the two parts are worth: of each byte the low nibble, then the high one."""
    codes, scales = tensors[f"{name}_blocks"], tensors[f"{name}_scales"]
    pairs = np.stack([codes & 15, codes >> 4], axis=-1)
    elements = E2M1_VALUES[pairs].reshape(*codes.shape[:-1], 32) * np.ldexp(1.0, scales.astype(int) - 127)[..., None]
    return elements.reshape(*codes.shape[:-2], -1).astype(np.float32)


def gpt_oss() -> Tensors:
    bias = np.arange(E * H, dtype=np.float32).reshape(E, H).astype(ml_dtypes.bfloat16)
    tensors = random_parts(f"{NAME}.gate_up_proj", E, 2 * F, H) | random_parts(f"{NAME}.down_proj", E, H, F)
    return tensors | {f"{NAME}.down_proj_bias": bias}


def opened(folder: Path, tensors: Tensors, weights: tuple[Weight, ...] = WEIGHTS) -> FileCheckpoint:
    """A checkpoint that needs these weights of its one layer, and no others."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, folder / "model.safetensors")
    fields = Fields(CONFIG, "config")
    llama, config = read_config(fields, False, {})
    architecture = replace(llama, top=(), layer=weights, kinds={})
    file = with_quantized(open_safetensors(folder), fields)
    return FileCheckpoint(folder, file, architecture, config, architecture.tensors(config, is_gguf=False))


def unpacked(tensor: HostTensor) -> np.ndarray:
    assert isinstance(tensor, Packed)
    assert tensor.format is MXFP4
    return tensor.unpack()


def test_the_elements_are_those_of_the_parts(tmp_path: Path) -> None:
    tensors = gpt_oss()
    checkpoint = opened(tmp_path, tensors)
    checkpoint.check()
    gate_up = values(tensors, f"{NAME}.gate_up_proj")
    assert np.array_equal(unpacked(checkpoint.tensor("layers.0.ffn.gate")), gate_up[:, 0::2])
    assert np.array_equal(unpacked(checkpoint.tensor("layers.0.ffn.up")), gate_up[:, 1::2])
    assert np.array_equal(unpacked(checkpoint.tensor("layers.0.ffn.down")), values(tensors, f"{NAME}.down_proj"))
    assert np.array_equal(checkpoint.tensor("layers.0.ffn.down_bias"), tensors[f"{NAME}.down_proj_bias"])
    assert checkpoint.num_bytes("layers.0.ffn.gate") == E * F * H // 32 * 17
    whole = checkpoint.file.read(f"{NAME}.gate_up_proj")
    assert np.array_equal(unpacked(whole), gate_up)


def test_a_matrix_of_its_own(tmp_path: Path) -> None:
    tensors = random_parts("model.layers.0.mlp.down_proj.weight", H, F)
    checkpoint = opened(tmp_path, tensors, (Weight("ffn.down", "H F", "-", "mlp.down_proj"),))
    want = values(tensors, "model.layers.0.mlp.down_proj.weight")
    assert np.array_equal(unpacked(checkpoint.tensor("layers.0.ffn.down")), want)


def test_a_tensor_that_is_not_quantized_has_its_axes_swapped(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((E, F, H)).astype(np.float32)
    checkpoint = opened(tmp_path, {f"{NAME}.down_proj": x}, WEIGHTS[2:3])
    assert np.array_equal(checkpoint.tensor("layers.0.ffn.down"), x.swapaxes(1, 2))


def test_beside_the_tensor_there_is_one_expert(tmp_path: Path) -> None:
    num_experts, rows, width = 16, 512, 8192
    tensors = random_parts(f"{NAME}.down_proj", num_experts, rows, width)
    checkpoint = opened(tmp_path, tensors, (replace(WEIGHTS[2], shape=f"{num_experts} {rows} {width}"),))
    checkpoint.tensor("layers.0.ffn.down")  # what is made once
    tracemalloc.start()
    try:
        tensor = checkpoint.tensor("layers.0.ffn.down")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(tensor, Packed)
    one = tensor.data.nbytes // num_experts
    assert one == rows * width // 32 * 17
    assert peak_bytes < (num_experts + 5) * one  # as it is stored, twice as the library reads it, as ours, and pieces


def without(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(f"{NAME}.{name}")


def with_(name: str, value: np.ndarray) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({f"{NAME}.{name}": value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("down_proj_scales"), r"down_proj_scales is missing: it must be the scales of .*down_proj_blocks$"),
        (without("down_proj_blocks"), r"tensor .*down_proj \(.*down\) is missing: it must be shape 4x64x96$"),
        (with_("down_proj_scales", np.ones((E, H, 3), np.int8)), r"down_proj_scales is format i8, but must be u8$"),
        (
            with_("down_proj_blocks", np.ones((E, H, 3, 16), np.float32)),
            r"down_proj_blocks is format f32, but must be u8$",
        ),
        (with_("down_proj_scales", np.ones((E, H, 4), np.uint8)), r"shape 4x64x4, but must have shape 4x64x3$"),
        (
            with_("down_proj_blocks", np.ones((E, H, 48), np.uint8)),
            r"4x64x48, but must have rows, blocks and 16 bytes, at le",
        ),
        (
            with_("down_proj_blocks", np.ones((E, H, 0, 16), np.uint8)),
            r"shape 4x64x0x16, but must have rows, blocks and",
        ),
        (with_("down_proj_blocks", np.ones((3, 16), np.uint8)), r"shape 3x16, but must have rows, blocks and 16 bytes"),
        (with_("down_proj", np.ones((E, F, H), np.float32)), r"down_proj is beside .*_blocks, but must be only one of"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, change: Callable[[Tensors], object], message: str) -> None:
    tensors = gpt_oss()
    change(tensors)
    with pytest.raises(BadInput, match=message):
        opened(tmp_path, tensors).check()


def test_another_number_of_blocks_than_the_model_has(tmp_path: Path) -> None:
    tensors = gpt_oss() | random_parts(f"{NAME}.down_proj", E, H, F + 32)
    with pytest.raises(BadInput, match=r"down_proj \(.*down\) has shape 4x64x128, but must have shape 4x64x96$"):
        opened(tmp_path, tensors).check()


def test_a_file_that_shrinks_meanwhile(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, gpt_oss())
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(BadInput, match="a readable tensor"):
        checkpoint.tensor("layers.0.ffn.down")


def test_the_quantization_is_known_by_its_name() -> None:
    assert quantization_of(CONFIG, "config.json") == "mxfp4"


VALID = save({**random_parts("a", 2, 3, 64), "a_bias": np.ones((2, 3), np.float32)})


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]]) -> None:
    """One-line errors or tensors: nothing else comes of any bytes."""
    data = bytearray(VALID)
    for at, value in edits:
        data[at] = value
    path = tmp_path_factory.getbasetemp() / "damaged-mxfp4.safetensors"
    path.write_bytes(data)
    with suppress(SamebitsError):
        file = join_mxfp4(open_safetensors(path))
        for name in file.tensors:
            assert file.read(name).shape == file.tensors[name].shape
            assert file.read_at(name, 0).shape == file.tensors[name].shape[1:]
