"""The default model's own file: read, tokenized, templated and inspected. Skipped where the file is not there."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner

from samebits.cli.main import app
from samebits.core.errors import SamebitsError
from samebits.core.format import Packed
from samebits.loaders import Tokenizer
from samebits.loaders.cache import resolve
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint
from samebits.models.parts import ROPE_TABLE

CASES = json.loads((Path(__file__).parent / "data" / "smollm2_tokens.json").read_text())["cases"]


def model_path() -> Path | None:
    if stated := os.environ.get("SAMEBITS_TEST_MODEL"):
        return Path(stated)
    try:
        return resolve("smollm2")
    except SamebitsError:
        return None


PATH = model_path()
pytestmark = pytest.mark.skipif(PATH is None, reason="needs the default model: samebits pull, or $SAMEBITS_TEST_MODEL")


@cache
def checkpoint() -> FileCheckpoint:
    return open_checkpoint(PATH or "")


@cache
def tokenizer() -> Tokenizer:
    return checkpoint().tokenizer()


def test_configuration() -> None:
    config = checkpoint().config
    assert (config.num_layers, config.hidden_size, config.ffn_size, config.num_heads, config.num_kv_heads) == (
        30,
        576,
        1536,
        9,
        3,
    )
    assert (config.head_size, config.vocab_size, config.context_len) == (64, 49152, 8192)
    assert config.ropes[ROPE_TABLE].theta == 1e5
    assert np.float32(config.rms_eps) == np.float32(1e-5)
    assert config.is_tied
    assert config.rope_is_interleaved


def test_every_tensor_equals_an_independent_reader() -> None:
    file = checkpoint().file
    reader = gguf.GGUFReader(PATH)
    assert len(reader.tensors) == len(file.tensors) == 272
    for theirs in reader.tensors:
        ours = file.read(theirs.name)
        data = ours.data if isinstance(ours, Packed) else ours
        assert np.array_equal(data.reshape(-1).view(np.uint8), theirs.data.reshape(-1).view(np.uint8)), theirs.name
        assert ours.shape == tuple(int(n) for n in reversed(theirs.shape))


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"][:20]))
def test_tokens(case: dict[str, object]) -> None:
    text = str(case["text"])
    assert tokenizer().encode(text) == case["ids"]
    assert tokenizer().decode(tokenizer().encode(text)) == text


def test_the_chat_template_has_its_own_system_line() -> None:
    template = checkpoint().chat_template()
    assert template is not None
    prompt = template.render([{"role": "user", "content": "Why is the sky blue?"}])
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer().encode(prompt)
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 3, 2)
    assert tokenizer().special.eot == 2


def test_inspect() -> None:
    result = CliRunner().invoke(app, ["inspect", str(PATH), "--json"])
    found = json.loads(result.output)
    assert (result.exit_code, found["problems"]) == (0, [])
    assert found["totals"]["q4_1"]["tensors"] == 210
    assert found["model"]["memory"]["kv_bytes_per_1k_tokens_f16"] == 23_040_000
    assert found["tokenizer"]["vocab_size"] == 49152
