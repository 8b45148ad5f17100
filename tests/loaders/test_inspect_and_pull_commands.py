"""`samebits inspect` and `samebits pull` as a user runs them: output, exit status, one line for a mistake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import STRING, Tensor, tensor, tiny_model
from safetensors.numpy import save_file
from test_safetensors import CONFIG, weights

from samebits.cli.main import main


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["samebits", *args])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 1, out, err


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    return lambda *args: run(monkeypatch, capsys, *args)


def test_inspect_a_gguf_file(cli: Any, tmp_path: Path) -> None:
    path = str(tiny_model().write(tmp_path / "m.gguf"))
    status, out, _ = cli("inspect", path, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["metadata"]["tokenizer.ggml.tokens"]["length"] == 265
    assert found["model"]["config"]["num_layers"] == 2
    assert found["model"]["memory"]["kv_bytes_per_1k_tokens_f16"] == 1000 * 2 * 2 * 2 * 16 * 2
    assert found["totals"]["q8_0"]["tensors"] == 6
    assert sum(t["bytes"] for t in found["tensors"]) == found["model"]["memory"]["weight_bytes"]
    assert found["tokenizer"]["special_texts"]["eos"] == "<|im_end|>"
    status, out, _ = cli("inspect", path)
    assert status == 0
    assert "blk.1.ffn_down.weight" not in out
    for text in ("llama", "with a chat template", "per 1,000 tokens"):
        assert text in out
    assert cli("show", path) == (status, out, "")
    status, out, _ = cli("inspect", path, "--tensors")
    for text in ("blk.1.ffn_down.weight", "64 x 96", "model: llama", "kv_bytes_per_1k_tokens_f16", "byte-level BPE"):
        assert text in out


def test_inspect_a_folder(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(), tmp_path / "model.safetensors")
    status, out, err = cli("inspect", str(tmp_path), "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["model"]["architecture"] == "llama"
    assert json.loads(out)["tokenizer"]["kind"] == "none"


def test_inspect_tells_of_layers_and_rotations_in_a_line(cli: Any) -> None:
    data = Path(__file__).parents[1] / "models" / "data"
    _, out, _ = cli("inspect", str(data / "gemma3"), "--tensors")
    told = " ".join(out.replace("│", " ").split())
    assert "3 over 9 positions, rope_table.local; 1 over all positions, rope_table" in told
    assert 'rope_table: theta 100000, 8 elements, kind "linear", factor 4.0; rope_table.local: theta 100, 8' in told
    _, out, _ = cli("inspect", str(data / "gemma3"), "--json")
    memory, per_token = json.loads(out)["model"]["memory"], 2 * 2 * 8 * 2
    assert memory["kv_bytes_per_1k_tokens_f16"] == (1000 + 3 * 9) * per_token


def test_inspect_tells_of_hybrids(cli: Any) -> None:
    """Only layers with attention keep keys and values; the others keep states of one size."""
    folder = str(Path(__file__).parents[1] / "models" / "data" / "nemotron_h")
    _, out, _ = cli("inspect", folder, "--tensors")
    told = " ".join(out.replace("│", " ").split())
    assert "2 recurrence; 2 ffn; 1 over all positions, no rotation" in told
    _, out, _ = cli("inspect", folder, "--json")
    memory = json.loads(out)["model"]["memory"]
    assert memory["kv_bytes_per_1k_tokens_f16"] == 1000 * 2 * 2 * 8 * 2
    carry, state, ring = 2 * 3 * 112, 8 * 12 * 8, 16 * (2 * 12 + 8 * 8 + 8)
    assert memory["slot_bytes_per_sequence"] == 2 * 4 * (carry + state + ring)


def test_inspect_counts_the_rows_of_a_latent_cache(cli: Any) -> None:
    """A row of 32 + 16 elements per token and layer, whatever the number of heads."""
    _, out, _ = cli("inspect", str(Path(__file__).parents[1] / "models" / "data" / "deepseek2"), "--json")
    assert json.loads(out)["model"]["memory"]["kv_bytes_per_1k_tokens_f16"] == 1000 * 2 * 48 * 2


def test_inspect_tells_of_mixtures(cli: Any) -> None:
    folder = str(Path(__file__).parents[1] / "models" / "data" / "glm4moe")
    _, out, _ = cli("inspect", folder, "--tensors")
    told = " ".join(out.replace("│", " ").split())
    assert "1 over all positions, rope_table; 2 over all positions, rope_table, experts" in told
    mixture = "3 of 8 experts of 8, sigmoid, of 2 of 4 groups, divided by their sum, times 1.5; a shared one of 16"
    assert mixture in told
    _, out, _ = cli("inspect", folder, "--json")
    model = json.loads(out)["model"]
    assert (model["config"]["mixture"]["num_experts"], model["config"]["mixture"]["top_k"]) == (8, 3)
    row, experts = 4 * 96 * 32, 2 * 3 * 8 * 32 * 4  # of all embeddings, of an expert in both layers
    assert model["memory"]["weight_bytes_per_token"] == model["memory"]["weight_bytes"] - row + row // 96 - 5 * experts


def test_inspect_shows_what_it_can_and_says_what_is_wrong(cli: Any, tmp_path: Path) -> None:
    file = tiny_model(**{"general.architecture": (STRING, "mamba"), "general.name": (STRING, "a\x1b[31mb[red]")})
    file.tensors.append(Tensor("odd", (64,), 40, bytes(36)))
    status, out, err = cli("inspect", str(file.write(tmp_path / "m.gguf")))
    assert status == 2
    assert "\x1b" not in out
    assert "a\\x1b[31mb[red]" in out
    assert "nvfp4" in out
    assert err.count("\n") == 1
    assert "general.architecture is 'mamba'" in err


def test_mistakes_are_one_line_and_status_2(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    half = tmp_path / "half.gguf"
    half.write_bytes(tiny_model().build()[:5000])
    short = tiny_model()
    short.tensors = [tensor("token_embd.weight", (265, 64))]
    cases = {
        ("inspect", str(half)): "half.gguf: ",
        ("inspect", str(tmp_path / "none.gguf")): f"no such file or folder: {tmp_path / 'none.gguf'}",
        ("inspect", "qwen2.5:0.5b"): "no model 'qwen2.5:0.5b'; did you mean qwen2.5-0.5b?",
        ("inspect", "nonsense"): "no model 'nonsense'; `samebits list --names` shows the short names",
        ("inspect", "hf:a/b"): "is the network there",
        ("inspect", "hf:a/b/../c"): "must be hf:owner/repo, hf:owner/repo:Q4_K_M or hf:owner/repo/file",
        (
            "inspect",
            str(short.write(tmp_path / "short.gguf")),
            "--json",
        ): "tensor output_norm.weight (norm) is missing",
        ("pull", "http://x/y"): "must be an https address",
        ("pull", "https://127.0.0.1:9/x"): "is the network there",
        ("pull", str(half), "--sha256", "12"): "64 hexadecimal digits",
    }
    for args, expected in cases.items():
        status, _, err = cli(*args)
        assert (status, err.count("\n")) == (2, 1), (args, err)
        assert expected in err


def test_pull_a_local_path_prints_it(cli: Any, tmp_path: Path) -> None:
    path = tiny_model().write(tmp_path / "m.gguf")
    assert cli("pull", str(path))[:2] == (0, f"{path}\n")
