"""What a person gives to LLM and SamplingParams is read as it is meant, or refused in a line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
GREEDY = {"max_tokens": 4, "temperature": 0, "seed": 1}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    from gguf_writer import tiny_model

    return LLM(tiny_model().write(tmp_path_factory.mktemp("arguments") / "tiny.gguf"), max_sequences=4)


@pytest.mark.parametrize("stop", ["United", ["United"], ("United",), iter(["United"])])
def test_a_text_is_one_stop(stop: Any) -> None:
    assert SamplingParams(stop=stop).stops == ("United",)


def test_a_stop_text_ends_an_answer_where_it_stands_whole(llm: LLM) -> None:
    letters = {llm.encode(letter)[0]: 50.0 for letter in "abcd"}
    wishes = {"max_tokens": 24, "temperature": 1, "seed": 3, "logit_bias": letters, "ignore_eos": True}
    whole = llm.generate("hi", wishes)[0].text
    stop = whole[-3:]  # its letters alone occur before
    assert whole.index(stop) > 6
    assert llm.generate("hi", {**wishes, "stop": stop})[0].text == whole[: whole.index(stop)]


def test_numbers_of_numpy_are_numbers() -> None:
    params = SamplingParams(max_tokens=np.int64(3), temperature=np.float32(0.5), seed=np.uint64(2**63))
    assert (params.max_tokens, params.temperature, params.seed) == (3, 0.5, 2**63)
    assert type(params.max_tokens) is int


def test_biases_may_have_the_keys_of_json() -> None:
    assert SamplingParams(logit_bias={"42": 1}).logit_bias == {42: 1.0}


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"stop": [1, 2]}, "stop is 1, but must be texts"),
        ({"stop": 50256}, "stop is 50256, but must be texts"),
        ({"stop": b"x"}, "stop is b'x', but must be texts"),
        ({"stop": ["a", ""]}, "stop is an empty text"),
        ({"max_tokens": 3.5}, "max_tokens is 3.5, but must be a whole number"),
        ({"max_tokens": None}, "max_tokens is None, but must be a whole number"),
        ({"max_tokens": True}, "max_tokens is True, but must be a whole number"),
        ({"temperature": "0"}, "temperature is '0', but must be a number"),
        ({"temperature": float("nan")}, "temperature is nan, but must be from 0"),
        ({"logprobs": True}, "logprobs is True, but must be a whole number, from 0 to 128"),
        ({"seed": -1}, "seed is -1, but must be "),
        ({"seed": "7"}, "seed is '7', but must be a whole number"),
        ({"n": 0}, "n is 0, but must be from 1 to 128"),
        ({"ignore_eos": "no"}, "ignore_eos is 'no', but must be True or False"),
        ({"hash_logits": 1}, "hash_logits is 1, but must be True or False"),
        ({"logit_bias": [(1, 2)]}, "logit_bias is [(1, 2)], but must be numbers by token id"),
        ({"logit_bias": {"x": 1}}, "logit_bias's token is 'x'"),
        ({"logit_bias": {1: "much"}}, "logit_bias is 'much', but must be a number"),
        ({"max_tokens": 10**5000}, "max_tokens is a number of 16610 bits, but must be from 0 to 1048576"),
        ({"temperature": 10**5000}, "temperature is a number of 16610 bits, but must be a number, from 0"),
        ({"logit_bias": "x" * 10**6}, f"logit_bias is '{'x' * 79}..., but must be numbers by token id"),
    ],
)
def test_wishes_that_cannot_be_meant_are_refused(wishes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        SamplingParams(**wishes)
    assert str(caught.value).startswith(message)


def test_parameters_may_be_a_dict_or_a_list(llm: LLM) -> None:
    alone = [llm.generate(["hi"], SamplingParams(**GREEDY))[0], llm.generate(["a"], {**GREEDY, "max_tokens": 2})[0]]
    assert llm.generate(["hi", "a"], [GREEDY, SamplingParams(**{**GREEDY, "max_tokens": 2})]) == alone
    assert [len(a.token_ids) for a in alone] == [4, 2]


def test_ids_may_be_arrays_and_prompts_an_iterator(llm: LLM) -> None:
    ids = llm.encode("hi hi")
    expected = llm.generate([ids], GREEDY)
    assert llm.generate(ids, GREEDY) == llm.generate(np.array(ids), GREEDY) == expected
    assert llm.generate([np.array(ids, np.int32)], GREEDY) == expected
    assert llm.generate(iter(["hi hi"]), GREEDY) == expected
    assert llm.generate([], GREEDY) == []


def test_embed_takes_one_text_or_several(llm: LLM) -> None:
    alone = [llm.embed("hi"), llm.embed("hi hi")]
    assert alone[0].shape == (64,)
    assert np.array_equal(llm.embed(["hi", "hi hi"]), np.stack(alone))
    assert llm.embed(["hi"]).shape == (1, 64)
    assert np.array_equal(llm.embed(llm.encode("hi")), alone[0])


def test_chat_takes_a_text_a_message_or_a_conversation(llm: LLM) -> None:
    message = {"role": "user", "content": "hi"}
    expected = llm.chat([message], GREEDY)
    assert llm.chat("hi", GREEDY) == llm.chat(message, GREEDY) == expected


REFUSED: dict[str, tuple[Callable[[LLM], Any], str]] = {
    "a number": (lambda m: m.generate(5), "prompt is int, but must be a text or token ids"),
    "bytes": (lambda m: m.generate(b"hi"), "prompt is bytes, but must be a text"),
    "messages": (
        lambda m: m.generate([{"role": "user", "content": "hi"}]),
        "prompt is messages, but must be a text or token ids; LLM.chat takes messages",
    ),
    "part of a token": (lambda m: m.generate([[1.7]]), "token id is 1.7, but must be a whole number"),
    "an unknown token": (lambda m: m.generate([[1, 9999]]), "token id is 9999, but must be from 0"),
    "nothing to continue": (lambda m: m.generate([[]]), "prompt is no tokens"),
    "parameters of another type": (lambda m: m.generate("hi", 5), "params is int, but must be SamplingParams"),
    "a misspelt parameter": (
        lambda m: m.generate("hi", {"max_token": 5}),
        "params is 'max_token', but must be one of max_tokens",
    ),
    "too few parameters": (lambda m: m.generate(["a", "b"], [GREEDY]), "params is 1 for 2 prompts"),
    "several to stream": (lambda m: m.stream(["a", "b"]), "prompt is a list of 2 prompts, but must be one"),
    "several answers to stream": (lambda m: m.stream("a", {"n": 2}), "n is 2, but must be 1; generate gives"),
    "several answers to chat": (lambda m: m.chat("a", {"n": 2}), "n is 2, but must be 1"),
    "several to score": (lambda m: m.score(["a", "b"]), "prompt is a list of 2 prompts, but must be one"),
    "no messages": (lambda m: m.chat([]), "messages is missing: it must be messages such as"),
    "texts as messages": (lambda m: m.chat(["hi"]), "messages is 'hi', but must be messages such as"),
    "no role": (
        lambda m: m.chat([{"content": "hi"}]),
        "messages is {'content': 'hi'}, but must be messages such as",
    ),
    "nothing to embed": (lambda m: m.embed([]), "texts is missing"),
    "a list to encode": (lambda m: m.encode(["hi"]), "text is list, but must be a text"),
    "an odd top_k": (lambda m: m.score("hi", top_k=-1), "top_k is -1, but must be "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_in_a_line(llm: LLM, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput) as caught:
        call(llm)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert llm.engine.is_idle


@pytest.mark.parametrize("model", [None, 5, b"model.gguf", "", ["smollm2"]])
def test_a_model_has_a_name_or_a_path(model: Any) -> None:
    with pytest.raises(BadInput, match=r"model is .*, but must be a name, a path or an address"):
        LLM(model)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_pages": 0}, "num_pages is 0, but must be "),
        ({"context_len": "2048"}, "context_len is '2048', but must be a whole number"),
        ({"threads": 0.5}, "threads is 0.5, but must be a whole number"),
        ({"max_sequences": True}, "max_sequences is True, but must be a whole number"),
        ({"share_prefixes": "no"}, "share_prefixes is 'no', but must be True or False"),
        ({"backend": 3}, "backend is 3, but must be a name"),
        ({"numerics": 3}, "numerics is 3, but must be a name"),
        ({"prefill_budget": "8"}, "prefill_budget is '8', but must be 'dynamic'"),
        ({"prefill_budget": True}, "prefill_budget is True, but must be a whole number, from 1"),
        ({"prefill_budget": 10**30}, "prefill_budget is 1000000000000000000000000000000, but must be from 1"),
        ({"prefill_budget": 8.5}, "prefill_budget is 8.5, but must be a whole number, from 1"),
        ({"numerics": "none"}, "numerics tier is 'none', but must be one of fast, invariant, portable"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        LLM("never-opened", **settings)
    assert str(caught.value).startswith(message)
