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
        ({"stop": [1, 2]}, "stop: got 1; needs texts"),
        ({"stop": 50256}, "stop: got 50256; needs texts"),
        ({"stop": b"x"}, "stop: got b'x'; needs texts"),
        ({"stop": ["a", ""]}, "stop: got an empty text"),
        ({"max_tokens": 3.5}, "max_tokens: got 3.5; needs a whole number"),
        ({"max_tokens": None}, "max_tokens: got None; needs a whole number"),
        ({"max_tokens": True}, "max_tokens: got True; needs a whole number"),
        ({"temperature": "0"}, "temperature: got '0'; needs a number"),
        ({"temperature": float("nan")}, "temperature: got nan; needs 0 .."),
        ({"logprobs": True}, "logprobs: got True; needs a whole number, 0 .. 128"),
        ({"seed": -1}, "seed: got -1; needs "),
        ({"seed": "7"}, "seed: got '7'; needs a whole number"),
        ({"n": 0}, "n: got 0; needs 1 .. 128"),
        ({"ignore_eos": "no"}, "ignore_eos: got 'no'; needs True or False"),
        ({"hash_logits": 1}, "hash_logits: got 1; needs True or False"),
        ({"logit_bias": [(1, 2)]}, "logit_bias: got [(1, 2)]; needs numbers by token id"),
        ({"logit_bias": {"x": 1}}, "logit_bias's token: got 'x'"),
        ({"logit_bias": {1: "much"}}, "logit_bias: got 'much'; needs a number"),
    ],
)
def test_wishes_that_cannot_be_meant_are_refused(wishes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        SamplingParams(**wishes)
    assert str(caught.value).startswith(f"sampling: {message}")


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
    "a number": (lambda m: m.generate(5), "generate: prompt: got int; needs a text or token ids"),
    "bytes": (lambda m: m.generate(b"hi"), "generate: prompt: got bytes; needs a text"),
    "messages": (
        lambda m: m.generate([{"role": "user", "content": "hi"}]),
        "generate: prompt: got messages; needs a text or token ids; LLM.chat takes messages",
    ),
    "part of a token": (lambda m: m.generate([[1.7]]), "generate: token id: got 1.7; needs a whole number"),
    "an unknown token": (lambda m: m.generate([[1, 9999]]), "generate: token id: got 9999; needs 0 .."),
    "nothing to continue": (lambda m: m.generate([[]]), "generate: prompt: got no tokens"),
    "parameters that are none": (lambda m: m.generate("hi", 5), "generate: params: got int; needs SamplingParams"),
    "a misspelt wish": (lambda m: m.generate("hi", {"max_token": 5}), "generate: params: got 'max_token'; needs names"),
    "too few wishes": (lambda m: m.generate(["a", "b"], [GREEDY]), "generate: params: got 1 for 2 prompts"),
    "several to stream": (lambda m: m.stream(["a", "b"]), "stream: prompt: got a list of 2 prompts; needs one"),
    "several answers to stream": (lambda m: m.stream("a", {"n": 2}), "stream: n: got 2; needs 1; generate gives"),
    "several answers to chat": (lambda m: m.chat("a", {"n": 2}), "chat: n: got 2; needs 1"),
    "several to score": (lambda m: m.score(["a", "b"]), "score: prompt: got a list of 2 prompts; needs one"),
    "no messages": (lambda m: m.chat([]), "chat: messages: got none; needs messages such as"),
    "texts as messages": (lambda m: m.chat(["hi"]), "chat: messages: got 'hi'; needs messages such as"),
    "no role": (lambda m: m.chat([{"content": "hi"}]), "chat: messages: got {'content': 'hi'}; needs messages such as"),
    "nothing to embed": (lambda m: m.embed([]), "embed: texts: got none"),
    "a list to encode": (lambda m: m.encode(["hi"]), "encode: text: got list; needs a text"),
    "an odd top_k": (lambda m: m.score("hi", top_k=-1), "score: top_k: got -1; needs "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_in_a_line(llm: LLM, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput) as caught:
        call(llm)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert llm.engine.is_idle


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_pages": 0}, "LLM: num_pages: got 0; needs "),
        ({"context_len": "2048"}, "LLM: context_len: got '2048'; needs a whole number"),
        ({"threads": 0.5}, "LLM: threads: got 0.5; needs a whole number"),
        ({"max_sequences": True}, "LLM: max_sequences: got True; needs a whole number"),
        ({"share_prefixes": "no"}, "LLM: share_prefixes: got 'no'; needs True or False"),
        ({"backend": 3}, "LLM: backend: got 3; needs a name"),
        ({"numerics": 3}, "LLM: numerics: got 3; needs a name"),
        ({"prefill_budget": "8"}, "scheduler: prefill_budget: got 8; needs 'dynamic'"),
        ({"prefill_budget": 8.5}, "scheduler: prefill_budget: got 8.5; needs 'dynamic'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        LLM("never-opened", **settings)
    assert str(caught.value).startswith(message)
