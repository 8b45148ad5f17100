"""`samebits audit` and `replay` of a folder that someone made to mislead, stall or break them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samebits import LLM, SamplingParams
from samebits.cli import model_options
from samebits.cli.audit import receipt_files
from samebits.cli.main import app
from samebits.receipts.record import Receipt, from_json

sys.path[:0] = [str(Path(__file__).parents[1] / "engine"), str(Path(__file__).parents[1] / "loaders")]
EVIL = [
    "[/b]",
    "[bold]x[/]",
    "a\x1b[2K\rsame bits",
    "two\nlines",
    "half \ud800",
    "\u202egnp.x",
    "\x9b31m",
    "a\0b",
    "<b>",
]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from random_tiny import write_random_tiny

    return write_random_tiny(tmp_path_factory.mktemp("hostile") / "random.gguf")


@pytest.fixture(scope="module")
def receipt(model_path: Path) -> Receipt:
    llm = LLM(model_path, context_len=64)
    found = llm.generate(["hello hi"], SamplingParams(max_tokens=3, seed=1, receipt=True))[0].receipt
    assert found is not None
    return found


def sealed(receipt: Receipt, **changes: Any) -> bytes:
    return replace(receipt, **changes, sha256=None).to_json()


def named(receipt: Receipt, name: str) -> bytes:
    return sealed(receipt, model=replace(receipt.model, name=name))


def invoke(*arguments: str | Path) -> Result:
    """Every exception but the exit itself is a crash."""
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def is_harmless(text: str) -> bool:
    """Whether a terminal and a UTF-8 file take the text as it is."""
    return all(line.isprintable() for line in text.split("\n")) and bool(text.encode())


def test_names_from_receipts_are_shown_and_not_acted_on(receipt: Receipt, model_path: Path, tmp_path: Path) -> None:
    folder, page = tmp_path / "receipts", tmp_path / "page.html"
    folder.mkdir()
    for number, name in enumerate(EVIL):
        (folder / f"{number}.json").write_bytes(named(receipt, name))
    calls = (
        ("audit", folder, "--model", model_path, "--html", page),
        ("audit", folder),
        ("audit", folder, "--model", model_path, "--json"),
        ("replay", *sorted(folder.iterdir()), "--model", model_path),
        ("replay", *sorted(folder.iterdir()), "--json"),
    )
    for call in calls:
        done = invoke(*call)
        assert done.exit_code == (0 if "--model" in call else 3)
        assert is_harmless(done.stdout)
        assert len(done.stdout.splitlines()) >= len(EVIL)
    assert "<b>" not in page.read_text()
    made = json.loads(invoke("replay", folder / "2.json", "--json").stdout)
    assert made[0]["model"] == EVIL[2]  # JSON holds it as it is


def test_names_of_files_are_shown_and_not_acted_on(receipt: Receipt, model_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recei[bold]pts[red"
    folder.mkdir()
    names = [b"\x1b[2Kx.json", b"two\nlines.json", b"no-utf8-\xff.json", b"[red].json"]
    for name in names:
        with open(os.fsencode(folder) + b"/" + name, "wb") as stream:
            stream.write(b"{}")
    for options in ((), ("--json",), ("--html", tmp_path / "page.html")):
        done = invoke("audit", folder, "--model", model_path, *options)
        assert done.exit_code == 1
        assert is_harmless(done.stdout)


def test_one_name_after_another_loads_the_model_once(
    receipt: Receipt, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    load = model_options.load_model

    def noted(model: str, **settings: Any) -> LLM:
        loaded.append(settings["context_len"])
        return load(model, **settings)

    monkeypatch.setattr(model_options, "load_model", noted)
    lines = [named(receipt, f"name{i}") for i in range(12)]
    huge = sealed(receipt, prompt_ids=(5,) * 60_000, context_len=1 << 20)
    (tmp_path / "all.jsonl").write_bytes(b"\n".join([huge, *lines]))
    done = invoke("audit", tmp_path, "--model", model_path, "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["counts"] == {"same_bits": 12, "differs": 0, "not_checked": 1}
    assert len(loaded) == 2  # the huge one alone makes a context of its size
    assert min(loaded) < 100


def test_a_receipts_name_opens_nothing(receipt: Receipt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    names = [
        "",
        ".",
        "..",
        "/",
        "~",
        "a/b/c",
        "x" * 1000,
        "hf:" + "x" * 1000,
        "hf:../..",
        "https://[",
        "file:///etc",
        "\0",
    ]
    (tmp_path / "all.jsonl").write_bytes(b"\n".join(named(receipt, name) for name in [*names, *EVIL]))
    done = invoke("replay", tmp_path / "all.jsonl")
    assert done.exit_code == 3
    assert done.stdout.count(": not checked: ") == len(names) + len(EVIL)
    assert is_harmless(done.stdout)


def test_links_devices_and_deep_folders(receipt: Receipt, model_path: Path, tmp_path: Path) -> None:
    folder, outside = tmp_path / "receipts", tmp_path / "outside"
    for path in (folder, outside):
        path.mkdir()
    (outside / "secret.json").write_bytes(receipt.to_json())
    (folder / "link.json").symlink_to(outside / "secret.json")
    (folder / "loop").symlink_to(folder)
    (folder / "out").symlink_to(outside)
    (folder / "dir.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    nested = [folder.joinpath(*["d"] * depth) for depth in range(1, 1101)]  # beyond Python's limit of recursion
    for path in nested:
        path.mkdir()
    deep = nested[-1] / "deep.json"
    deep.write_bytes(receipt.to_json())
    try:
        assert list(receipt_files(folder)) == [deep]
        assert invoke("audit", folder, "--model", model_path).exit_code == 0
    finally:  # what removes the test's folder is recursive
        deep.unlink()
        for path in reversed(nested):
            path.rmdir()


def test_a_file_that_cannot_be_read_hides_no_other(receipt: Receipt, model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(receipt.to_json())
    with (tmp_path / "huge.json").open("wb") as stream:
        stream.truncate((1 << 30) + 1)  # no memory on disk
    (tmp_path / "lines.json").write_bytes(b"\n" * ((1 << 20) + 1))
    done = invoke("audit", tmp_path, "--model", model_path, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["counts"] == {"same_bits": 1, "differs": 2, "not_checked": 0}


def test_the_sample_cannot_be_foreseen_unless_its_seed_is_told(
    receipt: Receipt, model_path: Path, tmp_path: Path
) -> None:
    """A known seed lets whoever makes receipts keep a wrong one out of the sample."""
    (tmp_path / "one.json").write_bytes(receipt.to_json())
    seeds = {json.loads(invoke("audit", tmp_path, "--json").stdout)["seed"] for _ in range(3)}
    assert len(seeds) > 1
    seed = seeds.pop()
    assert json.loads(invoke("audit", tmp_path, "--json", "--seed", str(seed)).stdout)["seed"] == seed
    shown = invoke("audit", tmp_path, "--model", model_path, "--seed", "77").stdout
    assert "seed 77" in shown


def test_json_that_is_printed_is_still_the_same(receipt: Receipt) -> None:
    from samebits.cli.output import _shown

    for name in (*EVIL, "é日本", "\U000e0001"):
        content = {"name": name, "list": [1, {"a": name}]}
        text = _shown(json.dumps(content, ensure_ascii=False, indent=1))
        assert json.loads(text) == content
        assert is_harmless(text)
    assert from_json(named(receipt, EVIL[4])).model.name == EVIL[4]
