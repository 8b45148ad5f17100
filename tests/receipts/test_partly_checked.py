"""What a replay says where it compared less than everything: nothing more than it found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samebits import LLM, SamplingParams
from samebits.cli.main import app
from samebits.receipts.record import Receipt, from_json
from samebits.receipts.signing import read_private_key, sign
from samebits.receipts.verdict import Cause

PROMPT = "hello hi aaaa, what is this?"
NUM_TOKENS = 12
WISH = SamplingParams(max_tokens=NUM_TOKENS, temperature=1.0, seed=4, ignore_eos=True, receipt=True)
Json = dict[str, Any]


@pytest.fixture(scope="module")
def receipt(llm: LLM) -> Receipt:
    found = llm.generate([PROMPT], WISH)[0].receipt
    assert found is not None
    return from_json(found.to_json())


def unsealed(receipt: Receipt, change: Callable[[Json], object]) -> Receipt:
    """The receipt with a change, and the hash that it had before."""
    made = json.loads(receipt.to_json())
    change(made)
    return from_json(json.dumps(made).encode())


def sealed(receipt: Receipt, **changes: Any) -> Receipt:
    """The same as a careful hand leaves it."""
    return from_json(replace(receipt, **changes, sha256=None).to_json())


def replayed(tmp_path: Path, receipt: Receipt, *options: str | Path) -> Result:
    file = tmp_path / "one.json"
    file.write_bytes(receipt.to_json())
    return CliRunner().invoke(app, ["replay", str(file), *map(str, options)], catch_exceptions=False)


CHANGES: dict[str, Callable[[Json], object]] = {
    "a token behind those compared": lambda made: made["answer"]["token_ids"].__setitem__(9, 75),
    "the hash of the text": lambda made: made["answer"].update(text_sha256="0" * 64),
    "the end": lambda made: made["answer"].update(finish_reason="stop"),
    "the name": lambda made: made["model"].update(name="another"),
    "the context": lambda made: made.update(context_len=99),
    "a stop string": lambda made: made["sampling"].update(stop=["zzzzz"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_broken_seal_is_found_by_a_partial_replay(llm: LLM, receipt: Receipt, name: str) -> None:
    changed = unsealed(receipt, CHANGES[name])
    (found,) = llm.replay(changed, max_tokens=3)
    assert (found.cause, found.num_tokens, found.num_answer_tokens) == (Cause.SEAL, 3, NUM_TOKENS)
    assert found.line(changed, "cpu").startswith("differs: the receipt was changed after it was made; 3 of 12 tokens")


def test_a_signature_does_not_mend_a_seal(llm: LLM, receipt: Receipt, keys: tuple[Path, Path]) -> None:
    key = read_private_key(keys[0])
    changed = unsealed(receipt, CHANGES["the context"])
    signed = replace(changed, signature=key.sign(changed.signed_bytes()).hex())
    assert llm.replay(signed, public_key=keys[1])[0].cause is Cause.SEAL
    assert llm.replay(sign(receipt, key), public_key=keys[1], max_tokens=2)[0].is_same


def test_a_partial_replay_says_how_much_of_the_answer_it_compared(
    llm: LLM, receipt: Receipt, model_path: Path, tmp_path: Path
) -> None:
    (found,) = llm.replay(receipt, max_tokens=5)
    assert found.is_same
    assert not found.is_whole
    said = "same bits: 5 of 12 tokens, model random.gguf, numerics 1, cpu; the end was not compared"
    assert found.line(receipt, "cpu") == said
    done = replayed(tmp_path, receipt, "--model", model_path, "--tokens", "5", "--json")
    (made,) = json.loads(done.stdout)
    assert done.exit_code == 0
    assert {k: made[k] for k in ("same", "whole", "num_tokens", "num_answer_tokens")} == {
        "same": True,
        "whole": False,
        "num_tokens": 5,
        "num_answer_tokens": NUM_TOKENS,
    }
    (whole,) = json.loads(replayed(tmp_path, receipt, "--model", model_path, "--json").stdout)
    assert (whole["whole"], whole["num_tokens"], whole["num_answer_tokens"]) == (True, NUM_TOKENS, NUM_TOKENS)


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["model"].update(weights_sha256="0" * 64),
        lambda made: made["numerics"].update(version=2),
        lambda made: made["numerics"].update(k_format="q4_7"),
        lambda made: made["model"].update(name="no-such-model"),
    ],
)
def test_a_broken_seal_needs_no_model(
    receipt: Receipt, model_path: Path, tmp_path: Path, change: Callable[[Json], object]
) -> None:
    """A change that keeps a receipt from being run does not hide that it was changed."""
    changed = unsealed(receipt, change)
    options = () if changed.model.name == "no-such-model" else ("--model", model_path)
    done = replayed(tmp_path, changed, *options)
    assert done.exit_code == 1
    assert "differs: the receipt was changed after it was made: its own SHA-256 is of another content" in done.stdout
    assert replayed(tmp_path, sealed(changed), *options).exit_code == 3


def empty_of(receipt: Receipt, finish_reason: str = "cancelled") -> Receipt:
    """All tokens dropped."""
    answer = replace(
        receipt.answer,
        token_ids=(),
        links=(),
        finish_reason=finish_reason,
        text_sha256=hashlib.sha256(b"").hexdigest(),
    )
    return sealed(receipt, answer=answer)


def test_a_receipt_without_tokens_is_not_checked(llm: LLM, receipt: Receipt, model_path: Path, tmp_path: Path) -> None:
    honest = llm.generate([PROMPT], replace(WISH, max_tokens=0))[0].receipt
    assert honest is not None
    another_prompt = sealed(empty_of(receipt), prompt_ids=(70, 71, 72))
    for empty in (honest, empty_of(receipt), empty_of(receipt, "deadline"), another_prompt):
        (found,) = llm.replay(empty)
        assert (found.cause, found.num_tokens, found.is_checked) == (Cause.NOTHING, 0, False)
        assert found.line(empty, "cpu") == "not checked: the answer has no tokens, so there was nothing to compare"
    done = replayed(tmp_path, empty_of(receipt), "--model", model_path, "--json")
    assert done.exit_code == 3
    (made,) = json.loads(done.stdout)
    assert (made["same"], made["checked"], made["cause"], made["num_answer_tokens"]) == (False, False, "no tokens", 0)
    assert llm.replay(empty_of(receipt, "length"))[0].cause is Cause.END
    broken = unsealed(empty_of(receipt), CHANGES["the name"])
    assert llm.replay(broken)[0].cause is Cause.SEAL
    assert "all bits" not in llm.replay(broken)[0].line(broken, "cpu")


@pytest.mark.parametrize("max_tokens", [0, 5])
def test_an_answer_that_was_cut_in_its_prompt_is_not_checked(llm: LLM, max_tokens: int) -> None:
    """No end of it can be recomputed, whether tokens were wanted or not; its text can."""
    wish = SamplingParams(max_tokens=max_tokens, prompt_logprobs=0, seed=1, ignore_eos=True, receipt=True)
    job = llm.engine.generate([5] * 200, wish)
    llm.engine.step()
    llm.engine.cancel(job)
    cut = job.completions()[0].receipt
    assert cut is not None
    assert (cut.answer.token_ids, cut.answer.finish_reason) == ((), "cancelled")
    assert llm.replay([cut])[0].cause is Cause.NOTHING
    assert llm.replay([sealed(cut, answer=replace(cut.answer, text_sha256="0" * 64))])[0].cause is Cause.TEXT


def cut_to(receipt: Receipt, llm: LLM, num_tokens: int, **changes: Any) -> Receipt:
    """The beginning of an answer, as complete as a hand can make it look."""
    token_ids = receipt.answer.token_ids[:num_tokens]
    stream = llm.tokenizer.stream(True, frozenset())
    text = "".join(map(stream.push, token_ids)) + stream.finish()
    answer = replace(
        receipt.answer,
        token_ids=token_ids,
        links=receipt.answer.links[:num_tokens],
        text_sha256=hashlib.sha256(text.encode()).hexdigest(),
        finish_reason=changes.pop("finish_reason", "length"),
    )
    return sealed(receipt, answer=answer, **changes)


def test_a_cut_answer_shows_its_context_beside_the_models(
    llm: LLM, receipt: Receipt, model_path: Path, tmp_path: Path
) -> None:
    cut = cut_to(receipt, llm, 4, context_len=len(receipt.prompt_ids) + 4)
    (found,) = llm.replay(cut)
    assert found.is_same
    assert found.line(cut, "cpu").endswith(f"; end: length, context {cut.context_len} of 2048")
    done = replayed(tmp_path, cut, "--model", model_path, "--json")
    (made,) = json.loads(done.stdout)
    assert (made["context_len"], made["model_context_len"], made["finish_reason"]) == (cut.context_len, 2048, "length")
    for reason in ("cancelled", "deadline"):
        cut = cut_to(receipt, llm, 4, finish_reason=reason)
        (found,) = llm.replay(cut)
        assert found.line(cut, "cpu").endswith(f"; end: {reason}, which is not recomputed, context 512 of 2048")


def test_the_name_that_is_shown_is_the_one_here(llm: LLM, receipt: Receipt) -> None:
    renamed = sealed(receipt, model=replace(receipt.model, name="a-better-model"))
    (found,) = llm.replay(renamed)
    assert found.is_same
    assert "model random.gguf (the receipt calls it 'a-better-model')" in found.line(renamed, "cpu")
    assert found.as_json()["model_here"] == "random.gguf"


def test_a_line_of_a_verdict_is_one_line_without_controls(llm: LLM, receipt: Receipt) -> None:
    evil = "m\x1b[2K\rsame\n\u202ebits\ud800\x9b1m"
    place = {"k_format": evil, "v_format": evil}
    for changed in (
        sealed(receipt, model=replace(receipt.model, name=evil)),
        sealed(receipt, numerics=replace(receipt.numerics, **place)),
    ):
        (found,) = llm.replay(changed)
        line = found.line(changed, "cpu")
        assert line.isprintable()
        line.encode()


def test_ids_in_another_order_or_twice_are_no_receipt(receipt: Receipt) -> None:
    for biases in ([[5, 1.0], [5, 9.0]], [[6, 1.0], [5, 1.0]]):
        with pytest.raises(ValueError, match="ascending ids, each once"):
            unsealed(receipt, lambda made, biases=biases: made["sampling"].update(logit_bias=biases))
    for ids in ([5, 5], [6, 5]):
        with pytest.raises(ValueError, match="ascending ids, each once"):
            unsealed(receipt, lambda made, ids=ids: made["sampling"].update(shown_ids=ids))
