"""The route /v1/rerank, for models that judge a document with one word, as Qwen3's rerankers do."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from samebits.core.sampling_defaults import NEUTRAL
from samebits.engine.answer import Completion
from samebits.engine.job import DEADLINE, DeadlinePassed, RequestFailed
from samebits.engine.sampling import SamplingParams
from samebits.loaders.chat import FROZEN_TIME
from samebits.server.answer_ids import RERANK
from samebits.server.answers.engine_streams import all_completions, start_streams, usage, while_connected
from samebits.server.bodies.base import Body, Few, Refused, Text, says
from samebits.server.bodies.openai import Sampling
from samebits.server.bodies.prompts import short_enough
from samebits.server.bodies.reading import read_body
from samebits.server.http.counting import at_most
from samebits.server.http.errors import bad_request
from samebits.server.http.json_output import json_response
from samebits.server.model import ServedModel

RERANKER = "rerank"  # stands in the names of models that were made for it
VERDICTS = ("yes", "no")
TASK = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)  # what these models were trained on, word by word
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
MAX_DOCUMENTS = 4096  # looked at; --max-prompts says how many are taken


class Document(Body):
    text: str


class RerankBody(Body):
    query: Annotated[str, Field(description="what is asked")]
    documents: Annotated[
        Few[str | Document], at_most(MAX_DOCUMENTS), Field(min_length=1, description="texts, or objects with a `text`")
    ]
    model: Text | None = says("the model's name")
    top_n: Annotated[int, Field(ge=1)] | None = says("so many of the best; all if absent")
    return_documents: bool | None = says("whether results hold their document, as they do if absent")
    instruction: str | None = says("what a document has to do; to answer a search if absent")
    refused: ClassVar[dict[str, Refused]] = {
        "max_tokens_per_doc": Refused("documents that are cut"),
        "truncate_prompt_tokens": Refused("documents that are cut"),
        "rank_fields": Refused("documents of several fields", ([],)),
    }
    accepted: ClassVar[dict[str, str]] = {
        "user": "who asks",
        "priority": "documents of one request are judged together",
    }

    def texts(self) -> list[str]:
        return [d if isinstance(d, str) else d.text for d in self.documents]


async def rerank(request: Request) -> Response:
    """Documents by how likely the model finds "yes" rather than "no" after each."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, RerankBody, served.limits.max_body_bytes)
    served.check_name(body.model)
    verdicts = verdict_ids(served)
    texts = body.texts()
    if len(texts) > served.limits.max_prompts:
        raise bad_request("documents", f"{len(texts)} texts", f"1 to {served.limits.max_prompts}")
    prompts = await while_connected(request, prompts_of(served, body, texts))
    by_verdict, num_tokens, key = [], 0, object()
    for number, token in enumerate(verdicts):  # the second finds the pages of the first
        params = SamplingParams(max_tokens=1, temperature=0, seed=0, logprobs=0, allowed_token_ids=(token,))
        params = params.resolved(NEUTRAL)
        started = await start_streams(request, served, prompts, params, "documents", Sampling(), None)
        started = replace(started, request=key, first_prompt=number * len(prompts))
        answers = await all_completions(request, started)
        by_verdict.append([verdict_logprob(answer) for (answer,) in answers])
        num_tokens = usage(started.streams)["prompt_tokens"]
    scores = [1 / (1 + math.exp(min(no - yes, 700.0))) for yes, no in zip(*by_verdict, strict=True)]
    order = sorted(range(len(texts)), key=lambda i: (-scores[i], i))[: body.top_n]

    def answer() -> dict[str, Any]:
        kept = [{"index": i, "relevance_score": scores[i], "document": {"text": texts[i]}} for i in order]
        if body.return_documents is False:
            kept = [{name: row[name] for name in ("index", "relevance_score")} for row in kept]
        used = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        head = {"id": RERANK + request.state.request_id, "model": served.name}
        return {**head, "system_fingerprint": served.fingerprint, "results": kept, "usage": used}

    return await json_response(answer, sum(map(len, texts)))


def verdict_logprob(answer: Completion) -> float:
    """Return the log-probability of an answer's only token. Raise RequestFailed if the answer was cut before it."""
    if not answer.logprobs:
        kind = DeadlinePassed if answer.finish_reason == DEADLINE else RequestFailed
        raise kind(f"a document has no verdict: {answer.finish_reason}")
    return answer.logprobs[0].logprob or 0.0


def verdict_ids(served: ServedModel) -> list[int]:
    """The tokens of yes and no; ApiError for a model that is no such reranker."""
    spelled = [served.llm.tokenizer.encode(word, False, False) for word in VERDICTS]
    is_reranker = RERANKER in served.name.lower() and served.llm.chat_template is not None
    if not is_reranker or any(len(ids) != 1 for ids in spelled):
        needed = "a reranker that answers yes or no, such as Qwen3-Reranker, served under a name with rerank in it"
        raise bad_request("model", served.name, needed, "unsupported_model")
    return [ids[0] for ids in spelled]


async def prompts_of(served: ServedModel, body: RerankBody, texts: list[str]) -> list[list[int]]:
    """Return the prompts of all documents, which wait for the template's process one after another."""
    return [await asyncio.to_thread(prompt_of, served, body, text) for text in texts]


def prompt_of(served: ServedModel, body: RerankBody, text: str) -> list[int]:
    """A document and the query in the form that the model was trained on; ApiError where it is too long."""
    asked = f"<Instruct>: {body.instruction or INSTRUCTION}\n<Query>: {body.query}\n<Document>: {text}"
    told = [{"role": "system", "content": TASK}, {"role": "user", "content": asked}]
    template = served.llm.chat_template
    has_switch = template is not None and template.names("enable_thinking")
    variables = {"enable_thinking": False} if has_switch else None
    return short_enough("documents", served.llm.chat_prompt, told, FROZEN_TIME, variables)
