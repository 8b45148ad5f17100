"""Experts as files store them, apart or stacked, joined, interleaved or swapped, become one tensor [E, N, K]."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf_writer import STRING, File, Tensor
from safetensors.numpy import save_file

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.formats import Q8_0
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import open_gguf
from samebits.loaders.nvfp4_dir import join_nvfp4
from samebits.loaders.quantization import MODELOPT
from samebits.loaders.safetensors_dir import open_safetensors
from samebits.models.architecture import Rows, Weight
from samebits.models.checkpoint import FileCheckpoint, read_config

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "vocab_size": 80,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
E, F, H = 8, 32, 64
NAME = "model.layers.0.mlp.experts"
APART = Weight("ffn.gate", "8 F H", "ffn_gate_exps", "mlp.experts.{}.w1")
GATE, UP = (Rows(("F", "F"), (part,), axis=1) for part in (0, 1))
EVEN, ODD = (Rows(("1", "1"), (part,), groups="F", axis=1) for part in (0, 1))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def checkpoint_of(path: Path, *weights: Weight) -> FileCheckpoint:
    """A checkpoint that needs these tensors of its one layer, and no others."""
    file = open_gguf(path) if path.suffix == ".gguf" else open_safetensors(path)
    llama, config = read_config(Fields(CONFIG, "config"), False, {})
    architecture = replace(llama, top=(), layer=weights, kinds={})
    tensors = architecture.tensors(config, is_gguf=path.suffix == ".gguf")
    return FileCheckpoint(path, file, architecture, config, tensors)


def folder_of(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, path / "model.safetensors")
    return path


def same(got: HostTensor, want: np.ndarray) -> bool:
    return isinstance(got, np.ndarray) and got.dtype == want.dtype and np.array_equal(got, want)


def apart(x: np.ndarray) -> dict[str, np.ndarray]:
    return {f"{NAME}.{e}.w1.weight": x[e] for e in range(E)}


def test_a_tensor_per_expert(tmp_path: Path) -> None:
    x = numbers(E, F, H).astype(np.float16)
    checkpoint = checkpoint_of(folder_of(tmp_path, apart(x)), APART)
    assert same(checkpoint.tensor("layers.0.ffn.gate"), x)
    spec = checkpoint.spec("layers.0.ffn.gate")
    assert spec is not None
    assert (spec.shape, spec.format) == ((E, F, H), "f16")
    assert checkpoint.num_bytes("layers.0.ffn.gate") == x.nbytes
    checkpoint.check()


@pytest.mark.parametrize(("gate", "up"), [(GATE, UP), (EVEN, ODD)], ids=["halves", "interleaved"])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_rows_of_stacked_experts(tmp_path: Path, gate: Rows, up: Rows, is_swapped: bool) -> None:
    x, bias = numbers(E, 2 * F, H), numbers(E, 2 * F)
    stored = x.swapaxes(1, 2) if is_swapped else x
    folder = folder_of(tmp_path, {f"{NAME}.gate_up_proj": stored, f"{NAME}.gate_up_proj_bias": bias})
    weights = [
        Weight(
            f"ffn.{name}", "8 F H", "-", "mlp.experts.gate_up_proj", hf_rows=rows, hf_is_swapped=is_swapped, bare="hf"
        )
        for name, rows in (("gate", gate), ("up", up))
    ]
    biases = [
        Weight(f"ffn.{name}_bias", "8 F", "-", "mlp.experts.gate_up_proj_bias", hf_rows=rows, bare="hf")
        for name, rows in (("gate", gate), ("up", up))
    ]
    checkpoint = checkpoint_of(folder, *weights, *biases)
    parts = (slice(0, F), slice(F, None)) if gate is GATE else (slice(0, None, 2), slice(1, None, 2))
    for name, rows in zip(("gate", "up"), parts, strict=True):
        assert same(checkpoint.tensor(f"layers.0.ffn.{name}"), x[:, rows])
        assert same(checkpoint.tensor(f"layers.0.ffn.{name}_bias"), bias[:, rows])
        assert checkpoint.num_bytes(f"layers.0.ffn.{name}") == x.nbytes // 2


def test_whole_experts_of_a_gguf_file_are_a_view_and_their_rows_are_not(tmp_path: Path) -> None:
    packed = Q8_0.pack(numbers(E, 2 * F, H))
    path = tmp_path / "m.gguf"
    tensor = Tensor("blk.0.ffn_gate_up_exps.weight", (H, 2 * F, E), 8, packed.data.tobytes())
    path.write_bytes(File({"general.architecture": (STRING, "llama")}, [tensor]).build())
    whole = Weight("ffn.both", "8 2*F H", "ffn_gate_up_exps", "-")
    checkpoint = checkpoint_of(path, whole, Weight("ffn.up", "8 F H", "ffn_gate_up_exps", "-", rows=UP))
    got, up = checkpoint.tensor("layers.0.ffn.both"), checkpoint.tensor("layers.0.ffn.up")
    assert isinstance(got, Packed)
    assert isinstance(up, Packed)
    assert not got.data.flags.writeable
    assert np.array_equal(got.data, packed.data)
    assert np.array_equal(up.data, packed.data[:, F:])


@pytest.mark.parametrize("is_apart", [True, False])
def test_beside_the_stack_there_is_one_expert(tmp_path: Path, is_apart: bool) -> None:
    x = numbers(E, 256, 512)
    swapped = Weight("ffn.gate", "8 256 512", "-", "mlp.experts.gate_proj", hf_is_swapped=True, bare="hf")
    tensors = apart(x) if is_apart else {f"{NAME}.gate_proj": x.swapaxes(1, 2)}
    checkpoint = checkpoint_of(folder_of(tmp_path, tensors), replace(APART, shape="8 256 512") if is_apart else swapped)
    checkpoint.tensor("layers.0.ffn.gate")  # what is made once
    tracemalloc.start()
    try:
        got = checkpoint.tensor("layers.0.ffn.gate")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert same(got, x)
    assert peak_bytes < x.nbytes * (E + 2.5) / E  # the library has a second copy of an expert as it reads


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x.pop(f"{NAME}.5.w1.weight"),
            r"experts\.5\.w1\.weight \(.*gate\) is missing: it must be shape 32x64$",
        ),
        (
            lambda x: x.update({f"{NAME}.5.w1.weight": numbers(F, F)}),
            r"experts\.5\.w1\.weight \(.*gate\) has shape 32x32, but must have shape 32x64$",
        ),
        (
            lambda x: x.update({f"{NAME}.5.w1.weight": numbers(F, H).astype(np.float16)}),
            r"experts\.5\.w1\.weight \(.*gate\) is f16, but must be f32, as .*experts\.0\.w1\.weight is: experts are",
        ),
        (
            lambda x: x.update({f"{NAME}.{e}.w1.weight": numbers(F, H).astype(np.int16) for e in range(E)}),
            r"experts\.0\.w1\.weight is format i16, but must be f32, f16, bf16",
        ),
    ],
    ids=["missing", "shape", "mixed", "integers"],
)
def test_an_expert_that_does_not_fit(
    tmp_path: Path, change: Callable[[dict[str, np.ndarray]], None], message: str
) -> None:
    tensors = apart(numbers(E, F, H))
    change(tensors)
    with pytest.raises(BadInput, match=message):
        checkpoint_of(folder_of(tmp_path, tensors), APART).check()


def test_experts_that_have_scales_of_their_own_for_a_whole_tensor(tmp_path: Path) -> None:
    """As NVFP4 has: one tensor of ours has one such scale."""
    rng = np.random.default_rng(2)
    tensors: dict[str, np.ndarray] = {}
    for e in range(E):
        expert = f"{NAME}.{e}.w1"
        tensors[f"{expert}.weight"] = rng.integers(0, 256, (F, H // 2), np.uint8)
        tensors[f"{expert}.weight_scale"] = np.ones((F, H // 16), ml_dtypes.float8_e4m3fn)
        tensors[f"{expert}.weight_scale_2"] = np.full((), 0.5, np.float32)
    alike = checkpoint_of(folder_of(tmp_path, tensors), APART)
    alike = replace(alike, file=join_nvfp4(open_safetensors(tmp_path), MODELOPT))
    got = alike.tensor("layers.0.ffn.gate")
    assert isinstance(got, Packed)
    assert (got.shape, got.scale) == ((E, F, H), 0.5)
    tensors[f"{NAME}.3.w1.weight_scale_2"] = np.full((), 0.25, np.float32)
    folder_of(tmp_path, tensors)
    message = (
        r"experts\.3\.w1\.weight has a scale of 0\.25, but must have 0\.5, that of .*: stacked experts have one scale$"
    )
    with pytest.raises(BadInput, match=message):
        replace(alike, file=join_nvfp4(open_safetensors(tmp_path), MODELOPT)).tensor("layers.0.ffn.gate")
