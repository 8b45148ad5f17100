"""Checkpoints from GGUF: configuration, names and the lines for what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_writer import ARRAY, F32, STRING, U32, File, byte_level_vocab, tensor, tiny_model

from samebits.core.errors import BadInput
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts.rope import ROPE_TABLE, Rope


def opened(tmp_path: Path, file: File) -> Any:
    return open_checkpoint(file.write(tmp_path / "m.gguf"))


def test_a_llama_file(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, tiny_model())
    config = checkpoint.config
    assert checkpoint.architecture.name == "llama"
    assert (
        config.num_layers,
        config.hidden_size,
        config.ffn_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_size,
    ) == (
        2,
        64,
        96,
        4,
        2,
        16,
    )
    assert (config.context_len, config.query_scalar) == (128, 16.0)
    assert config.ropes == {ROPE_TABLE: Rope(10000.0, 16)}
    assert (config.rope_is_interleaved, config.is_tied) == (True, True)
    assert config.vocab_size == len(byte_level_vocab()["tokenizer.ggml.tokens"][1])
    assert checkpoint.tensor("layers.1.attn.k").shape == (32, 64)
    assert checkpoint.tensor("layers.0.ffn.down").shape == (64, 96)
    assert checkpoint.tensor("layers.0.ffn.down").format.name == "q8_0"
    assert {"embed", "norm", "layers.1.ffn_norm"} <= set(checkpoint.tensors)
    assert checkpoint.spec("head") is None
    assert all(checkpoint.tensor(name).shape == checkpoint.spec(name).shape for name in checkpoint.tensors)


def test_an_untied_head(tmp_path: Path) -> None:
    file = tiny_model()
    vocab_size = file.tensors[0].dims[1]
    file.tensors.append(tensor("output.weight", (vocab_size, 64), 1))
    checkpoint = opened(tmp_path, file)
    assert not checkpoint.config.is_tied
    assert checkpoint.tensor("head").dtype == np.float16


@pytest.mark.parametrize(
    ("architecture", "flags", "names"),
    [
        ("qwen2", {"has_qkv_bias": True, "rope_is_interleaved": False}, ["attn.q_bias", "attn.v_bias"]),
        ("qwen3", {"has_qkv_bias": False}, ["attn.q_norm", "attn.k_norm"]),
        (
            "gemma2",
            {"embed_scale": 8.0, "activation": "gelu_tanh",
             "attn_soft_cap": 50.0, "final_soft_cap": 30.0},
            ["post_attn_norm", "post_ffn_norm"],
        ),
    ],
)  # fmt: skip
def test_other_architectures(tmp_path: Path, architecture: str, flags: dict[str, Any], names: list[str]) -> None:
    checkpoint = opened(tmp_path, tiny_model(architecture))
    assert checkpoint.architecture.name == architecture
    assert {key: getattr(checkpoint.config, key) for key in flags} == flags
    for name in names:
        assert checkpoint.tensor(f"layers.1.{name}").ndim == 1


def test_gemma2_windows_and_the_scalar_of_its_largest(tmp_path: Path) -> None:
    file = tiny_model("gemma2", **{"gemma2.attention.sliding_window": (U32, 64)})
    config = opened(tmp_path, file).config
    assert ([layer.window for layer in config.layers], config.query_scalar) == ([64, None], 16.0)


def test_llama31_factors_come_as_a_tensor(tmp_path: Path) -> None:
    file = tiny_model()
    file.tensors.append(tensor("rope_freqs.weight", (8,)))
    checkpoint = opened(tmp_path, file)
    assert checkpoint.config.ropes[ROPE_TABLE].scaling.kind == "factors"
    assert checkpoint.tensor("rope_freqs").shape == (8,)


def test_rope_scaling_of_metadata(tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": (STRING, "linear"), "llama.rope.scaling.factor": (F32, 4.0)}
    scaling = opened(tmp_path, tiny_model(**linear)).config.ropes[ROPE_TABLE].scaling
    assert (scaling.kind, scaling.factor) == ("linear", 4.0)
    yarn = {"llama.rope.scaling.type": (STRING, "yarn"), "llama.rope.scaling.factor": (F32, 2.0)}
    yarn["llama.rope.scaling.original_context_length"] = (U32, 64)
    scaling = opened(tmp_path, tiny_model(**yarn)).config.ropes[ROPE_TABLE].scaling
    assert (scaling.kind, scaling.factor, scaling.original_len) == ("yarn", 2.0, 64)


SCALE, FACTOR, KIND = "llama.rope.scale_linear", "llama.rope.scaling.factor", "llama.rope.scaling.type"
FACTORS: list[tuple[dict[str, tuple[int, Any]], float]] = [
    ({FACTOR: (F32, 4.0)}, 4.0),  # without a kind it is linear, as in llama.cpp
    ({SCALE: (F32, 4.0)}, 4.0),
    ({FACTOR: (F32, 2.0), SCALE: (F32, 4.0)}, 2.0),
    ({FACTOR: (F32, 4.0), KIND: (STRING, "none")}, 1.0),
    ({FACTOR: (F32, 0.0)}, 1.0),
    ({KIND: (STRING, "linear")}, 1.0),
]


@pytest.mark.parametrize(("keys", "factor"), FACTORS)
@pytest.mark.parametrize("has_divisors", [False, True])
def test_a_factor_is_linear_where_no_kind_is_stated(
    tmp_path: Path, keys: dict[str, tuple[int, Any]], factor: float, has_divisors: bool
) -> None:
    file = tiny_model(**keys)
    if has_divisors:
        file.tensors.append(tensor("rope_freqs.weight", (8,)))
        if factor != 1:
            with pytest.raises(
                BadInput, match=r"type is 'linear', but must be none beside the tensor rope_freqs.weight"
            ):
                opened(tmp_path, file)
            return
    scaling = opened(tmp_path, file).config.ropes[ROPE_TABLE].scaling
    usual = "factors" if has_divisors else "none"
    assert (scaling.kind, scaling.factor) == ("linear" if factor != 1 else usual, factor)


EXTRAPOLATION, ATTENTION = "llama.rope.scaling.yarn_ext_factor", "llama.rope.scaling.yarn_attn_factor"


@pytest.mark.parametrize("kind", ["yarn", "linear", "none"])
def test_other_factors_of_yarn_are_those_that_it_has_anyway(tmp_path: Path, kind: str) -> None:
    keys = {KIND: (STRING, kind), FACTOR: (F32, 2.0)}
    usual, other = (1.0, 0.0) if kind == "yarn" else (0.0, 1.0)
    plain = opened(tmp_path, tiny_model(**keys)).config
    for stated in (usual, -1.0):  # less than 0 is llama.cpp's way to say nothing
        assert opened(tmp_path, tiny_model(**keys, **{EXTRAPOLATION: (F32, stated)})).config == plain
    with pytest.raises(BadInput, match=rf"yarn_ext_factor is {other}, but must be {usual:g}"):
        opened(tmp_path, tiny_model(**keys, **{EXTRAPOLATION: (F32, other)}))
    assert opened(tmp_path, tiny_model(**keys, **{ATTENTION: (F32, 1.0)})).config == plain
    with pytest.raises(BadInput, match=r"yarn_attn_factor is 1.5, but must be 1"):
        opened(tmp_path, tiny_model(**keys, **{ATTENTION: (F32, 1.5)}))


def test_a_factor_beside_longrope_is_refused(tmp_path: Path) -> None:
    for keys in ({FACTOR: (F32, 4.0)}, {FACTOR: (F32, 4.0), KIND: (STRING, "longrope")}, {KIND: (STRING, "yarn")}):
        file = tiny_model(**keys)
        file.tensors += [tensor(f"rope_factors_{name}.weight", (8,)) for name in ("long", "short")]
        with pytest.raises(
            BadInput, match=r"factor is [14].0, but must be 1 beside the tensor rope_factors_long.weight"
        ):
            opened(tmp_path, file)


WRONG_METADATA = {
    "unknown architecture": ({"general.architecture": (STRING, "mamba")}, "architecture is 'mamba', but must be one"),
    "architecture of a wrong type": ({"general.architecture": (U32, 3)}, "general.architecture is 3, but must be a"),
    "experts": ({"llama.expert_count": (U32, 8)}, "expert_used_count is missing"),
    "experts as a list": ({"llama.expert_count": ((ARRAY, U32), [0, 8])}, "expert_count is a ndarray of 2"),
    "a window as a list": ({"llama.attention.sliding_window": ((ARRAY, U32), [])}, "window is a ndarray of 0"),
    "a value length as a text": ({"llama.attention.value_length": (STRING, "16")}, "value_length is '16'"),
    "no layers": ({"llama.block_count": (U32, 0)}, "llama.block_count is 0"),
    "layers as text": ({"llama.block_count": (STRING, "2")}, "llama.block_count is '2', but must be an integer"),
    "heads by layer": ({"llama.attention.head_count_kv": ((ARRAY, U32), [2, 2])}, "is a ndarray of 2"),
    "heads that do not divide": ({"llama.attention.head_count_kv": (U32, 3)}, "a divisor of the 4 query heads"),
    "odd rotation": ({"llama.rope.dimension_count": (U32, 7)}, "rotary dimensions is 7"),
    "value length": ({"llama.attention.value_length": (U32, 8)}, "value_length is 8"),
    "NaN epsilon": ({"llama.attention.layer_norm_rms_epsilon": (F32, float("nan"))}, "rms_epsilon is nan"),
    "scaling": ({"llama.rope.scaling.type": (STRING, "longrope")}, "rope.scaling.type is 'longrope'"),
    "width": ({"llama.embedding_length": (U32, 128)}, r"\(embed\) has shape 265x64, but must have shape 265x128"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_METADATA)
def test_wrong_metadata(tmp_path: Path, name: str) -> None:
    changes, expected = WRONG_METADATA[name]
    with pytest.raises(BadInput, match=expected):
        opened(tmp_path, tiny_model(**changes))


def test_a_missing_key(tmp_path: Path) -> None:
    file = tiny_model()
    del file.metadata["llama.context_length"]
    with pytest.raises(BadInput, match=r"m\.gguf: llama\.context_length is missing: it must be an integer"):
        opened(tmp_path, file)


def test_missing_and_misshapen_tensors(tmp_path: Path) -> None:
    file = tiny_model()
    kept = [t for t in file.tensors if t.name != "blk.1.attn_k.weight"]
    with pytest.raises(BadInput, match=r"m\.gguf: tensor blk\.1\.attn_k\.weight \(layers\.1\.attn\.k\) is missing"):
        opened(tmp_path, replace(file, tensors=kept))
    with pytest.raises(BadInput, match="shape 16x64, but must have shape 32x64"):
        opened(tmp_path, replace(file, tensors=[*kept, tensor("blk.1.attn_k.weight", (16, 64))]))


def test_an_unsupported_format_is_an_error_only_when_needed(tmp_path: Path) -> None:
    file = tiny_model()
    extra = tensor("mm.unused", (16,))  # of a part for images
    extra.kind, extra.dims, extra.data = 24, (64,), bytes(64)
    opened(tmp_path, replace(file, tensors=[*file.tensors, extra]))
    norm = next(t for t in file.tensors if t.name == "output_norm.weight")
    norm.kind, norm.data = 28, bytes(64 * 8)
    with pytest.raises(BadInput, match=r"tensor output_norm\.weight is format f64"):
        opened(tmp_path, file)


def test_a_name_that_nobody_has(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"tensor layers\.9\.attn\.q is no such name"):
        opened(tmp_path, tiny_model()).tensor("layers.9.attn.q")


def test_a_tokenizer_that_does_not_match_the_weights(tmp_path: Path) -> None:
    """llama.cpp refuses such a GGUF file too: its embedding must have a row for every token."""
    file = tiny_model()
    file.tensors[0] = tensor("token_embd.weight", (100, 64))
    with pytest.raises(BadInput, match="tokenizer has 265 tokens, but must have at most the 100 rows"):
        opened(tmp_path, file).tokenizer()


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("hello")
    with pytest.raises(BadInput, match="an unknown kind of file"):
        open_checkpoint(path)
    with pytest.raises(BadInput, match="exists"):
        open_checkpoint(tmp_path / "nowhere.gguf")
