"""Folders as GGUF files: the bits of logits before and after, and the very files that llama.cpp has answered to."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_runs import expected, make_runner, run_prompt
from convert_samples import FACTS, FOLDERS, MODELS, convert_sample, prepared
from safetensors.numpy import load_file, save_file

from samebits.cli.main import main
from samebits.convert.from_folder import agree_in_float32
from samebits.convert.metadata import CONVERTED
from samebits.convert.quantize import converted
from samebits.convert.writing import write
from samebits.core.errors import BadInput
from samebits.models import ARCHITECTURES
from samebits.models.checkpoint import open_checkpoint

FILES: dict[str, Any] = json.loads(FACTS.read_text())["files"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
# Rows of Q and K lie in another order in `llama` files, and factors of rotations are float32 in GGUF: near, not equal.
NEAR = ("llama", "llama31", "mistral", "phi3", "mixtral", "granitemoe", "granitehybrid", "granitehybrid_moe")


@pytest.fixture(scope="module", params=FOLDERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    name = request.param
    return name, *convert_sample(name, tmp_path_factory.mktemp(name))


def logits(path: Path, name: str) -> np.ndarray:
    return run_prompt(make_runner(open_checkpoint(path)), expected(name).token_ids)


def test_bits_of_logits_before_and_after(pair: tuple[str, Path, Path]) -> None:
    name, source, out = pair
    before, after = logits(source, name), logits(out, name)
    if name in NEAR:
        assert np.abs(after - before).max() <= 2e-6 * np.abs(before).max()
    else:
        np.testing.assert_array_equal(after.view(np.uint32), before.view(np.uint32))


def test_the_file_is_the_one_that_llama_cpp_gave_our_tokens_for(pair: tuple[str, Path, Path]) -> None:
    name, source, out = pair
    assert hashlib.sha256(out.read_bytes()).hexdigest() == FILES[name]["sha256"], "run tools/ask_llama_cpp.py"
    tokens = list(map(int, FILES[name]["tokens"].split()))
    np.testing.assert_array_equal(logits(source, name).argmax(axis=-1), tokens)


@pytest.mark.parametrize(
    "stated", [{}, {"do_sample": True}, {"do_sample": False}, {"temperature": 0.6, "top_k": 20, "top_p": 0.95}]
)
def test_the_file_recommends_what_the_folder_does(tmp_path: Path, stated: dict[str, Any]) -> None:
    shutil.copytree(MODELS / "qwen2", tmp_path / "m")
    (tmp_path / "m" / "generation_config.json").write_text(json.dumps(stated))
    write(converted(tmp_path / "m"), tmp_path / "out.gguf", lambda name, done, total: None)
    folder, file = (open_checkpoint(tmp_path / name).sampling_defaults("model") for name in ("m", "out.gguf"))
    assert file.values() == folder.values()
    keys = [key for key in open_checkpoint(tmp_path / "out.gguf").file.metadata if "sampling" in key]
    assert len(keys) == (len(folder.values()) if stated else 0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("tensor", ["model.norm.weight", "model.layers.1.mlp.down_proj.weight"])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, tensor: str, wrong: float) -> None:
    shutil.copytree(MODELS / "qwen2", tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors[tensor].reshape(-1)[3] = wrong
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    with pytest.raises(BadInput, match=r"tensor has NaN or Inf, but must have finite values"):
        write(converted(tmp_path / "m"), tmp_path / "out.gguf", lambda name, done, total: None)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.iterdir() if (path / "config.json").is_file()))
def test_architectures_that_are_not_proven_are_refused(name: str) -> None:
    architecture = open_checkpoint(MODELS / name).architecture.name
    if architecture in CONVERTED:
        assert CONVERTED[architecture].gguf == ("llama" if architecture in ("mistral", "mixtral") else architecture)
        return
    assert architecture in ARCHITECTURES
    with pytest.raises(BadInput, match=rf"architecture is {architecture}, but must be one of llama, .* is proven"):
        converted(MODELS / name)


@pytest.mark.parametrize(
    ("name", "changes", "refused"),
    [
        ("mistral", {"sliding_window": 9}, r"sliding window is 9, which is not supported"),
        ("qwen3", {"use_sliding_window": True, "layer_types": None}, r"sliding window is 9"),
        ("gemma2", {"query_pre_attn_scalar": 32}, r"query_pre_attn_scalar is 32, but must be 8, which GGUF's readers"),
        (
            "gemma2",
            {"layer_types": ["full_attention"] * 4},
            r"sliding windows is .*, but must be one in every other layer",
        ),
        (
            "llama",
            {"hidden_act": "gelu_pytorch_tanh"},
            r"activation is gelu_tanh, but must be silu, as a GGUF file would be",
        ),
        (
            "yarn",
            {"rope_scaling": {**YARN, "attention_factor": 2.0}, "rope_parameters": None},
            r"is a yarn of its own",
        ),
    ],
)
def test_what_no_gguf_file_can_say_is_refused(name: str, changes: dict[str, Any], refused: str, tmp_path: Path) -> None:
    folder = prepared(name, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(BadInput, match=refused):
        converted(folder)


GRANITE = {  # the numbers of published Granite models
    "residual_multiplier": 0.22,
    "embedding_multiplier": 12.1,
    "attention_multiplier": 0.0078125,
    "logits_scaling": 6.3,
    "rms_norm_eps": 1e-05,
}
OF_YARN = {"rope_scaling": None, "rope_parameters": {**YARN, "rope_theta": 500.1, "attention_factor": 1.1386294}}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("granitemoe", GRANITE),
        ("granitehybrid", GRANITE),
        ("granitehybrid_moe", GRANITE),
        ("glm4moe", {"routed_scaling_factor": 1.8, "rms_norm_eps": 1.3e-5}),
        ("gemma2", {"attn_logit_softcapping": 50.1, "final_logit_softcapping": 30.1, "rms_norm_eps": 1.3e-6}),
        ("yarn", OF_YARN),
    ],
)
def test_numbers_that_float32_rounds_are_converted(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """A GGUF file stores float32. llama.cpp's converter rounds such numbers too, and refuses none."""
    folder = prepared(name, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    write(converted(folder), tmp_path / "x.gguf", lambda *_: None)
    before, after = open_checkpoint(folder).config, open_checkpoint(tmp_path / "x.gguf").config
    for field in ("factors", "rms_eps", "logit_scale", "embed_scale", "attn_soft_cap", "final_soft_cap"):
        assert agree_in_float32(getattr(before, field), getattr(after, field))
    if before.mixture and after.mixture:
        assert before.mixture.scale == pytest.approx(after.mixture.scale, rel=1e-6)


FLOATS = (0.22, 1e-5, 1.8, 0.1, 3.0, 1e30)


def test_biases_of_feed_forward_parts_are_converted(tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"
    write(converted(MODELS / "llama_biases"), out, lambda *_: None)
    before, after = open_checkpoint(MODELS / "llama_biases"), open_checkpoint(out)
    assert after.config.has_ffn_bias
    biases = [name for name in before.tensors if ".ffn." in name and name.endswith("_bias")]
    assert len(biases) == 6
    assert all(np.array_equal(before.tensor(name), after.tensor(name)) for name in biases)


@pytest.mark.parametrize("x", FLOATS)
def test_floats_are_the_same_wherever_they_stand_if_float32_is(x: float) -> None:
    """Every kind of value that a configuration holds, with a float that is rounded and with one that is another."""
    near, far = float(np.float32(x)), x * 1.001
    mixture = open_checkpoint(MODELS / "glm4moe").config.mixture
    assert mixture is not None
    kinds: list[Callable[[float], Any]] = [
        lambda v: v,
        lambda v: {"residual": v, "n": 3},
        lambda v: (1, (v, None)),
        lambda v: replace(mixture, scale=v),
        lambda v: {"a": (replace(mixture, alpha=v),)},
    ]
    for kind in kinds:
        assert agree_in_float32(kind(x), kind(near))
        assert not agree_in_float32(kind(x), kind(far))
    assert not agree_in_float32({"a": x}, {"b": x})
    assert not agree_in_float32((x,), (x, x))
    assert not agree_in_float32(x, None)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["samebits", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    source, out = str(prepared("qwen2", tmp_path)), tmp_path / "o.gguf"
    status, said, _ = run("convert", source, str(out), "--type", "bf16", "--json")
    assert status == 0
    assert json.loads(said) == {"path": str(out), "bytes": out.stat().st_size, "tensors": {"bf16": 16, "f32": 11}}
    assert {e.format for e in open_checkpoint(out).file.tensors.values() if len(e.shape) > 1} == {"bf16"}
    for args, needed in (
        (("convert", source, str(out)), "a file that exists, but must be a new name"),
        (("convert", str(out), str(tmp_path / "x.gguf")), "the GGUF file o.gguf, but must be a folder"),
        (("convert", source, str(tmp_path / "none" / "x.gguf")), "a folder that exists"),
        (
            ("convert", source, str(out), "--type", "q9"),
            "--type is 'q9', but must be f32, f16 or bf16; `samebits quantize` writes others",
        ),
    ):
        status, _, said = run(*args)
        assert (status, said.count("\n")) == (2, 1), said
        assert needed in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.gguf", "qwen2"]
