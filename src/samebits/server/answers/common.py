"""What answers of OpenAI's routes share: how they start, what they say of their prompt, and names of tokens."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from samebits.engine.answer import Completion, Piece
from samebits.engine.job import Generation
from samebits.engine.sampling import SamplingParams
from samebits.loaders import Tokenizer
from samebits.server.model import ServedModel

CHARS_A_TOKEN = 10  # or so, in an answer


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode_bytes([token]).decode("utf-8", "replace")


def envelope(served: ServedModel, prefix: str, request_id: str, kind: str, job: Generation) -> dict[str, Any]:
    """What every answer and chunk starts with; the seed, drawn or given, is that of all choices."""
    return {
        "id": prefix + request_id,
        "object": kind,
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
        "seed": job.params.seed,
    }


def logits_hash(answer: Completion | Piece) -> dict[str, str]:
    """The hash over a choice's logits, where asked for; in a stream the last piece has it."""
    return {"logits_sha256": answer.logits_sha256} if answer.logits_sha256 else {}


def token_ids(ids: Iterable[int | None]) -> dict[str, list[int]]:
    """The ids of a choice's tokens, or of those that a chunk brings."""
    return {"token_ids": [token for token in ids if token is not None]}


def of_prompt(tokenizer: Tokenizer, job: Generation) -> dict[str, Any]:
    """Log-probabilities of a prompt in vLLM's shape, where asked for: by token id, null for the first token."""
    found = job.prompt_logprobs
    if found is None:
        return {}

    def entry(token: int, logprob: float) -> dict[str, Any]:
        return {"logprob": logprob, "decoded_token": token_text(tokenizer, token)}

    following = zip(job.prompt.tolist()[1:], found.token_logprobs, found.top, strict=False)
    rows = [{str(t): entry(t, value) for t, value in ((token, chosen), *top)} for token, chosen, top in following]
    return {"prompt_logprobs": [None, *rows]}


def answer_size(params: SamplingParams, usage: dict[str, int]) -> int:
    """Characters of a whole answer, or so."""
    num_named = usage["completion_tokens"] * (1 + (params.logprobs or 0))
    if params.prompt_logprobs is not None:
        num_named += usage["prompt_tokens"] * (1 + params.prompt_logprobs)
    return num_named * CHARS_A_TOKEN
