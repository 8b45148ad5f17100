"""Receipts as the commands write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from samebits.cli.main import app
from samebits.core.errors import BadInput
from samebits.receipts.record import from_json
from samebits.receipts.signing import is_signed_by, read_public_key


@pytest.fixture(scope="module")
def options(model_path: Path) -> tuple[str, ...]:
    return ("--model", str(model_path), "--max-tokens", "3", "--temperature", "1", "--seed", "4")


def invoke(*arguments: str | Path, text: str | None = None) -> Result:
    done = CliRunner().invoke(app, list(map(str, arguments)), input=text, catch_exceptions=False)
    assert done.exit_code == 0
    return done


def test_generate_writes_one_and_json_carries_the_same(options: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    shown = invoke("generate", "hi", *options, "--receipt", file)
    receipt = from_json(file.read_bytes())
    assert receipt.sampling.seed == 4
    facts = json.loads(invoke("generate", "hi", *options, "--json", "--logprobs", "1", "--receipt", file).stdout)
    assert json.dumps(facts).count('"links"') == 1
    assert facts["answers"][0]["receipt"] == json.loads(receipt.to_json()) == json.loads(file.read_bytes())
    assert facts["answers"][0]["text"] == shown.stdout.removesuffix("\n")


def test_samples_and_turns_are_lines(options: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "several.jsonl"
    invoke("generate", "hi", *options, "--samples", "3", "--receipt", file)
    assert [from_json(line).sample_index for line in file.read_bytes().splitlines()] == [0, 1, 2]
    invoke("chat", *options, "--receipt", file, text="hi\nagain\n")
    turns = [from_json(line) for line in file.read_bytes().splitlines()]
    assert len(turns) == 2
    assert len(turns[0].prompt_ids) < len(turns[1].prompt_ids)
    assert json.loads(invoke("chat", "hi", *options, "--json", "--receipt", file).stdout)["answers"][0]["receipt"] == (
        json.loads(turns[0].to_json())
    )


def test_they_are_signed_where_asked(options: tuple[str, ...], tmp_path: Path, keys: tuple[Path, Path]) -> None:
    file = tmp_path / "signed.json"
    invoke("generate", "hi", *options, "--receipt", file, "--sign-key", keys[0])
    assert is_signed_by(from_json(file.read_bytes()), read_public_key(keys[1]))


def test_mistakes_are_found_before_a_model_is_loaded(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    model = ("--model", "no-such-model")
    for wrong in (
        ("--sign-key", keys[0]),
        ("--receipt", tmp_path),
        ("--receipt", tmp_path / "a", "--sign-key", keys[1]),
    ):
        for command in ("generate", "chat"):
            with pytest.raises(BadInput, match=r"key|--receipt"):
                invoke(command, "hi", *model, *wrong)


def test_a_text_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("# Notes\n\nhello\nworld\n")
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "no receipt that can be read: none of its 3 lines; the first: receipt: JSON" in result.output
