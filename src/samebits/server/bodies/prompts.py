"""Prompts and texts of a body as token ids, never more than the context holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from samebits.loaders.tokenizer import TextTooLong
from samebits.server.bodies.openai import CompletionBody, Sampling
from samebits.server.http.errors import bad_request
from samebits.server.limits import MAX_TOKENIZED_CHARS
from samebits.server.model import ServedModel


def text_size(given: Any) -> int:
    """Return the number of characters to encode and of token ids to check."""
    if not given or isinstance(given, str) or isinstance(given[0], int):
        return len(given or ())
    return sum(map(len, given))


def token_lists(
    served: ServedModel, given: Any, param: str, encode: Callable[[str], list[int]] | None = None
) -> list[list[int]]:
    """The prompts of a call as token ids; ApiError for none or too many, or for one that the context cannot hold."""
    encode = encode or partial(short_enough, param, served.llm.encode)
    items = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
    if not given or len(items) > served.limits.max_prompts:
        raise bad_request(param, f"{len(items) if given else 0} texts", f"1 to {served.limits.max_prompts}")
    return [encode(item) if isinstance(item, str) else list(item) for item in items]


def embedded_texts(served: ServedModel, given: Any, param: str) -> list[list[int]]:
    """Return the token ids of texts to embed; ApiError if any of them cannot be embedded, before one is started."""
    texts = token_lists(served, given, param)
    for ids in texts:
        if not ids:
            raise bad_request(param, "a text without tokens", "at least one token in each text", "invalid_value")
        if len(ids) > served.llm.max_len:
            needed = f"at most {served.llm.max_len} in each text"
            raise bad_request(param, f"{len(ids)} tokens", needed, "context_length_exceeded")
        check_vocabulary(served, ids, param)
    return texts


def check_vocabulary(served: ServedModel, ids: list[int], param: str) -> None:
    """Raise ApiError if the model has no token of one of the ids. No id is negative."""
    largest, num_ids = max(ids, default=0), served.llm.vocab_size
    if largest >= num_ids:
        raise bad_request(param, f"the token id {largest}", f"ids from 0 to {num_ids - 1}", "invalid_value")


def short_enough(param: str, encode: Callable[..., list[int]], *args: Any) -> list[int]:
    """The token ids that `encode` gives; ApiError for a text that the context cannot hold."""
    try:
        return encode(*args)
    except TextTooLong as error:
        raise bad_request(param, error.given, error.needed, "context_length_exceeded") from None


def prompts_of(served: ServedModel, body: CompletionBody) -> list[list[int]]:
    """The prompts of a completion, cut to their last tokens where it asks for that; a longer text may come then."""
    add_special = body.given("add_special_tokens", True)

    def encode(text: str) -> list[int]:
        if body.truncate_prompt_tokens is None:
            return short_enough("prompt", served.llm.encode, text, add_special)
        if len(text) > MAX_TOKENIZED_CHARS:
            raise bad_request("prompt", f"{len(text)} characters", f"at most {MAX_TOKENIZED_CHARS}")
        return served.llm.tokenizer.encode(text, add_special)

    prompts = [last_tokens(ids, body, served) for ids in token_lists(served, body.prompt, "prompt", encode)]
    for ids in prompts:
        check_vocabulary(served, ids, "prompt")
    return prompts


def last_tokens(ids: list[int], body: Sampling, served: ServedModel) -> list[int]:
    """As much of a prompt's end as the request asks for, all of it where it does not."""
    count = body.truncate_prompt_tokens
    if count is None:
        return ids
    return ids[-(served.llm.max_len - 1 if count == -1 else max(count, 1)) :]
