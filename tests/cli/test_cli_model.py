"""generate, chat and score as a user runs them, on a tiny model file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from samebits.cli.main import app
from samebits.core.sampling_defaults import FALLBACK, NEUTRAL

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from gguf_writer import tiny_model

    return str(tiny_model().write(tmp_path_factory.mktemp("models") / "tiny.gguf"))


def invoke(*arguments: str, text: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=text, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_generate_streams_and_json_carries_the_same_text(model: str) -> None:
    options = ("--model", model, "--max-tokens", "6", "--temperature", "0")
    shown = invoke("generate", "hi hi", *options)
    facts = json.loads(invoke("generate", "hi hi", *options, "--json", "--logprobs", "2"))
    assert facts["answers"][0]["text"] == shown.removesuffix("\n")
    assert facts["numerics"] == "portable"
    assert len(facts["answers"][0]["logits_sha256"]) == 64
    assert len(facts["answers"][0]["logprobs"][0]["top_logprobs"]) == 2


def test_guessing_changes_no_bit_and_is_reported(model: str) -> None:
    options = ("generate", "hi hi hi hi hi hi", "--model", model, "--max-tokens", "12", "--temperature", "0", "--json")
    plain = json.loads(invoke(*options))
    for drafter in ("ngram", f"draft:{model}"):
        facts = json.loads(invoke(*options, "--speculate", drafter))
        counts = facts.pop("speculation")
        assert facts == plain | {"seed": facts["seed"], "answers": facts["answers"]}
        assert facts["answers"][0]["logits_sha256"] == plain["answers"][0]["logits_sha256"]
        assert 0 <= counts["accepted_tokens"] <= counts["drafted_tokens"]
    assert counts["accepted_tokens"] > 0


def test_generate_reads_standard_input(model: str) -> None:
    options = ("--model", model, "--max-tokens", "3", "--temperature", "0")
    assert invoke("generate", "-", *options, text="hi hi") == invoke("generate", "hi hi", *options)


def test_samples_are_numbered_and_differ(model: str) -> None:
    options = ("--temperature", "1", "--seed", "3", "--samples", "2", "--max-tokens", "8", "--json")
    answers = json.loads(invoke("generate", "hi", "--model", model, *options))["answers"]
    assert len({tuple(a["token_ids"]) for a in answers}) == 2


def test_sampling_options_that_are_left_out_are_the_models_own(model: str, tmp_path: Path) -> None:
    def sampling(*options: str) -> dict[str, float]:
        file = tmp_path / "answer.json"
        file.unlink(missing_ok=True)
        invoke("generate", "hi", "--model", model, "--max-tokens", "1", "--receipt", str(file), *options)
        return json.loads(file.read_text())["sampling"]

    for options, expected in (
        ((), FALLBACK.values()),
        (("--sampling-defaults", "neutral"), NEUTRAL.values()),
        (("--sampling-defaults", "neutral", "--top-k", "3"), {**NEUTRAL.values(), "top_k": 3}),
        (("--temperature", "0", "--min-p", "0.5"), {**FALLBACK.values(), "temperature": 0, "min_p": 0.5}),
    ):
        found = sampling(*options)
        assert {name: found[name] for name in expected} == expected


def test_chat_takes_a_message_or_a_conversation(model: str) -> None:
    options = ("--model", model, "--max-tokens", "3", "--temperature", "0")
    single = invoke("chat", "hi", *options)
    lines = invoke("chat", *options, text="hi\nagain\n")
    assert lines.startswith(single)
    assert len(lines) > len(single)


def test_a_line_that_is_too_long_is_refused_and_the_others_are_answered(model: str) -> None:
    options = ("chat", "--model", model, "--max-tokens", "3", "--seed", "1", "--json")
    expected = [json.loads(line) for line in invoke(*options, text="hi\nagain\n").splitlines()]
    result = CliRunner().invoke(app, list(options), input="hi\n" + "b " * 100 + "\n\nagain\n")
    assert result.exit_code == 1
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected
    assert "error: message has 200 tokens, but must have fewer than 128 tokens" in result.stderr


def test_score_takes_text_file_or_tokens(model: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("hi hello")
    options = ("--model", model, "--json")
    by_text = json.loads(invoke("score", "hi hello", *options))
    by_file = json.loads(invoke("score", "--file", str(tmp_path / "text.txt"), *options))
    tokens = ",".join(map(str, by_text["token_ids"]))
    by_tokens = json.loads(invoke("score", "--tokens", tokens, *options))
    assert by_text == by_file == by_tokens
    assert "perplexity" in invoke("score", "hi hello", "--model", model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "hi", "--model", "/no/such/file.gguf"), "/no/such/file.gguf"),
        (("score",), "TEXT is missing: it must be a text, or --file, or --tokens"),
        (("score", "--tokens", "1,x"), "--tokens is '1,x'"),
        (("chat", " "), "MESSAGE is missing"),
        (("generate", "hi", "--sampling-defaults", "own"), "sampling_defaults is 'own', but must be model or neutral"),
        (("generate", "hi", "--top-p", "7"), "top_p is 7.0"),
        (("generate", "hi", "--speculate", "no"), "drafter is 'no', but must be 'ngram', or 'draft:MODEL'"),
        (("generate", "hi", "--numerics", "exact"), "numerics tier is 'exact'"),
        (("generate", "hi", "--k-format", "q4_k"), "k_cache is q4_k"),
    ],
)
def test_mistakes_are_one_line(model: str, arguments: tuple[str, ...], message: str) -> None:
    chosen = arguments if "--model" in arguments else (*arguments, "--model", model)
    result = CliRunner().invoke(app, list(chosen))
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
