"""The routes that take a text and generate nothing: /v1/embeddings, /tokenize, /detokenize, /tokenizer_info."""

from __future__ import annotations

import base64

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from samebits.server.answers.engine_streams import all_vectors
from samebits.server.bodies.openai import DetokenizeBody, EmbeddingBody, TokenizeBody
from samebits.server.bodies.prompts import check_vocabulary, embedded_texts, short_enough, text_size
from samebits.server.bodies.reading import read_body
from samebits.server.http.errors import bad_request
from samebits.server.http.json_output import json_response
from samebits.server.http.threads import off_loop
from samebits.server.limits import MAX_DECODED_IDS, MAX_TOKENIZED_CHARS
from samebits.server.model import ServedModel


async def embeddings(request: Request) -> Response:
    """One vector of length 1 for each text."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, EmbeddingBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    texts = await off_loop(embedded_texts, text_size(body.input), served, body.input, "input")
    vectors = await all_vectors(request, served, texts, body.given("pooling", "mean"))
    count = sum(map(len, texts))

    def answer() -> dict[str, object]:
        as_text = body.encoding_format == "base64"
        data = [{"object": "embedding", "index": i, "embedding": _encoded(v, as_text)} for i, v in enumerate(vectors)]
        return {
            "object": "list",
            "data": data,
            "model": served.name,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }

    return await json_response(answer, sum(v.nbytes for v in vectors))


def _encoded(vector: np.ndarray, as_text: bool) -> str | list[float]:
    if as_text:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(x) for x in vector]


async def tokenize(request: Request) -> Response:
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, TokenizeBody, served.limits.max_body_bytes)
    if len(body.text) > MAX_TOKENIZED_CHARS:
        raise bad_request("text", f"{len(body.text)} characters", f"at most {MAX_TOKENIZED_CHARS}")
    wanted = (body.text, body.given("add_special", True), body.given("parse_special", True))
    tokens = await off_loop(short_enough, len(body.text), "text", served.llm.tokenizer.encode, *wanted)
    max_len = served.llm.max_len
    return await json_response(lambda: {"tokens": tokens, "count": len(tokens), "max_model_len": max_len}, len(tokens))


async def detokenize(request: Request) -> Response:
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, DetokenizeBody, served.limits.max_body_bytes)
    if len(body.tokens) > MAX_DECODED_IDS:
        raise bad_request("tokens", f"{len(body.tokens)} ids", f"at most {MAX_DECODED_IDS}", "invalid_value")
    check_vocabulary(served, body.tokens, "tokens")

    def answer() -> dict[str, str]:
        text = served.llm.tokenizer.decode(body.tokens)
        return {"text": text, "prompt": text}  # the second is vLLM's name for it

    return await json_response(answer, len(body.tokens))


async def tokenizer_info(request: Request) -> Response:
    """What clients need to make prompts of token ids: the texts of special tokens and the chat template."""
    served: ServedModel = request.app.state.served.ready()
    tokenizer, template = served.llm.tokenizer, served.llm.chat_template
    special = tokenizer.special
    named = {"bos_token": special.bos, "eos_token": special.eos, "pad_token": special.pad, "unk_token": special.unk}
    texts = {name: tokenizer.token_text(token) or None for name, token in named.items()}
    source = template.source if template else None
    return JSONResponse({**texts, "chat_template": source, "model_max_length": served.llm.max_len})
