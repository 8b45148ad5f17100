"""What answers of OpenAI's routes share: how they start, what they say of their prompt, and names of tokens."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from samebits.engine.answer import Completion, Piece
from samebits.engine.sampling import SamplingParams
from samebits.loaders import Tokenizer
from samebits.server.engines import Answering
from samebits.server.model import ServedModel
from samebits.server.receipts import ReceiptDesk

CHARS_A_TOKEN, CHARS_A_LINK = 10, 80  # or so, in an answer and in a receipt


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode_bytes([token]).decode("utf-8", "replace")


def envelope(served: ServedModel, prefix: str, request_id: str, kind: str, job: Answering) -> dict[str, Any]:
    """What every answer and chunk starts with; the seed, drawn or given, is that of all choices."""
    return {
        "id": prefix + request_id,
        "object": kind,
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
        "seed": job.params.seed,
    }


def proofs(answer: Completion | Piece, desk: ReceiptDesk | None) -> dict[str, Any]:
    """The hash over a choice's logits and its receipt, each where asked for; in a stream the last piece has them.

    desk   hands receipts out; None where none is asked for
    """
    told: dict[str, Any] = {"logits_sha256": answer.logits_sha256} if answer.logits_sha256 else {}
    if desk is not None and answer.receipt is not None:
        told["receipt"] = desk.sealed(answer.receipt).as_dict()
    return told


def token_ids(ids: Iterable[int | None]) -> dict[str, list[int]]:
    """The ids of a choice's tokens, or of those that a chunk brings."""
    return {"token_ids": [token for token in ids if token is not None]}


def of_prompt(tokenizer: Tokenizer, job: Answering) -> dict[str, Any]:
    """Log-probabilities of a prompt in vLLM's shape, where asked for: by token id, null for the first token."""
    found = job.prompt_logprobs
    if found is None:
        return {}

    def entry(token: int, logprob: float) -> dict[str, Any]:
        return {"logprob": logprob, "decoded_token": token_text(tokenizer, token)}

    following = zip(job.prompt.tolist()[1:], found.token_logprobs, found.top, strict=False)
    rows = [{str(t): entry(t, value) for t, value in ((token, chosen), *top)} for token, chosen, top in following]
    return {"prompt_logprobs": [None, *rows]}


def answer_size(params: SamplingParams, usage: dict[str, int], num_echoed: int = 0) -> int:
    """Return the approximate number of characters of a whole answer that echoes so many tokens of prompts."""
    num_named = num_echoed + usage["completion_tokens"] * (1 + (params.logprobs or 0))
    if params.prompt_logprobs is not None:
        num_named += usage["prompt_tokens"] * (1 + params.prompt_logprobs)
    num_chars = num_named * CHARS_A_TOKEN
    return num_chars + (CHARS_A_LINK * usage["completion_tokens"] if params.receipt else 0)
