"""The bodies of drawn requests in every protocol, and their answers, whole and streamed, in one form to compare."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from drawn_requests import DrawnRequest

from samebits.loaders import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"sky": {"type": "string", "enum": ["blue", "😀"]}},
    "required": ["sky"],
    "additionalProperties": False,
}
SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
ABOUT_LOGPROBS = "message.output_text.logprobs"


@dataclass
class Answer:
    """A choice in no protocol's words, with the usage of its request.

    calls                    id, name and arguments of each call
    blocks                   reasoning, texts and calls in their order, if the protocol has an order
    has_text_logprobs_only   whether reasoning and calls have no log-probabilities
    """

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    blocks: list[Any] = field(default_factory=list)
    end: Any = None
    usage: dict[str, int] = field(default_factory=dict)
    token_ids: list[int] | None = None
    logprobs: list[Any] | None = None
    offsets: list[int] = field(default_factory=list)
    proof: Any = None
    has_text_logprobs_only: bool = False
    shows_reasoning: bool = True


@dataclass(frozen=True)
class Protocol:
    """How a drawn request is written, and how the choices of a whole answer and of a stream are read."""

    path: str
    body: Callable[[DrawnRequest, Tokenizer], dict[str, Any]]
    whole: Callable[[dict[str, Any]], list[Answer]]
    streamed: Callable[[str], list[Answer]]


def sampling(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the fields that all protocols have under the same names."""
    body: dict[str, Any] = {"seed": request.seed, "ignore_eos": True, "temperature": 1.5}
    body |= {"include_stop_str_in_output": request.includes_stop, "skip_special_tokens": not request.shows_special}
    if request.stop_byte is not None:
        body["stop_token_ids"] = byte_ids(tokenizer, (request.stop_byte,))[0]
    if request.script is not None:
        body["regex"] = SPECIAL.sub(r"\\\g<0>", request.script)
    if request.allowed is not None:
        body["allowed_token_ids"] = sorted({ids[0] for ids in byte_ids(tokenizer, request.allowed)})
    return body


def byte_ids(tokenizer: Tokenizer, values: tuple[int, ...]) -> list[list[int]]:
    """Return the ids of the tokens that are single bytes."""
    by_bytes = {tokenizer.decode_bytes([i]): i for i in range(tokenizer.vocab_size)}
    return [[by_bytes[bytes([value])]] for value in values]


def tools_of(request: DrawnRequest, shape: Callable[[dict[str, Any]], dict[str, Any]], forced: Any) -> dict[str, Any]:
    if not (request.has_tools or request.is_forced):
        return {}
    made = {"tools": [shape({"name": "weather", "description": "the sky"})]}
    return made | ({"tool_choice": forced} if request.is_forced else {})


def stops(name: str, request: DrawnRequest) -> dict[str, Any]:
    return {name: [request.stop]} if request.stop else {}


def counts(num_prompt_tokens: int, num_tokens: int, total: int | None = None) -> dict[str, int]:
    """Return a usage in OpenAI's words."""
    total = num_prompt_tokens + num_tokens if total is None else total
    return {"prompt_tokens": num_prompt_tokens, "completion_tokens": num_tokens, "total_tokens": total}


def events(text: str) -> list[dict[str, Any]]:
    """Return the chunks of server-sent events."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# OpenAI's chat


def chat_body(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(request, tokenizer),
        **stops("stop", request),
        **tools_of(request, lambda f: {"type": "function", "function": {**f, "parameters": SCHEMA}}, "required"),
        "messages": [{"role": "user", "content": request.prompt}],
        "max_tokens": request.max_tokens,
        "logprobs": True,
        "top_logprobs": request.top,
        "return_token_ids": True,
        "logits_sha256": True,
        "n": request.n,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def named(entries: list[dict[str, Any]]) -> list[Any]:
    """Return OpenAI's and Ollama's entries as token, bytes, log-probability and alternatives."""
    return [
        (e["token"], tuple(e["bytes"]), e["logprob"], [(t["token"], tuple(t["bytes"]), t["logprob"]) for t in tops])
        for e in entries
        for tops in [e["top_logprobs"]]
    ]


def chat_whole(reply: dict[str, Any]) -> list[Answer]:
    def read(choice: dict[str, Any]) -> Answer:
        message = choice["message"]
        return Answer(
            text=message["content"] or "",
            reasoning=message.get("reasoning_content", ""),
            calls=[(c["id"], *c["function"].values()) for c in message.get("tool_calls", ())],
            end=choice["finish_reason"],
            usage=reply["usage"],
            token_ids=choice["token_ids"],
            logprobs=named(choice["logprobs"]["content"]),
            proof=(reply["seed"], choice["logits_sha256"]),
        )

    return [read(choice) for choice in reply["choices"]]


def chat_streamed(text: str) -> list[Answer]:
    *chunks, last = events(text)
    answers = choices_of(chunks, Answer(token_ids=[], logprobs=[], usage=last["usage"]))
    for chunk in chunks:
        (choice,) = chunk["choices"]
        answer, delta = answers[choice["index"]], choice["delta"]
        answer.text += delta.get("content") or ""
        answer.reasoning += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                answer.calls.append((call["id"], call["function"]["name"], ""))
            call_id, name, arguments = answer.calls[call["index"]]
            answer.calls[call["index"]] = (call_id, name, arguments + call["function"]["arguments"])
        answer.token_ids += choice.get("token_ids", [])
        answer.logprobs += named((choice["logprobs"] or {"content": []})["content"])
        if choice["finish_reason"]:
            answer.end, answer.proof = choice["finish_reason"], (chunk["seed"], choice["logits_sha256"])
        assert chunk["usage"]["completion_tokens"] == len(answer.token_ids)
    return answers


def choices_of(chunks: list[dict[str, Any]], empty: Answer) -> list[Answer]:
    """Return an empty answer for each choice of a stream."""
    count = 1 + max(choice["index"] for chunk in chunks for choice in chunk["choices"])
    return [deepcopy(empty) for _ in range(count)]


# OpenAI's completions


def completion_body(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(request, tokenizer),
        **stops("stop", request),
        "prompt": [request.prompt, "x"] if request.seed % 3 == 0 else request.prompt,
        "max_tokens": request.max_tokens,
        "logprobs": request.top,
        "echo": request.seed % 2 == 0,
        "return_token_ids": True,
        "logits_sha256": True,
        "n": request.n,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def lists(found: dict[str, list[Any]]) -> list[Any]:
    return list(zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True))


def completion_whole(reply: dict[str, Any]) -> list[Answer]:
    def read(choice: dict[str, Any]) -> Answer:
        return Answer(
            text=choice["text"],
            end=choice["finish_reason"],
            usage=reply["usage"],
            token_ids=choice["token_ids"],
            logprobs=lists(choice["logprobs"]),
            offsets=choice["logprobs"]["text_offset"],
            proof=(reply["seed"], choice["logits_sha256"]),
            has_text_logprobs_only=True,
            shows_reasoning=False,
        )

    return [read(choice) for choice in reply["choices"]]


def completion_streamed(text: str) -> list[Answer]:
    *chunks, last = events(text)
    empty = Answer(token_ids=[], logprobs=[], usage=last["usage"], has_text_logprobs_only=True, shows_reasoning=False)
    answers = choices_of(chunks, empty)
    for chunk in chunks:
        (choice,) = chunk["choices"]
        answer = answers[choice["index"]]
        answer.text += choice["text"]
        answer.token_ids += choice["token_ids"]
        answer.logprobs += lists(choice["logprobs"])
        answer.offsets += choice["logprobs"]["text_offset"]
        if choice["finish_reason"]:
            answer.end, answer.proof = choice["finish_reason"], (chunk["seed"], choice["logits_sha256"])
        assert chunk["usage"]["completion_tokens"] == len(answer.token_ids)
    return answers


# OpenAI's responses


def responses_body(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(request, tokenizer),
        **stops("stop", request),
        **tools_of(request, lambda f: {"type": "function", **f, "parameters": SCHEMA}, "required"),
        "input": request.prompt,
        "max_output_tokens": request.max_tokens,
        "include": [ABOUT_LOGPROBS],
        "top_logprobs": request.top,
        "logits_sha256": True,
    }


def responses_whole(reply: dict[str, Any]) -> list[Answer]:
    end = (reply["status"], reply["incomplete_details"])
    answer = Answer(end=end, logprobs=[], has_text_logprobs_only=True)
    for item in reply["output"]:
        answer.blocks.append({name: value for name, value in item.items() if name != "id"})
        if item["type"] == "message":
            (part,) = item["content"]
            answer.text += part["text"]
            answer.logprobs += named(part["logprobs"])
        elif item["type"] == "reasoning":
            answer.reasoning += "".join(part["text"] for part in item["content"])
        else:
            answer.calls.append((item["call_id"], item["name"], item["arguments"]))
    usage = reply["usage"]
    answer.usage = counts(usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])
    answer.proof = (reply["seed"], reply["logits_sha256"], usage["output_tokens_details"])
    return [answer]


def responses_streamed(text: str) -> list[Answer]:
    """Return the response of the last event. Each item and delta before it must agree with it."""
    chunks = events(text)
    last = chunks[-1]["response"]
    assert chunks[-1]["type"] == f"response.{last['status']}"
    done = [e["item"] for e in chunks if e["type"] == "response.output_item.done"]
    assert done == last["output"]
    for index, item in enumerate(done):
        own = [e for e in chunks if e.get("output_index") == index]
        deltas = [e for e in own if e["type"].endswith(".delta")]
        joined = "".join(e["delta"] for e in deltas)
        if item["type"] == "message":
            (part,) = item["content"]
            assert joined == part["text"]
            assert [entry for e in deltas for entry in e["logprobs"]] == part["logprobs"]
            (ended,) = [e for e in own if e["type"] == "response.output_text.done"]
            assert (ended["text"], ended["logprobs"]) == (part["text"], part["logprobs"])
            assert [e["part"] for e in own if e["type"] == "response.content_part.done"] == [part]
        elif item["type"] == "reasoning":
            assert joined == "".join(part["text"] for part in item["content"])
        else:
            assert joined == item["arguments"]
    return responses_whole(last)


# Anthropic's messages


def messages_body(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(request, tokenizer),
        **stops("stop_sequences", request),
        **tools_of(request, lambda f: {**f, "input_schema": SCHEMA}, {"type": "any"}),
        "messages": [{"role": "user", "content": request.prompt}],
        "max_tokens": request.max_tokens,
        "logits_sha256": True,
    }


def messages_answer(blocks: list[dict[str, Any]], end: dict[str, Any], usage: dict[str, int]) -> list[Answer]:
    """Return the answer of some blocks; `end` has the reasons and the proof."""
    answer = Answer(end=(end["stop_reason"], end["stop_sequence"]), proof=(end["seed"], end["logits_sha256"]))
    answer.usage = counts(usage["input_tokens"], usage["output_tokens"])
    answer.blocks = blocks
    for block in blocks:
        if block["type"] == "text":
            answer.text += block["text"]
        elif block["type"] == "thinking":
            answer.reasoning += block["thinking"]
        else:
            answer.calls.append((block["id"], block["name"], json.dumps(block["input"])))
    return [answer]


def messages_whole(reply: dict[str, Any]) -> list[Answer]:
    return messages_answer(reply["content"], reply, reply["usage"])


def messages_streamed(text: str) -> list[Answer]:
    blocks, parts = dict[int, dict[str, Any]](), dict[int, str]()
    for event in events(text):
        if event["type"] == "content_block_start":
            blocks[event["index"]], parts[event["index"]] = event["content_block"], ""
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            if delta["type"] == "input_json_delta":
                parts[event["index"]] += delta["partial_json"]
            else:
                block[block["type"]] += delta[block["type"]]
        elif event["type"] == "message_delta":
            end, usage = event["delta"], event["usage"]
    for index, block in blocks.items():
        if block["type"] == "tool_use":
            try:
                block["input"] = json.loads(parts[index] or "{}")
            except ValueError:  # a call that was cut is text in a whole answer
                blocks[index] = {"type": "text", "text": parts[index]}
    return messages_answer(list(blocks.values()), end, usage)


# Ollama's


def ollama_body(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    options = {**sampling(request, tokenizer), **stops("stop", request), "num_predict": request.max_tokens}
    return {"options": options, "logprobs": True, "top_logprobs": request.top, "logits_sha256": True}


def ollama_chat_body(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    tools = tools_of(request, lambda f: {"type": "function", "function": {**f, "parameters": SCHEMA}}, None)
    tools.pop("tool_choice", None)
    return {**ollama_body(request, tokenizer), **tools, "messages": [{"role": "user", "content": request.prompt}]}


def ollama_generate_body(request: DrawnRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    return {**ollama_body(request, tokenizer), "prompt": request.prompt, "raw": request.seed % 2 == 0}


def ollama_answer(lines: list[dict[str, Any]]) -> list[Answer]:
    last, answer = lines[-1], Answer(logprobs=[])
    for line in lines:
        message = line.get("message", line)
        answer.text += message.get("content", message.get("response", ""))
        answer.reasoning += message.get("thinking", "")
        for call in message.get("tool_calls", ()):
            function = call["function"]
            answer.calls.append((call["id"], function["name"], json.dumps(function["arguments"])))
        answer.logprobs += named(line.get("logprobs", []))
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    answer.end, answer.proof = last["done_reason"], (last["seed"], last["logits_sha256"])
    answer.usage = counts(last["prompt_eval_count"], last["eval_count"])
    return [answer]


def ollama_whole(reply: dict[str, Any]) -> list[Answer]:
    return ollama_answer([reply])


def ollama_streamed(text: str) -> list[Answer]:
    return ollama_answer([json.loads(line) for line in text.splitlines()])


PROTOCOLS = {
    "chat": Protocol("/v1/chat/completions", chat_body, chat_whole, chat_streamed),
    "completions": Protocol("/v1/completions", completion_body, completion_whole, completion_streamed),
    "responses": Protocol("/v1/responses", responses_body, responses_whole, responses_streamed),
    "messages": Protocol("/v1/messages", messages_body, messages_whole, messages_streamed),
    "ollama_chat": Protocol("/api/chat", ollama_chat_body, ollama_whole, ollama_streamed),
    "ollama_generate": Protocol("/api/generate", ollama_generate_body, ollama_whole, ollama_streamed),
}
