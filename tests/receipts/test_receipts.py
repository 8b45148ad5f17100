"""Receipts of answers: what they say, that nothing else changes them, and how they are read back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path

import jsonschema_rs
import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput
from samebits.engine.notary import NOT_STATED, params_of, sampling_of
from samebits.receipts.chain import START, LogitsChain, row_digest, row_digests
from samebits.receipts.record import MAX_BYTES, Receipt, Sampling, from_json, schema

PROMPT = "hello hi aaaa, what is this?"
WISH = SamplingParams(max_tokens=12, temperature=0.9, seed=7, ignore_eos=True, receipt=True)


@pytest.fixture(scope="module")
def receipt(llm: LLM) -> Receipt:
    found = llm.generate([PROMPT], WISH)[0].receipt
    assert found is not None
    return found


def test_a_link_is_the_hash_of_the_one_before_and_of_a_row() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    chain = LogitsChain()
    for row in rows:
        chain.update(row_digest(row))
    digests = [hashlib.sha256(row.astype("<f4").tobytes()).digest() for row in rows]
    assert row_digests(rows) == digests
    first = hashlib.sha256(START + digests[0])
    second = hashlib.sha256(first.digest() + digests[1])
    assert chain.links == [first.hexdigest(), second.hexdigest()]
    again = LogitsChain(first.digest())
    again.update(digests[1])
    assert again.links == [second.hexdigest()]


def test_there_is_none_of_a_tier_whose_bits_depend_on_the_batch(model_path: Path) -> None:
    llm = LLM(model_path, context_len=64, numerics="fast")
    with pytest.raises(BadInput, match="receipt is fast numerics, but must be invariant or portable"):
        llm.generate([PROMPT], WISH)


def test_it_says_what_was_asked_and_what_came_of_it(llm: LLM, receipt: Receipt, model_path: Path) -> None:
    answer = llm.generate([PROMPT], WISH)[0]
    said = receipt.answer
    assert list(receipt.prompt_ids) == llm.encode(PROMPT)
    assert (said.token_ids, said.finish_reason) == (answer.token_ids, "length")
    assert said.text_sha256 == hashlib.sha256(answer.text.encode()).hexdigest()
    assert receipt.model.weights_sha256 == hashlib.sha256(model_path.read_bytes()).hexdigest()
    assert (receipt.model.name, receipt.place, receipt.context_len) == ("random.gguf", None, 512)
    assert (receipt.numerics.version, receipt.numerics.tier) == (1, "portable")
    assert params_of(receipt.sampling) == replace(WISH, receipt=False).resolved(llm.sampling_defaults)
    assert len(set(said.links)) == 12


def test_a_drawn_seed_is_in_it(llm: LLM) -> None:
    answer = llm.generate([PROMPT], replace(WISH, seed=None, max_tokens=1))[0]
    assert answer.receipt is not None
    assert answer.receipt.sampling.seed == answer.seed


def test_the_batch_around_it_and_the_chunks_of_its_prompt_change_nothing(
    llm: LLM, receipt: Receipt, model_path: Path
) -> None:
    others = [(PROMPT + str(i)) * (i + 1) for i in range(6)]
    among = llm.generate([*others, PROMPT], WISH)[-1].receipt
    small = LLM(model_path, context_len=512, max_batch_tokens=8, page_size=4, max_sequences=2)
    alone = small.generate([PROMPT], WISH)[0].receipt
    assert among is not None
    assert alone is not None
    assert receipt.to_json() == among.to_json() == alone.to_json()


def test_every_sample_has_its_own(llm: LLM) -> None:
    found = [a.receipt for a in llm.generate([PROMPT], replace(WISH, n=3))]
    assert [r.sample_index for r in found if r] == [0, 1, 2]
    assert len({r.answer.links[-1] for r in found if r}) == 3
    assert len({r.answer.links[0] for r in found if r}) == 1


def test_the_last_piece_of_a_stream_has_it_and_no_other(llm: LLM, receipt: Receipt) -> None:
    *others, last = llm.stream(PROMPT, WISH)
    assert last.receipt == receipt
    assert all(piece.receipt is None for piece in others)


def test_an_answer_that_was_cut_has_one_and_one_that_failed_has_none(llm: LLM) -> None:
    job = llm.engine.generate(llm.encode(PROMPT), WISH)
    for _ in range(3):
        llm.engine.step()
    llm.engine.cancel(job)
    cut = job.completions()[0].receipt
    assert cut is not None
    assert cut.answer.finish_reason == "cancelled"
    assert 0 < len(cut.answer.links) < 12
    failed = llm.engine.generate(llm.encode(PROMPT), WISH)
    llm.engine._fail(failed, "a fault")
    assert failed.events[-1][1].receipt is None


def test_nothing_is_made_where_none_is_asked_for(llm: LLM) -> None:
    job = llm.engine.generate(llm.encode(PROMPT), replace(WISH, receipt=False))
    llm.engine.complete(job)
    assert job.answers[0].chain is None
    assert job.completions()[0].receipt is None


def test_every_wish_is_stated_or_changes_no_answer() -> None:
    stated = {f.name for f in fields(Sampling)}
    assert stated | set(NOT_STATED) == {f.name for f in fields(SamplingParams)}
    assert not stated & set(NOT_STATED)


def test_wishes_come_back_as_they_were() -> None:
    wish = SamplingParams(
        temperature=0.1, top_p=0.3, logit_bias={9: -1.5, 3: 2.0}, seed=2**64 - 1, stop=("a", "\ud800"), n=2
    )
    wish = replace(wish, allowed_token_ids=(3, 9), shown_ids=frozenset({5, 4}), bad_words="no", max_tokens=9)
    assert params_of(sampling_of(wish)) == wish


def test_json_is_canonical_and_comes_back(receipt: Receipt) -> None:
    data = receipt.to_json()
    assert from_json(data).to_json() == data
    loose = json.dumps(json.loads(data), indent=2).encode()
    assert from_json(loose).to_json() == data
    assert list(json.loads(data)) == sorted(json.loads(data))
    assert b" " not in data.replace(PROMPT.encode(), b"")
    body = {k: v for k, v in json.loads(data).items() if k != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert json.loads(data)["sha256"] == hashlib.sha256(text.encode()).hexdigest() == receipt.computed_sha256()


def test_the_schema_takes_it_and_refuses_others(receipt: Receipt) -> None:
    check = jsonschema_rs.validator_for(schema())
    made = json.loads(receipt.to_json())
    assert check.is_valid(made)
    assert not check.is_valid({**made, "more": 1})
    assert not check.is_valid({**made, "sample_index": -1})
    assert not check.is_valid({k: v for k, v in made.items() if k != "sha256"})


def changed(receipt: Receipt, path: str, value: object) -> bytes:
    made = json.loads(receipt.to_json())
    part = made
    *before, last = path.split(".")
    for key in before:
        part = part[key]
    part[last] = value
    return json.dumps(made).encode()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", 2, "version is 2, but must be 1"),
        ("more", 1, "field is 'more'"),
        ("model.more", 1, "model.field is 'more'"),
        ("model.weights_sha256", "ab", "model.weights_sha256 is 'ab', but must be 64 hex digits"),
        ("model.name", "x" * 2000, "model.name"),
        ("numerics.tier", "exact", "one of invariant, portable"),
        ("numerics.tier", "fast", "one of invariant, portable"),
        ("numerics.tier", "invariant", "place is missing"),
        ("sampling.seed", 2**64, "sampling.seed"),
        ("sampling.temperature", "hot", "sampling.temperature is 'hot', but must be a number"),
        ("sampling.temperature", 10**400, "sampling.temperature"),
        ("sampling.ignore_eos", 1, "true or false"),
        ("sampling.logit_bias", [[1, 2, 3]], "must have pairs"),
        ("sampling", [], "sampling has 0 items, but must have an object"),
        ("sample_index", True, "a whole number"),
        ("sample_index", 1, "less than n"),
        ("prompt_ids", [], "at least one"),
        ("prompt_ids", [1.5], "prompt_ids is 1.5"),
        ("answer.token_ids", [1], "answer.links is 12, but must be 1"),
        ("answer.finish_reason", "tired", "one of stop, length, cancelled, deadline"),
        ("sha256", None, "sha256"),
        ("signature", "ab", "128 hex digits"),
    ],
)
def test_what_is_no_receipt_is_refused_in_a_line(receipt: Receipt, path: str, value: object, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        from_json(changed(receipt, path, value))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_json_object_are_refused() -> None:
    for data in (b"", b"[]", b"{", b"\xff", b'{"version":1,"version":1}', b'{"version":1}', b"[" * 100_000):
        with pytest.raises(BadInput):
            from_json(data)
    with pytest.raises(BadInput, match="size"):
        from_json(b" " * (MAX_BYTES + 1))
