"""Every protocol's requests and answers in one form, whole and streamed, so that the two can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from samebits.loaders import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"sky": {"type": "string", "enum": ["blue", "😀"]}},
    "required": ["sky"],
    "additionalProperties": False,
}
SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
ABOUT_LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True)
class Wish:
    """A request in no protocol's words.

    script     the text that the model is held to
    is_forced  whether it must call the function
    allowed    bytes that may be drawn
    """

    prompt: str
    script: str | None
    has_tools: bool
    is_forced: bool
    stop: str | None
    max_tokens: int
    top: int
    seed: int
    allowed: tuple[int, ...] | None


@dataclass
class Said:
    """An answer in no protocol's words.

    blocks           reasoning, texts and calls in their order, where the protocol has one
    is_partly_told   whether log-probabilities are those of the text alone
    """

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    blocks: list[Any] = field(default_factory=list)
    end: Any = None
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    token_ids: list[int] | None = None
    logprobs: list[Any] | None = None
    offsets: list[int] = field(default_factory=list)
    proof: Any = None
    is_partly_told: bool = False
    tells_reasoning: bool = True


@dataclass(frozen=True)
class Protocol:
    path: str
    body: Callable[[Wish, Tokenizer], dict[str, Any]]
    whole: Callable[[dict[str, Any]], Said]
    streamed: Callable[[str], Said]


def sampling(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    """What all protocols take in the same words."""
    body: dict[str, Any] = {"seed": wish.seed, "ignore_eos": True, "temperature": 1.5}
    if wish.script is not None:
        body["regex"] = SPECIAL.sub(r"\\\g<0>", wish.script)
    if wish.allowed is not None:
        body["allowed_token_ids"] = sorted({ids[0] for ids in byte_ids(tokenizer, wish.allowed)})
    return body


def byte_ids(tokenizer: Tokenizer, values: tuple[int, ...]) -> list[list[int]]:
    """The ids of single bytes."""
    by_bytes = {tokenizer.decode_bytes([i]): i for i in range(tokenizer.vocab_size)}
    return [[by_bytes[bytes([value])]] for value in values]


def tools_of(wish: Wish, shape: Callable[[dict[str, Any]], dict[str, Any]], forced: Any) -> dict[str, Any]:
    if not (wish.has_tools or wish.is_forced):
        return {}
    made = {"tools": [shape({"name": "weather", "description": "the sky"})]}
    return made | ({"tool_choice": forced} if wish.is_forced else {})


def stops(name: str, wish: Wish) -> dict[str, Any]:
    return {name: [wish.stop]} if wish.stop else {}


def events(text: str) -> list[dict[str, Any]]:
    """The chunks of server-sent events."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# OpenAI's chat


def chat_body(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(wish, tokenizer),
        **stops("stop", wish),
        **tools_of(wish, lambda f: {"type": "function", "function": {**f, "parameters": SCHEMA}}, "required"),
        "messages": [{"role": "user", "content": wish.prompt}],
        "max_tokens": wish.max_tokens,
        "logprobs": True,
        "top_logprobs": wish.top,
        "return_token_ids": True,
        "logits_sha256": True,
        "stream_options": {"include_usage": True},
    }


def named(entries: list[dict[str, Any]]) -> list[Any]:
    """OpenAI's and Ollama's entries as token, bytes, log-probability and alternatives."""
    return [
        (e["token"], tuple(e["bytes"]), e["logprob"], [(t["token"], tuple(t["bytes"]), t["logprob"]) for t in tops])
        for e in entries
        for tops in [e["top_logprobs"]]
    ]


def chat_whole(reply: dict[str, Any]) -> Said:
    (choice,) = reply["choices"]
    message, usage = choice["message"], reply["usage"]
    return Said(
        text=message["content"] or "",
        reasoning=message.get("reasoning_content", ""),
        calls=[(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())],
        end=choice["finish_reason"],
        num_tokens=usage["completion_tokens"],
        num_prompt_tokens=usage["prompt_tokens"],
        token_ids=choice["token_ids"],
        logprobs=named(choice["logprobs"]["content"]),
        proof=(reply["seed"], choice["logits_sha256"]),
    )


def chat_streamed(text: str) -> Said:
    said = Said(token_ids=[], logprobs=[])
    *chunks, last = events(text)
    for chunk in chunks:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        said.text += delta.get("content") or ""
        said.reasoning += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                said.calls.append((call["function"]["name"], ""))
            name, arguments = said.calls[call["index"]]
            said.calls[call["index"]] = (name, arguments + call["function"]["arguments"])
        said.token_ids += choice.get("token_ids", [])
        said.logprobs += named((choice["logprobs"] or {"content": []})["content"])
        if choice["finish_reason"]:
            said.end, said.proof = choice["finish_reason"], (chunk["seed"], choice["logits_sha256"])
    said.num_tokens, said.num_prompt_tokens = last["usage"]["completion_tokens"], last["usage"]["prompt_tokens"]
    return said


# OpenAI's completions


def completion_body(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(wish, tokenizer),
        **stops("stop", wish),
        "prompt": wish.prompt,
        "max_tokens": wish.max_tokens,
        "logprobs": wish.top,
        "echo": wish.seed % 2 == 0,
        "return_token_ids": True,
        "logits_sha256": True,
        "stream_options": {"include_usage": True},
    }


def lists(found: dict[str, list[Any]]) -> list[Any]:
    return list(zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True))


def completion_whole(reply: dict[str, Any]) -> Said:
    (choice,) = reply["choices"]
    usage = reply["usage"]
    return Said(
        text=choice["text"],
        end=choice["finish_reason"],
        num_tokens=usage["completion_tokens"],
        num_prompt_tokens=usage["prompt_tokens"],
        token_ids=choice.get("token_ids"),
        logprobs=lists(choice["logprobs"]),
        offsets=choice["logprobs"]["text_offset"],
        proof=(reply["seed"], choice.get("logits_sha256")),
        is_partly_told=True,
        tells_reasoning=False,
    )


def completion_streamed(text: str) -> Said:
    said = Said(token_ids=[], logprobs=[], is_partly_told=True, tells_reasoning=False)
    for chunk in events(text):
        for choice in chunk["choices"]:
            said.text += choice["text"]
            said.token_ids += choice.get("token_ids", [])
            said.logprobs += lists(choice["logprobs"])
            said.offsets = said.offsets + choice["logprobs"]["text_offset"]
            if choice["finish_reason"]:
                said.end, said.proof = choice["finish_reason"], (chunk["seed"], choice.get("logits_sha256"))
        if chunk.get("usage"):
            usage = chunk["usage"]
            said.num_tokens, said.num_prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
    return said


# OpenAI's responses


def responses_body(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(wish, tokenizer),
        **stops("stop", wish),
        **tools_of(wish, lambda f: {"type": "function", **f, "parameters": SCHEMA}, "required"),
        "input": wish.prompt,
        "max_output_tokens": wish.max_tokens,
        "include": [ABOUT_LOGPROBS],
        "top_logprobs": wish.top,
        "logits_sha256": True,
    }


def responses_whole(reply: dict[str, Any]) -> Said:
    said = Said(end=(reply["status"], reply["incomplete_details"]), logprobs=[], is_partly_told=True)
    for item in reply["output"]:
        told = {name: value for name, value in item.items() if name != "id"}
        said.blocks.append(told)
        if item["type"] == "message":
            (part,) = item["content"]
            said.text += part["text"]
            said.logprobs += named(part["logprobs"])
        elif item["type"] == "reasoning":
            said.reasoning += "".join(part["text"] for part in item["content"])
        else:
            said.calls.append((item["name"], item["arguments"]))
    usage = reply["usage"]
    said.num_tokens, said.num_prompt_tokens = usage["output_tokens"], usage["input_tokens"]
    said.proof = (reply["seed"], reply["logits_sha256"], usage["output_tokens_details"])
    return said


def responses_streamed(text: str) -> Said:
    """The last response; each item and delta on the way has to agree with it."""
    told = events(text)
    said = responses_whole(told[-1]["response"])
    assert told[-1]["type"] == f"response.{told[-1]['response']['status']}"
    done = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    assert done == told[-1]["response"]["output"]
    for index, item in enumerate(done):
        own = [e for e in told if e.get("output_index") == index]
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
    return said


# Anthropic's messages


def messages_body(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **sampling(wish, tokenizer),
        **stops("stop_sequences", wish),
        **tools_of(wish, lambda f: {**f, "input_schema": SCHEMA}, {"type": "any"}),
        "messages": [{"role": "user", "content": wish.prompt}],
        "max_tokens": wish.max_tokens,
        "logits_sha256": True,
    }


def block_said(said: Said, block: dict[str, Any]) -> None:
    said.blocks.append(block)
    if block["type"] == "text":
        said.text += block["text"]
    elif block["type"] == "thinking":
        said.reasoning += block["thinking"]
    else:
        said.calls.append((block["name"], json.dumps(block["input"])))


def messages_whole(reply: dict[str, Any]) -> Said:
    said = Said(end=(reply["stop_reason"], reply["stop_sequence"]), proof=(reply["seed"], reply["logits_sha256"]))
    for block in reply["content"]:
        block_said(said, {name: value for name, value in block.items() if name != "id"})
    said.num_tokens, said.num_prompt_tokens = reply["usage"]["output_tokens"], reply["usage"]["input_tokens"]
    return said


def messages_streamed(text: str) -> Said:
    said, blocks = Said(), dict[int, dict[str, Any]]()
    told = events(text)
    for event in told:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {n: v for n, v in event["content_block"].items() if n != "id"} | {"json": ""}
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            name = {"text_delta": "text", "thinking_delta": "thinking"}.get(delta["type"], "json")
            block[name] += delta.get(name, delta.get("partial_json"))
        elif event["type"] == "message_delta":
            delta = event["delta"]
            said.end = (delta["stop_reason"], delta["stop_sequence"])
            said.proof = (delta["seed"], delta["logits_sha256"])
            said.num_tokens = event["usage"]["output_tokens"]
            said.num_prompt_tokens = event["usage"]["input_tokens"]
    for block in blocks.values():
        text = block.pop("json")
        if block["type"] == "tool_use":
            try:
                block["input"] = json.loads(text or "{}")
            except ValueError:  # a call that was cut is text in a whole answer
                block = {"type": "text", "text": text}
        block_said(said, block)
    return said


# Ollama's


def ollama_body(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    options = {**sampling(wish, tokenizer), **stops("stop", wish), "num_predict": wish.max_tokens}
    return {"options": options, "logprobs": True, "top_logprobs": wish.top, "logits_sha256": True}


def ollama_chat_body(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    tools = tools_of(wish, lambda f: {"type": "function", "function": {**f, "parameters": SCHEMA}}, None)
    tools.pop("tool_choice", None)
    return {**ollama_body(wish, tokenizer), **tools, "messages": [{"role": "user", "content": wish.prompt}]}


def ollama_generate_body(wish: Wish, tokenizer: Tokenizer) -> dict[str, Any]:
    return {**ollama_body(wish, tokenizer), "prompt": wish.prompt, "raw": wish.seed % 2 == 0}


def ollama_said(lines: list[dict[str, Any]]) -> Said:
    said = Said(logprobs=[])
    for line in lines:
        message = line.get("message", line)
        said.text += message.get("content", message.get("response", ""))
        said.reasoning += message.get("thinking", "")
        for call in message.get("tool_calls", ()):
            said.calls.append((call["function"]["name"], json.dumps(call["function"]["arguments"])))
        said.logprobs += named(line.get("logprobs", []))
    last = lines[-1]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    said.end, said.proof = last["done_reason"], (last["seed"], last["logits_sha256"])
    said.num_tokens, said.num_prompt_tokens = last["eval_count"], last["prompt_eval_count"]
    return said


def ollama_whole(reply: dict[str, Any]) -> Said:
    return ollama_said([reply])


def ollama_streamed(text: str) -> Said:
    return ollama_said([json.loads(line) for line in text.splitlines()])


PROTOCOLS = {
    "chat": Protocol("/v1/chat/completions", chat_body, chat_whole, chat_streamed),
    "completions": Protocol("/v1/completions", completion_body, completion_whole, completion_streamed),
    "responses": Protocol("/v1/responses", responses_body, responses_whole, responses_streamed),
    "messages": Protocol("/v1/messages", messages_body, messages_whole, messages_streamed),
    "ollama_chat": Protocol("/api/chat", ollama_chat_body, ollama_whole, ollama_streamed),
    "ollama_generate": Protocol("/api/generate", ollama_generate_body, ollama_whole, ollama_streamed),
}
