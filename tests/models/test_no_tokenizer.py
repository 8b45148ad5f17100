"""A model without a tokenizer takes token ids and answers in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_runs import DATA

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput

GREEDY = SamplingParams(max_tokens=8, temperature=0.0)


@pytest.mark.parametrize("file", ["llama", "llama/model-f32.gguf"])
def test_token_ids_in_and_out(file: str) -> None:
    llm = LLM(DATA / file, backend="reference", max_sequences=2)
    (answer,) = llm.generate([[1, 2, 3]], GREEDY)
    assert len(answer.token_ids) == 8
    assert answer.text == ""
    with pytest.raises(BadInput, match=r"text is a text, but must be token ids: .* has no tokenizer"):
        llm.generate(["a text"], GREEDY)


def test_the_end_of_an_answer_is_what_the_configuration_says(tmp_path: Path) -> None:
    (free,) = LLM(DATA / "llama", backend="reference").generate([[1, 2, 3]], GREEDY)
    shutil.copytree(DATA / "llama", tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": [95, free.token_ids[3]]}))
    (ended,) = LLM(tmp_path / "m", backend="reference").generate([[1, 2, 3]], GREEDY)
    assert ended.finish_reason == "stop"
    assert ended.token_ids[:3] == free.token_ids[:3]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": "end"}))
    with pytest.raises(BadInput, match="eos_token_id is end, but must be a token id"):
        LLM(tmp_path / "m", backend="reference")


def command(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "samebits.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_takes_and_shows_ids() -> None:
    model = ("--model", str(DATA / "llama"), "--backend", "reference")
    (answer,) = LLM(DATA / "llama", backend="reference").generate([[1, 2, 3]], GREEDY)
    options = ("--max-tokens", "8", "--temperature", "0", *model)
    assert command("generate", "--tokens", "1,2,3", *options)[:2] == (0, ",".join(map(str, answer.token_ids)) + "\n")
    status, _, error = command("generate", "--tokens", "1,x", *model)
    assert (status, error) == (2, "error: --tokens is '1,x', but must be token ids such as 1,2,3\n")
    status, _, error = command("generate", *model)
    assert (status, error) == (2, "error: PROMPT is missing: it must be a text, or --tokens\n")
