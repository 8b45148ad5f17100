"""What a refusal says: the argument, what is wrong, and the limit, in one English sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.core.errors import ABSENT, BadInput, as_given, refusal

SENTENCES = [
    (("generate", "temperature", -1, "0 .. 2"), "temperature is -1, but must be from 0 to 2"),
    (("score", "prompt", "500 tokens", "fewer than 128"), "prompt has 500 tokens, but must have fewer than 128"),
    (("gemm", "weight", "shape 4x4", "shape 4x8"), "gemm: weight has shape 4x4, but must have shape 4x8"),
    (("ragged", "indptr", "5 at 3", "0 .. 4"), "ragged: indptr is 5 at 3, but must be from 0 to 4"),
    (("m.gguf", "head_count", "nothing", "an integer"), "m.gguf: head_count is missing: it must be an integer"),
    (("chat", "messages", "nothing", "a value"), "messages is missing"),
    (("x.json", "warp", 2, "no such key: llama has none"), "x.json: warp is 2, which is not supported: llama has none"),
    (("chat", "tools", 3, "nothing"), "tools is 3, which is not supported"),
    (("chat", "-m and -p", "both", "one of them"), "-m and -p are both given: give one of them"),
    (("serve", "--topic", "kv", "--events as well"), "--topic is kv, but needs --events as well"),
    (("audit", "DIR", "No such file", "a folder"), "audit: DIR: No such file; it must be a folder"),
    (("trace", "--tokens", 129, "1 to 128"), "--tokens is 129, but must be from 1 to 128"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentence"), SENTENCES, ids=[row[1] for row in SENTENCES])
def test_a_refusal_is_a_sentence(arguments: tuple[str, str, object, str], sentence: str) -> None:
    assert str(BadInput(*arguments)) == sentence


WORDS = st.text("abc 12.-'", min_size=1, max_size=12)


@given(where=WORDS, argument=WORDS, got=WORDS, needed=WORDS, name=WORDS)
def test_an_argument_may_be_named_otherwise(where: str, argument: str, got: str, needed: str, name: str) -> None:
    error = BadInput(where, argument, got, needed)
    assert str(error).endswith(error.sentence(argument))
    assert error.sentence(name).startswith(name)
    assert error.sentence(name).removeprefix(name) == error.sentence(argument).removeprefix(argument)
    assert (error.given, error.needed) == (got, needed)


@pytest.mark.parametrize("text", [*ABSENT, "both", "5 apples", "the row", "Hello world"])
def test_a_user_s_text_is_not_read_as_words_of_a_refusal(text: str) -> None:
    assert refusal("--routing", as_given(text), "prefix") == f"--routing is '{text}', but must be prefix"


@pytest.mark.parametrize("text", ["xml", "tcp://nowhere", "8", "null.example"])
def test_a_user_s_text_that_cannot_be_mistaken_has_no_quotes(text: str) -> None:
    assert as_given(text) == text


def test_both_are_two_arguments() -> None:
    assert refusal("-ngl", "both", "0 or all") == "-ngl is both, but must be 0 or all"
