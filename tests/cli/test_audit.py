"""`samebits audit`: a sample that a seed chooses, verdicts that are those of a replay, and a page without markup."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from samebits import LLM, SamplingParams
from samebits.cli.audit import choose, share_of
from samebits.cli.main import app
from samebits.cli.replay import Entry, read_entries
from samebits.core.errors import BadInput

sys.path[:0] = [str(Path(__file__).parents[1] / "engine"), str(Path(__file__).parents[1] / "loaders")]
NUM_RECEIPTS = 12


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from random_tiny import write_random_tiny

    return write_random_tiny(tmp_path_factory.mktemp("audit") / "random.gguf")


@pytest.fixture(scope="module")
def lines(model_path: Path) -> list[bytes]:
    """Receipts of answers of several kinds."""
    llm = LLM(model_path, context_len=256)
    wishes = [SamplingParams(max_tokens=5 + i % 3, seed=i, temperature=i % 2, receipt=True) for i in range(10)]
    wishes.append(SamplingParams(max_tokens=4, n=2, seed=3, presence_penalty=0.5, receipt=True))
    answers = llm.generate(["hello hi"] * len(wishes), wishes)
    return [answer.receipt.to_json() for answer in answers if answer.receipt]


@pytest.fixture
def folder(tmp_path: Path, lines: list[bytes]) -> Path:
    """Some in files of their own, some in one file of lines."""
    assert len(lines) == NUM_RECEIPTS
    found = tmp_path / "receipts"
    (found / "more").mkdir(parents=True)
    for number, line in enumerate(lines[:4]):
        (found / f"{number}.json").write_bytes(line)
    (found / "more" / "others.jsonl").write_bytes(b"\n".join(lines[4:]) + b"\n")
    return found


def audited(folder: Path, model: Path, *options: str) -> tuple[int, Any]:
    call = ["audit", str(folder), "--model", str(model), "--json", "--backend", "reference", *options]
    result = CliRunner().invoke(app, call)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def test_a_folder_of_good_receipts_has_the_same_bits(folder: Path, model_path: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    status, report = audited(folder, model_path, "--html", str(page))
    assert (status, report["num_replayed"], report["counts"]["same_bits"]) == (0, NUM_RECEIPTS, NUM_RECEIPTS)
    assert f"{NUM_RECEIPTS} of {NUM_RECEIPTS} receipts: {NUM_RECEIPTS} same bits" in page.read_text()


def test_a_sample_is_chosen_by_the_seed_and_not_by_names(folder: Path, model_path: Path, tmp_path: Path) -> None:
    def chosen(where: Path, seed: int) -> set[str]:
        entries = [e for file in sorted(where.rglob("*.json*")) for e in read_entries(file)]
        return {e.receipt.computed_sha256() for e in choose(entries, share_of("25%"), seed) if e.receipt}

    renamed = tmp_path / "renamed"
    renamed.mkdir()
    texts = [line for file in sorted(folder.rglob("*.json*")) for line in file.read_bytes().splitlines()]
    (renamed / "all.jsonl").write_bytes(b"\n".join(reversed(texts)))
    assert chosen(folder, 1) == chosen(renamed, 1)
    assert len(chosen(folder, 1)) == 3
    assert len({frozenset(chosen(folder, seed)) for seed in range(8)}) > 1
    status, report = audited(folder, model_path, "--sample", "5", "--seed", "7")
    assert (status, report["num_replayed"], report["seed"]) == (0, 5, 7)


def test_what_differs_is_named_and_shown_as_text(folder: Path, model_path: Path, tmp_path: Path) -> None:
    said = json.loads((folder / "0.json").read_bytes())
    said["answer"]["links"][2] = "0" * 64
    said["model"]["name"] = "<b>x</b>"
    (folder / "0.json").write_text(json.dumps(said))
    (folder / "1.json").write_text("{}")
    page = tmp_path / "audit.html"
    status, report = audited(folder, model_path, "--html", str(page))
    assert (status, report["counts"]) == (1, {"same_bits": NUM_RECEIPTS - 2, "differs": 2, "not_checked": 0})
    wrong = {Path(r["file"]).name: r["cause"] for r in report["receipts"] if not r["same"]}
    assert set(wrong) == {"0.json", "1.json"}
    assert wrong["0.json"] != wrong["1.json"]
    assert "<b>x" not in page.read_text()
    assert "&lt;b&gt;x" in page.read_text()


def test_an_unknown_model_is_not_checked(folder: Path) -> None:
    result = CliRunner().invoke(app, ["audit", str(folder), "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["counts"]["not_checked"] == NUM_RECEIPTS


@pytest.mark.parametrize("sample", ["0", "0%", "101%", "-3", "some", "", "nan%"])
def test_shares_that_mean_nothing_are_refused(sample: str) -> None:
    with pytest.raises(BadInput, match="--sample"):
        share_of(sample)


def test_a_share_is_rounded_up(lines: list[bytes]) -> None:
    entries = [Entry(str(i), None, None) for i in range(3)]
    assert choose(entries, 0.05, 0) == entries  # they cannot be read, which costs nothing to say
    assert CliRunner().invoke(app, ["audit", "/nowhere"]).exit_code != 0
