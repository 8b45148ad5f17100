"""Ollama's routes: /api/chat, /api/generate, and those by which its clients look around."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from samebits.server.answers.chat import chat_logprobs
from samebits.server.answers.common import answer_size
from samebits.server.bodies.reading import read_body
from samebits.server.http.errors import bad_request
from samebits.server.http.json_output import json_response
from samebits.server.http.server_events import OLLAMA, Chunk, event_stream
from samebits.server.http.threads import off_loop
from samebits.server.model import READY, ServedModel
from samebits.server.protocols.ollama_body import GenerationBody, OllamaChatBody, OllamaGenerateBody, ShowBody
from samebits.server.protocols.turn_body import repeatable, thinking_variables
from samebits.server.receipts import ReceiptDesk
from samebits.server.tools.offer import NOTHING, Offer
from samebits.server.tools.reading import parse_json
from samebits.server.turns.events import CallStarted, ChoiceAnswer, Finished, ReasoningDelta, Step, TextDelta
from samebits.server.turns.turn import Turn, TurnStream, start_turn

DONE_REASONS = {"tool_calls": "stop"}
LATEST = ":latest"
Part = Callable[[str, str, list[dict[str, Any]]], dict[str, Any]]  # text, thinking, calls


def check_model(served: ServedModel, name: str | None) -> None:
    """ApiError 404 for a model that is not served; its name may end with `:latest`."""
    served.check_name(name.removesuffix(LATEST) if name else None)


async def chat(request: Request) -> Response:
    """An answer to a conversation."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, OllamaChatBody, served.limits.max_body_bytes)
    check_model(served, body.model)
    if not body.messages:
        return JSONResponse(_head(served) | _message("", "", []) | {"done": True, "done_reason": "load"})
    told = await off_loop(body.conversation, request.state.body_bytes)
    return await _answered(request, served, body, told, body.offer, _message)


async def generate(request: Request) -> Response:
    """An answer to a prompt, which is a user's message unless it is raw."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, OllamaGenerateBody, served.limits.max_body_bytes)
    check_model(served, body.model)
    if not body.prompt:
        return JSONResponse(_head(served) | _response("", "", []) | {"done": True, "done_reason": "load"})
    if body.raw and body.system:
        raise bad_request("system", "a message", "absent with raw: the prompt is taken as it is")
    told = [{"role": "system", "content": body.system}] if body.system else []
    told.append({"role": "user", "content": body.prompt})
    return await _answered(request, served, body, told, NOTHING, _response)


async def _answered(
    request: Request,
    served: ServedModel,
    body: GenerationBody,
    told: list[dict[str, Any]],
    offer: Offer,
    part: Part,
) -> Response:
    sampling = body.sampling(served.llm.max_len)
    turn = Turn(
        messages=told,
        sampling=sampling,
        max_tokens=body.max_tokens,
        logprobs=body.num_logprobs,
        offer=offer,
        variables=_thinking(served, body),
        fields={"reasoning_effort": "think", "enable_thinking": "think"},
        raw=body.prompt if isinstance(body, OllamaGenerateBody) and body.raw else None,
        param="messages" if isinstance(body, OllamaChatBody) else "prompt",
    )
    stream = await start_turn(request, served, turn)
    desk = served.desk if body.receipt else None
    if body.stream is not False:
        return event_stream(_lines(served, stream, part, body.logprobs is True, desk), request.state.request_id, OLLAMA)
    (answer,) = await stream.answers()
    calls = [_call(call.id, call.name, call.arguments) for call in answer.calls]
    pieces = answer.completion.logprobs if body.logprobs and answer.completion else ()

    def whole() -> dict[str, Any]:
        logprobs = {"logprobs": _logprobs(served, pieces)} if body.logprobs else {}
        said = part(answer.text, answer.reasoning, calls)
        return {**_head(served), **said, **logprobs, **_ending(stream, answer, desk)}

    return await json_response(whole, answer_size(stream.job.params, stream.usage()))


def _thinking(served: ServedModel, body: GenerationBody) -> dict[str, Any]:
    """The variable of the model's template that `think` sets; ApiError where there is none for it."""
    if isinstance(body.think, str):
        return {"reasoning_effort": body.think}
    return {} if body.think is None else thinking_variables(served, "think", body.think)


async def _lines(
    served: ServedModel, stream: TurnStream, part: Part, has_logprobs: bool, desk: ReceiptDesk | None
) -> AsyncIterator[Chunk]:
    """Lines of an answer as it comes; a call is told whole. The last one has the end."""
    answer = ChoiceAnswer()
    async for step in stream.steps():
        found = _logprobs(served, [step.piece]) if has_logprobs else []
        lines = _parts(answer, step, part)
        for line in lines or ([part("", "", [])] if found else []):
            yield {**_head(served), **line, "done": False, **({"logprobs": found} if found else {})}
            found = []
    answer = replace(answer, completion=stream.job.completions()[0])
    yield lambda: {**_head(served), **part("", "", []), **_ending(stream, answer, desk)}


def _parts(answer: ChoiceAnswer, step: Step, part: Part) -> list[dict[str, Any]]:
    """Add a step to the answer, and return what its lines say; a call has a line when the next event shows its end."""
    lines = []
    for event in step.events:
        if isinstance(event, (CallStarted, Finished)) and (call := answer.last_call):
            lines.append(part("", "", [_call(call.id, call.name, call.arguments)]))
        answer.add(event)
        if isinstance(event, TextDelta):
            lines.append(part(event.text, "", []))
        elif isinstance(event, ReasoningDelta):
            lines.append(part("", event.text, []))
    return lines


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": name, "arguments": parse_json(arguments or "{}")}}


def _message(text: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    message |= {"thinking": thinking} if thinking else {}
    return {"message": message | ({"tool_calls": calls} if calls else {})}


def _response(text: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"response": text, **({"thinking": thinking} if thinking else {})}


def _head(served: ServedModel) -> dict[str, Any]:
    return {"model": served.name, "created_at": datetime.now(UTC).isoformat()}


def _logprobs(served: ServedModel, pieces: Any) -> list[dict[str, Any]]:
    return list(chat_logprobs(served.llm.tokenizer, pieces)["content"])


def _ending(stream: TurnStream, answer: ChoiceAnswer, desk: ReceiptDesk | None) -> dict[str, Any]:
    """The end of an answer: why, how many tokens, and the times, in nanoseconds."""
    job, usage = stream.job, stream.usage()
    ended = job.ended_at or job.arrived_at
    first = job.first_token_at or ended
    return {
        "done": True,
        "done_reason": DONE_REASONS.get(answer.finish_reason, answer.finish_reason),
        "total_duration": int(1e9 * (ended - job.arrived_at)),
        "load_duration": 0,
        "prompt_eval_count": usage["prompt_tokens"],
        "prompt_eval_duration": int(1e9 * (first - job.arrived_at)),
        "eval_count": usage["completion_tokens"],
        "eval_duration": int(1e9 * (ended - first)),
        **repeatable(answer, desk),
    }


def _card(served: ServedModel) -> dict[str, Any]:
    modified = datetime.fromtimestamp(served.created, UTC).isoformat()
    card = {"name": served.name, "model": served.name, "modified_at": modified, "details": {}}
    return card | ({"digest": served.fingerprint.rpartition("-")[2]} if served.state == READY else {})


async def tags(request: Request) -> Response:
    """The one model that is served."""
    return JSONResponse({"models": [_card(request.app.state.served)]})


async def running_models(request: Request) -> Response:
    """The same, once it is loaded."""
    served: ServedModel = request.app.state.served.ready()
    return JSONResponse({"models": [_card(served) | {"context_length": served.llm.max_len}]})


async def show(request: Request) -> Response:
    """What clients ask of a model before they use it: its template, and what it can do."""
    served: ServedModel = request.app.state.served.ready()
    body = await read_body(request, ShowBody, served.limits.max_body_bytes)
    check_model(served, body.model)
    template = served.llm.chat_template
    capabilities = ["completion", "tools"] + (["thinking"] if served.forms.marks else [])
    card = _card(served)
    info = {"general.name": served.name, "context_length": served.llm.max_len}
    return JSONResponse(
        {
            "template": template.source if template else "",
            "details": card["details"],
            "modified_at": card["modified_at"],
            "model_info": info,
            "capabilities": capabilities,
            "parameters": "",
            "modelfile": "",
        }
    )
