"""Receipts that were changed after they were made: each change is named for what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput
from samebits.core.grammar_library import grammar_library
from samebits.engine.request_options import RequestOptions
from samebits.grammar.masking import Masking
from samebits.grammar.process import vocabulary_of
from samebits.receipts.record import MAX_BYTES, Grammar, Receipt, from_json
from samebits.receipts.signing import read_private_key, sign
from samebits.receipts.verdict import Cause, Verdict

PROMPT = "hello hi aaaa, what is this?"
WISH = SamplingParams(
    max_tokens=40,
    temperature=1.5,
    top_k=60,
    top_p=0.95,
    presence_penalty=0.5,
    logit_bias={70: 4.0, 71: 3.0},
    seed=5,
    n=2,
    ignore_eos=True,
    receipt=True,
)
OTHER_HASH = "0" * 64
Json = dict[str, Any]


@pytest.fixture(scope="module")
def receipt(llm: LLM) -> Receipt:
    """The second of two samples, which a stop string ends."""
    text = llm.generate([PROMPT], WISH)[1].text
    stop = next(text[i : i + 2] for i in range(16, 30) if text.index(text[i : i + 2]) == i)
    found = llm.generate([PROMPT], replace(WISH, stop=(stop,)))[1].receipt
    assert found is not None
    assert found.answer.finish_reason == "stop"
    assert len(found.answer.token_ids) > 10
    return found


def grammar_receipt(llm: LLM, model_path: Path, source: str, kind: str = "regex") -> Receipt:
    """Of an answer that is held to a grammar."""
    vocabulary = vocabulary_of(model_path, llm.runner.vocab_size, llm.tokenizer.special)
    with Masking(vocabulary) as masking:
        grammar = Grammar(kind, source)
        job = llm.engine.generate(
            llm.encode("hi"),
            SamplingParams(max_tokens=12, seed=3, temperature=1.0, receipt=True),
            RequestOptions(make_mask=masking.maker(grammar), grammar=grammar),
        )
        llm.engine.complete(job)
    found = job.completions()[0].receipt
    assert found is not None
    return found


def resealed(made: Json) -> Receipt:
    """As a careful hand would leave it: the receipt's own hash is that of what it says now."""
    changed = from_json(json.dumps(made).encode())
    return from_json(replace(changed, sha256=changed.computed_sha256()).to_json())


def is_same(found: Verdict, num_tokens: int, num_answer_tokens: int) -> bool:
    counts = found.num_tokens, found.num_answer_tokens
    return found.is_same and counts == (num_tokens, num_answer_tokens)


def verdict_on(llm: LLM, receipt: Receipt) -> Verdict:
    return llm.replay(receipt)[0]


def put(path: str, value: Any) -> Callable[[Json], None]:
    """Sets a field; a function is given what it was."""

    def change(made: Json) -> None:
        *before, last = path.split(".")
        for key in before:
            made = made[key]
        made[last] = value(made[last]) if callable(value) else value

    return change


def at(index: int, other: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """The list with another item in one place."""

    def change(items: list[Any]) -> list[Any]:
        place = index % len(items)
        return [*items[:place], other(items[place]), *items[place + 1 :]]

    return change


def another_id(token: int) -> int:
    return token - 1 if token > 70 else token + 1


def flipped(link: str) -> str:
    return ("1" if link[0] == "0" else "0") + link[1:]


def without(index: int) -> Callable[[Json], None]:
    """A token dropped with its link."""

    def change(made: Json) -> None:
        for name in ("token_ids", "links"):
            del made["answer"][name][index]

    return change


def with_one_more(index: int) -> Callable[[Json], None]:
    """A token put in with a link."""

    def change(made: Json) -> None:
        made["answer"]["token_ids"].insert(index, 75)
        made["answer"]["links"].insert(index, OTHER_HASH)

    return change


def appended(made: Json) -> None:
    made["answer"]["token_ids"].append(75)
    made["answer"]["links"].append(OTHER_HASH)


CHANGES: dict[str, tuple[Callable[[Json], None], Cause, int | None]] = {
    "first prompt token": (put("prompt_ids", at(0, another_id)), Cause.PROMPT, 0),
    "last prompt token": (put("prompt_ids", at(-1, another_id)), Cause.PROMPT, 0),
    "one prompt token fewer": (put("prompt_ids", lambda ids: ids[:-1]), Cause.PROMPT, 0),
    "first token": (put("answer.token_ids", at(0, another_id)), Cause.TOKEN, 0),
    "token in the middle": (put("answer.token_ids", at(7, another_id)), Cause.TOKEN, 7),
    "last token": (put("answer.token_ids", at(-1, another_id)), Cause.TOKEN, -1),
    "token dropped at the start": (without(0), Cause.PROMPT, 0),
    "token dropped in the middle": (without(6), Cause.TOKEN, 6),
    "token dropped at the end": (without(-1), Cause.END, None),
    "token added in the middle": (with_one_more(6), Cause.TOKEN, 6),
    "token added at the end": (appended, Cause.END, None),
    "seed": (put("sampling.seed", 6), Cause.SAMPLING, None),
    "temperature": (put("sampling.temperature", 0.0), Cause.SAMPLING, None),
    "top_p": (put("sampling.top_p", 0.1), Cause.SAMPLING, None),
    "top_k": (put("sampling.top_k", 1), Cause.SAMPLING, None),
    "min_p": (put("sampling.min_p", 0.9), Cause.SAMPLING, None),
    "penalty": (put("sampling.presence_penalty", -50.0), Cause.SAMPLING, None),
    "bias": (put("sampling.logit_bias", [[90, 40.0]]), Cause.SAMPLING, None),
    "allowed tokens": (put("sampling.allowed_token_ids", [70, 71, 72]), Cause.SAMPLING, None),
    "bad word": (put("sampling.bad_words", list("abcdefghijklmnopqrstuvwxyz")), Cause.SAMPLING, None),
    "sample index": (put("sample_index", 0), Cause.SAMPLING, None),
    "stop": (put("sampling.stop", []), Cause.END, None),
    "min_tokens": (put("sampling.min_tokens", 40), Cause.END, None),
    "finish reason": (put("answer.finish_reason", "length"), Cause.END, None),
    "cancelled, it says": (put("answer.finish_reason", "cancelled"), Cause.END, None),
    "first link": (put("answer.links", at(0, flipped)), Cause.LINK, 0),
    "link in the middle": (put("answer.links", at(7, flipped)), Cause.LINK, 7),
    "last link": (put("answer.links", at(-1, flipped)), Cause.LINK, -1),
    "text": (put("answer.text_sha256", flipped), Cause.TEXT, None),
    "include_stop": (put("sampling.include_stop", True), Cause.TEXT, None),
    "weights": (put("model.weights_sha256", flipped), Cause.WEIGHTS, None),
    "tokenizer": (put("model.tokenizer_sha256", flipped), Cause.TOKENIZER, None),
    "no tokenizer": (put("model.tokenizer_sha256", None), Cause.TOKENIZER, None),
    "chat template": (put("model.chat_template_sha256", flipped), Cause.CHAT_TEMPLATE, None),
    "numerics version": (put("numerics.version", 2), Cause.NUMERICS, None),
    "cache format": (put("numerics.k_format", "f32"), Cause.CACHE_FORMAT, None),
    "token that is none": (put("prompt_ids", at(0, lambda _: 10**6)), Cause.UNREADABLE, None),
    "wish that is none": (put("sampling.top_p", 7.0), Cause.UNREADABLE, None),
    "grammar that is none": (
        put("grammar", {"kind": "regex", "source": "(", "library": grammar_library()}),
        Cause.UNREADABLE,
        None,
    ),
    "kind of grammar": (put("grammar", {"kind": "poem", "source": "a"}), Cause.UNREADABLE, None),
    "grammar added": (put("grammar", {"kind": "regex", "source": "z{30}"}), Cause.SAMPLING, None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_even_if_the_receipt_was_sealed_again(llm: LLM, receipt: Receipt, name: str) -> None:
    change, cause, position = CHANGES[name]
    made = json.loads(receipt.to_json())
    change(made)
    found = verdict_on(llm, resealed(made))
    assert found.cause == cause, found
    if position is not None:
        assert found.position == position % len(made["answer"]["token_ids"])
    line = found.line(receipt, "cpu")
    assert line.startswith(("differs", "not checked", "no receipt that can be read"))
    assert "\n" not in line


@pytest.mark.parametrize(
    "change",
    [put("sampling.n", 5), put("model.name", "another"), put("sampling.max_tokens", 41), put("context_len", 99)],
)
def test_what_changes_no_bit_is_noticed_by_the_receipts_own_hash(
    llm: LLM, receipt: Receipt, change: Callable[[Json], None]
) -> None:
    made = json.loads(receipt.to_json())
    change(made)
    found = verdict_on(llm, from_json(json.dumps(made).encode()))
    assert (found.cause, found.num_tokens) == (Cause.SEAL, len(receipt.answer.token_ids))
    assert found.stated != found.computed


def test_the_receipt_itself_and_its_prefix_are_the_same_bits(llm: LLM, receipt: Receipt) -> None:
    found = verdict_on(llm, from_json(receipt.to_json()))
    count = len(receipt.answer.token_ids)
    assert is_same(found, count, count)
    said = f"same bits: {count} tokens, model random.gguf, numerics 1, cpu; end: stop, context 512 of 2048"
    assert found.line(receipt, "cpu") == said
    made = json.loads(receipt.to_json())
    put("answer.token_ids", at(7, another_id))(made)
    changed = resealed(made)
    assert is_same(llm.replay(changed, max_tokens=7)[0], 7, count)
    assert llm.replay(changed, max_tokens=8)[0].cause is Cause.TOKEN


def test_a_changed_grammar_is_named(llm: LLM, model_path: Path) -> None:
    receipt = grammar_receipt(llm, model_path, "(ab|cd){3}")
    assert verdict_on(llm, receipt).is_same
    assert receipt.answer.finish_reason == "stop"
    made = json.loads(receipt.to_json())
    made["grammar"]["source"] = "x[a-d]{6}"
    assert verdict_on(llm, resealed(made)).cause is Cause.SAMPLING
    made["grammar"] = None
    assert verdict_on(llm, resealed(made)).cause is Cause.SAMPLING


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("json_schema", '{"type":"array","items":{"enum":["ab","cd"]},"minItems":2,"maxItems":3}'),
        ("lark", 'start: ("ab" | "cd")+ "!"'),
        ("grammar", 'root ::= ("ab" | "cd") ("ef" | "gh")'),
    ],
)
def test_every_kind_of_grammar_is_followed_again(llm: LLM, model_path: Path, kind: str, source: str) -> None:
    receipt = from_json(grammar_receipt(llm, model_path, source, kind).to_json())
    found = verdict_on(llm, receipt)
    count = len(receipt.answer.token_ids)
    assert is_same(found, count, count)
    assert count > 3


def test_a_tier_below_portable_is_checked_where_it_was_made_alone(model_path: Path, llm: LLM, receipt: Receipt) -> None:
    made = json.loads(receipt.to_json())
    made["numerics"]["tier"] = "invariant"
    with pytest.raises(BadInput, match="place"):
        resealed(made)
    made["place"] = {"backend": "cpu", "device": "another", "build": "0"}
    found = verdict_on(llm, resealed(made))
    assert (found.cause, found.stated, found.computed, found.is_checked) == (
        Cause.TIER,
        "invariant",
        "portable",
        False,
    )
    weaker = LLM(model_path, context_len=512, numerics="invariant")
    here = weaker.generate([PROMPT], WISH)[0].receipt
    assert here is not None
    assert here.place is not None
    assert weaker.replay(here)[0].is_same
    elsewhere = replace(here, place=replace(here.place, device="another"))
    assert weaker.replay(elsewhere)[0].cause is Cause.PLACE


def test_a_signature_is_of_this_receipt_and_this_key(llm: LLM, receipt: Receipt, keys: tuple[Path, Path]) -> None:
    signed = sign(receipt, read_private_key(keys[0]))
    assert llm.replay(signed, public_key=keys[1])[0].is_same
    assert llm.replay(signed)[0].is_same
    made = json.loads(signed.to_json())
    made["sampling"]["n"] = 3
    for wrong in (resealed(made), receipt, replace(signed, signature=flipped(signed.signature or ""))):
        assert llm.replay(wrong, public_key=keys[1])[0].cause is Cause.SIGNATURE


def test_a_file_that_is_huge_or_has_more_fields_is_no_receipt(receipt: Receipt) -> None:
    made = json.loads(receipt.to_json())
    with pytest.raises(BadInput, match="field is 'more'"):
        resealed({**made, "more": 1})
    with pytest.raises(BadInput, match="size"):
        from_json(receipt.to_json() + b" " * MAX_BYTES)


def test_many_share_a_batch_and_each_has_its_own_verdict(llm: LLM, receipt: Receipt) -> None:
    steps = []
    made = json.loads(receipt.to_json())
    put("answer.token_ids", at(7, another_id))(made)
    others = [a.receipt for i in range(5) for a in llm.generate([PROMPT * (i + 1)], WISH)]
    several = [r for r in others if r] + [resealed(made), receipt]
    step = llm.engine.step
    llm.engine.step = lambda: (steps.append(1), step())[1]  # type: ignore[method-assign]
    try:
        found = llm.replay(several)
    finally:
        del llm.engine.step  # type: ignore[attr-defined]
    assert [v.is_same for v in found] == [True] * 10 + [False, True]
    assert len(steps) < sum(len(r.answer.token_ids) for r in several) / 4
    assert llm.engine.is_idle


def test_an_answer_that_was_cut_is_checked_as_far_as_it_goes(llm: LLM) -> None:
    job = llm.engine.generate(llm.encode(PROMPT), replace(WISH, n=1, min_tokens=30))
    for _ in range(6):
        llm.engine.step()
    llm.engine.cancel(job)
    cut = job.completions()[0].receipt
    assert cut is not None
    assert cut.answer.finish_reason == "cancelled"
    found = llm.replay(cut)[0]
    assert is_same(found, 6, 6)
    assert "; end: cancelled, which is not recomputed, context 512 of 2048" in found.line(cut, "cpu")
    short = llm.generate([PROMPT], SamplingParams(max_tokens=1, receipt=True))[0].receipt
    assert short is not None
    assert is_same(llm.replay(short)[0], 1, 1)


def test_an_answer_that_is_too_long_here_is_not_checked(model_path: Path, receipt: Receipt) -> None:
    small = LLM(model_path, context_len=16)
    found = small.replay(receipt)[0]
    assert (found.cause, found.is_checked) == (Cause.UNCHECKED, False)
