"""`samebits bench` as a user runs it on a tiny model: table, JSON, page, and mistakes in a line."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_pages import check_page
from bench_sides import FakeSide
from click.testing import CliRunner
from rich.console import Console

from samebits.bench import model_run
from samebits.bench.footprint import Footprint
from samebits.bench.measured_rows import rows_for
from samebits.bench.ours import Ours, Settings, step_batch, weight_bytes
from samebits.bench.plot import model_page
from samebits.bench.report import print_run, text_bar
from samebits.bench.results import Row
from samebits.cli.main import app
from samebits.models.checkpoint import open_checkpoint

ROWS = ("--prompts", "24,4096", "--depths", "0,20", "--batches", "3", "--decode-tokens", "2", "--repeats", "2")


def settings_for(file: Path) -> Settings:
    return Settings(str(file), "reference", threads=1)


@pytest.fixture(scope="module")
def outcome(bench_model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """(JSON from standard output, table from standard error, page) of one run."""
    page = tmp_path_factory.mktemp("out") / "plot.html"
    options = (*ROWS, "--backend", "reference", "--threads", "1", "--json", "--plot", str(page))
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "model", str(bench_model_file), *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr, page.read_text()


def test_json_has_every_row_with_its_spread(outcome: tuple[dict[str, Any], str, str], bench_model_file: Path) -> None:
    facts, _, _ = outcome
    labels = ["prefill 24", "decode", "decode after 20", "decode, 3 sequences after 16"]
    assert [row["row"] for row in facts["rows"]] == labels
    assert facts["left_out"] == ["prefill 4096: 4096 tokens, and the model's context is 96"]
    assert (facts["numerics"], facts["threads"], facts["repeats"]) == ("portable", 1, 2)
    for row in facts["rows"]:
        rate = row["ours"]["tokens_per_second"]
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert len(row["ours"]["seconds"]) == 2
        assert (row["ceiling"] is None) == (row["kind"] == "prefill")
    footprint = facts["footprint"]
    assert footprint["file_bytes"] == bench_model_file.stat().st_size
    assert footprint["kv_bytes"] == 96 * 2 * 32 * 2  # tokens, K and V, one head of 32, f16
    assert 0 < footprint["load_seconds"] < footprint["first_token_seconds"]
    assert facts["environment"]["backend"] == "reference"


def test_table_and_page_show_the_rows(outcome: tuple[dict[str, Any], str, str]) -> None:
    _, table, page = outcome
    for text in ("prefill 24", "decode, 3 sequences after 16", "of ceiling", "left out", "above the imported"):
        assert text in table
    check_page(page)
    assert page.count("<svg") == 3
    assert "decode after 20: samebits" in page


def test_peers_through_the_public_seam(bench_model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = Footprint(1.0, 2.0, 16, 10, 330, 400, 200, 100, 96)
    monkeypatch.setattr(model_run, "measure", lambda settings: fixed)
    calls: list[tuple[str, str]] = []
    peer = FakeSide("llama.cpp", {"f16": 1e3, "bf16 fa": 1e2}, calls)
    silent = FakeSide("transformers", {}, calls, refused="bf16")
    run = model_run.bench_model(
        settings_for(bench_model_file), rows_for((8,), (0,), (), 1), 2, lambda checkpoint: [peer, silent]
    )
    assert peer.is_closed
    assert silent.is_closed
    facts = run.as_json()
    assert facts["footprint"]["ratio"] == pytest.approx(1.1)
    assert facts["peers"]["llama.cpp"] == {"version": "llama.cpp 1.0", "amx": True}
    theirs = facts["rows"][0]["against"]["llama.cpp"]
    assert (theirs["setting"], theirs["seconds"]) == ("bf16 fa", [100.0, 100.0])
    assert theirs["ratio"]["median"] > 1
    console = Console(width=200, record=True, file=StringIO())
    print_run(console, run)
    shown = console.export_text()
    assert "bf16 fa" in shown
    assert "llama.cpp: llama.cpp 1.0, AMX on" in shown
    assert "not measured prefill 8: transformers: no bf16" in shown
    check_page(model_page(run))


def test_sequences_of_a_batch_are_those_of_single_runs(bench_model_file: Path) -> None:
    """Pages handed out in turn, tokens by sequence and position: bits as when each runs alone."""
    row = Row("decode", 1, num_sequences=3, depth=20)
    checkpoint = open_checkpoint(bench_model_file)
    together = Ours(settings_for(bench_model_file), checkpoint, [row])
    together.seconds(row, "")
    vocab = checkpoint.config.vocab_size
    last = step_batch(row, together.runner.limits, vocab, 21, 1)
    batched = together.runner.run(last).logits
    alone = Ours(settings_for(bench_model_file), checkpoint, [Row("prefill", 22)])
    for sequence in range(3):
        step = step_batch(Row("prefill", 22), alone.runner.limits, vocab, 0, 22)
        tokens = (1 + (31 * step.positions + 7 * sequence) % (vocab - 1)).astype(np.int32)
        step.token_ids[:] = tokens
        assert np.array_equal(alone.runner.run(step).logits[0], batched[sequence])


def test_weights_of_a_step_leave_out_an_untied_embedding(bench_model_file: Path) -> None:
    checkpoint = open_checkpoint(bench_model_file)
    everything = sum(entry.num_bytes for entry in checkpoint.file.tensors.values())
    assert weight_bytes(checkpoint) == everything - checkpoint.num_bytes("embed")


def test_weights_of_a_step_leave_out_experts_that_no_token_chooses() -> None:
    checkpoint = open_checkpoint(Path(__file__).parents[1] / "models" / "data" / "mixtral" / "model-f32.gguf")
    expert, rest = 2 * 3 * 20 * 32 * 4, weight_bytes(checkpoint, 4) - 4 * 2 * 3 * 20 * 32 * 4
    assert [weight_bytes(checkpoint, n) for n in (1, 2, 3)] == [rest + 2 * expert, rest + 4 * expert, rest + 4 * expert]


def test_text_bars_have_eighths() -> None:
    assert text_bar(1, 1) == "█" * 12
    assert text_bar(0.5, 12) == "▌"
    assert text_bar(0, 0) == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompts", "a"), "--prompts is 'a'"),
        (("--batches", "0"), "--batches is '0'"),
        (("--prompts", "", "--depths", "", "--batches", ""), "rows is missing"),
        (("--prompts", "4096", "--depths", "", "--batches", ""), "the model's context is 96"),
        (("--against", "vllm"), "unknown peer 'vllm'"),
        (("--backend", "abacus"), "unknown backend 'abacus'"),
        (("--numerics", "exact"), "numerics tier is 'exact'"),
        (("--k-format", "q4_k"), "k_cache is q4_k"),
        (("--output", "/no/such/folder/x.json"), "--output"),
    ],
)
def test_mistakes_are_one_line(bench_model_file: Path, options: tuple[str, ...], message: str) -> None:
    chosen = options if "--backend" in options else (*options, "--backend", "reference")
    result = CliRunner().invoke(app, ["bench", "model", str(bench_model_file), *chosen])
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
