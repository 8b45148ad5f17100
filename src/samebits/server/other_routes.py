"""Embeddings, tokens, models, health, metrics, and what the page looks at."""

from __future__ import annotations

import asyncio
import base64
from importlib.resources import files

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from samebits.engine.async_engine import QueueFull
from samebits.engine.engine import Engine
from samebits.server.asking import read_body, while_connected
from samebits.server.errors import bad_request, busy
from samebits.server.generating import check_model, short_enough, text_size, token_lists
from samebits.server.json_output import json_response
from samebits.server.limits import MAX_DECODED_IDS, MAX_TOKENIZED_CHARS
from samebits.server.model import READY, ServedModel
from samebits.server.protocol import DetokenizeBody, EmbeddingBody, TokenizeBody
from samebits.server.threads import off_loop

SHOWN_SLOTS = 256


async def embeddings(request: Request) -> Response:
    """One vector of length 1 for each text."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, EmbeddingBody, served.limits.max_body_bytes)
    check_model(served, body.model)
    texts = await off_loop(token_lists, text_size(body.input), served, body.input, "input")
    pooling = body.given("pooling", "mean")
    try:
        work = asyncio.gather(*(served.engine.embed(ids, pooling) for ids in texts))
        vectors = await while_connected(request, work)
    except QueueFull as error:
        raise busy(f"the server is busy: {error}") from None
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
    encode, wanted = served.llm.tokenizer.encode, (body.text, body.add_special, body.parse_special)
    tokens = await off_loop(short_enough, len(body.text), "text", encode, *wanted)
    max_len = served.llm.engine.max_len
    return await json_response(lambda: {"tokens": tokens, "count": len(tokens), "max_model_len": max_len}, len(tokens))


async def detokenize(request: Request) -> Response:
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, DetokenizeBody, served.limits.max_body_bytes)
    if len(body.tokens) > MAX_DECODED_IDS:
        raise bad_request("tokens", f"{len(body.tokens)} ids", f"at most {MAX_DECODED_IDS}", "invalid_value")
    return await json_response(lambda: {"text": served.llm.tokenizer.decode(body.tokens)}, len(body.tokens))


async def models(request: Request) -> Response:
    served: ServedModel = request.app.state.served
    return JSONResponse({"object": "list", "data": [_model_card(served)]})


async def model(request: Request) -> Response:
    served: ServedModel = request.app.state.served
    check_model(served, request.path_params["name"])
    return JSONResponse(_model_card(served))


def _model_card(served: ServedModel) -> dict[str, object]:
    card: dict[str, object] = {"id": served.name, "object": "model", "created": served.created, "owned_by": "samebits"}
    if served.state == READY:
        card |= {"max_model_len": served.llm.engine.max_len, "system_fingerprint": served.fingerprint}
    return card


async def health(request: Request) -> Response:
    """200 when requests can be answered, else 503 with the reason."""
    served: ServedModel = request.app.state.served
    state = served.state
    return JSONResponse({"status": state, "reason": served.reason}, 200 if state == READY else 503)


async def metrics(request: Request) -> Response:
    served: ServedModel = request.app.state.served
    engine = served.llm.engine if served.state == READY else None
    return Response(request.app.state.metrics.text(engine), media_type=CONTENT_TYPE_LATEST)


async def state(request: Request) -> Response:
    """What the page draws: pages, sequences under way, the last steps."""
    served: ServedModel = request.app.state.served.ready()
    seen = await served.engine.look(_seen)
    steps = list(request.app.state.metrics.last_steps)
    return JSONResponse({"model": served.name, "fingerprint": served.fingerprint, **seen, "steps": steps})


def _seen(engine: Engine) -> dict[str, object]:
    scheduler, pages = engine.scheduler, engine.scheduler.pages
    sequences = [
        {
            "known": int(scheduler.slots.known[s.slot]),
            "computed": int(scheduler.slots.computed[s.slot]),
            "pages": int(pages.num_held[s.slot]),
            "cached": s.num_cached_tokens,
        }
        for s in scheduler.slots.running[:SHOWN_SLOTS]
    ]
    return {
        "running": sequences,
        "num_running": scheduler.num_running,
        "num_waiting": scheduler.num_waiting,
        "pages": {"all": pages.pool.num_pages - 1, "used": pages.num_used, "idle": pages.pool.num_idle},
        "preemptions": scheduler.num_preemptions,
    }


async def page(request: Request) -> Response:
    """The page, which loads nothing from anywhere else."""
    text = files("samebits.server").joinpath("page.html").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    return HTMLResponse(text, headers={"content-security-policy": policy, "x-content-type-options": "nosniff"})
