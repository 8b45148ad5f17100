"""`samebits replay` as people and programs call it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samebits.cli.main import app
from samebits.core.errors import BadInput
from samebits.receipts.record import from_json


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def sealed(made: dict[str, Any]) -> bytes:
    """A receipt whose own hash is that of what it says now, as a careful hand leaves it."""
    changed = from_json(json.dumps(made).encode())
    return replace(changed, sha256=changed.computed_sha256()).to_json()


@pytest.fixture(scope="module")
def file(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two receipts, one a line."""
    path = tmp_path_factory.mktemp("replayed") / "two.jsonl"
    options = ("--max-tokens", "9", "--temperature", "1", "--seed", "4", "--samples", "2", "--receipt", path)
    assert invoke("generate", "hi hi", "--model", model_path, *options).exit_code == 0
    return path


def test_lines_and_layouts_of_a_file_are_confirmed(file: Path, model_path: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose.json"
    loose.write_text(json.dumps(json.loads(file.read_text().splitlines()[0]), indent=2))
    done = invoke("replay", file, loose, "--model", model_path, "--backend", "reference")
    assert done.exit_code == 0
    same = "same bits: 9 tokens, model random.gguf, numerics 1, reference; end: length, context 2048 of 2048"
    assert done.stdout.splitlines() == [f"{file}:1: {same}", f"{file}:2: {same}", f"{loose}: {same}"]


def test_a_difference_is_a_line_a_cause_and_status_1(file: Path, model_path: Path, tmp_path: Path) -> None:
    first, second = file.read_text().splitlines()
    changed = json.loads(second)
    changed["sampling"]["seed"] += 1
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("\n".join((first, json.dumps(changed), "{}", "")))
    done = invoke("replay", mixed, "--model", model_path, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert [f["cause"] for f in found] == [None, "sampling", "unreadable"]
    assert found[1]["stated"] != found[1]["computed"]
    assert f"{mixed}:2: differs at token {found[1]['position']}: " in done.stderr
    assert invoke("replay", mixed, "--model", model_path, "--tokens", "1", "--json").exit_code == 1


def test_other_weights_are_told_before_anything_runs_with_status_3(file: Path, tmp_path: Path) -> None:
    from gguf_writer import tiny_model

    other = tiny_model().write(tmp_path / "other.gguf")
    done = invoke("replay", file, "--model", other)
    assert done.exit_code == 3
    assert all(": not checked: other weights (stated " in line for line in done.stdout.splitlines())


def test_a_receipt_makes_nothing_be_fetched_or_opened(file: Path, model_path: Path, tmp_path: Path) -> None:
    for name in ("https://example.invalid/model.gguf", "hf:owner/repo", "random.gguf", str(model_path), "../x"):
        made = json.loads(file.read_text().splitlines()[0])
        made["model"]["name"] = name
        path = tmp_path / "named.json"
        path.write_bytes(sealed(made))
        done = invoke("replay", path)
        assert done.exit_code == 3
        assert "stated by --model" in done.stdout


def test_a_name_in_the_cache_is_found(
    file: Path, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from samebits.loaders.cache import cached_path

    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    address = "https://example.invalid/random.gguf"
    target = cached_path(address)
    assert target is not None
    target.parent.mkdir()
    shutil.copy(model_path, target)
    made = json.loads(file.read_text().splitlines()[0])
    made["model"]["name"] = address
    path = tmp_path / "named.json"
    path.write_text(json.dumps(made))
    done = invoke("replay", path)
    assert done.exit_code == 1  # the name is not what the receipt was made with
    assert "changed where no bit depends on it" in done.stdout


def test_mistakes_in_the_call(file: Path, model_path: Path, tmp_path: Path, keys: tuple[Path, Path]) -> None:
    for wrong in ((tmp_path / "absent",), (file, "--public-key", keys[0]), (file, "--output", tmp_path)):
        with pytest.raises(BadInput):
            invoke("replay", *wrong, "--model", model_path)
    done = invoke("replay", file, "--model", model_path, "--public-key", keys[1])
    assert done.exit_code == 1
    assert "it is not signed" in done.stdout
