"""Arguments that are JSON by its grammar but that no object can hold, and patterns beside tools."""

from __future__ import annotations

import json
import math

import pytest
from live_server import NAME, Running
from wire_forms import PROTOCOLS, events

from samebits.engine.answer import Piece
from samebits.server.protocols.blocks import Block
from samebits.server.protocols.messages import block_shape
from samebits.server.tools.hermes import Hermes
from samebits.server.tools.written import WrittenCalls
from samebits.server.turns.events import Finished
from samebits.server.turns.reader import TurnReader

MESSAGES = [{"role": "user", "content": "x"}]
BIASES = {"1": 2, "e": 30, "9": 20, "}": 18}  # for numbers such as 9e999
SCHEMA = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


def test_a_number_that_no_double_holds_comes_as_text(roomy: Running) -> None:
    biases = {str(roomy.llm.tokenizer.encode(char, False)[0]): bias for char, bias in BIASES.items()}
    num_found = 0
    with roomy.client() as client:
        for seed in range(8):
            body = {"model": NAME, "messages": MESSAGES, "max_tokens": 120, "seed": seed, "logit_bias": biases}
            tool = {"name": "f", "parameters": SCHEMA}
            chosen = {"tools": [{"type": "function", "function": tool}], "tool_choice": "required"}
            chat = client.post("/v1/chat/completions", json={**body, **chosen}).json()["choices"][0]
            calls = chat["message"].get("tool_calls") or []
            if not calls or math.isfinite(json.loads(calls[0]["function"]["arguments"])["x"]):
                continue
            num_found += 1
            assert chat["finish_reason"] == "stop"
            own = {"tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}
            whole = client.post("/v1/messages", json={**body, **own})
            assert whole.status_code == 200, whole.text
            (block,) = whole.json()["content"]
            assert block == {"type": "text", "text": calls[0]["function"]["arguments"]}
            assert whole.json()["stop_reason"] == "end_turn"
            streamed = events(client.post("/v1/messages", json={**body, **own, "stream": True}).text)
            assert streamed[-2]["delta"]["stop_reason"] == "end_turn"
            items = {"input": "x", "max_output_tokens": 120, "seed": seed, "logit_bias": biases}
            items |= {"tools": [{"type": "function", **tool}], "tool_choice": "required"}
            assert client.post("/v1/responses", json=items).status_code == 200
    assert num_found >= 2


@pytest.mark.parametrize("value", ["1e999", "-1e999", "[{}, 1e400]", r'"\ud83d"', r'"\udE00\ud83d"', "NaN", "9" * 5000])
def test_what_json_output_cannot_say_is_no_whole_call(value: str) -> None:
    text = f'{{"x": {value}}}'
    assert block_shape(Block("call", text, "id", "f")) == {"type": "text", "text": text}
    reader = TurnReader(scanner=WrittenCalls(Hermes(), ["f"]))
    before, after = Hermes().written("f")
    (*_, end) = reader.push(Piece(1, f"{''.join(before)}{text}{''.join(after)}", finish_reason="stop"))
    assert end == Finished("stop")


def test_pairs_and_large_numbers_are_whole_calls() -> None:
    block = block_shape(Block("call", r'{"x": "\ud83d\ude00", "y": 1e308}', "id", "f"))
    assert block["input"] == {"x": "😀", "y": 1e308}


@pytest.mark.parametrize("pattern", [r"a\/b", "a/b", r"[/]b", r"\\/", "\\\\\n", "\\\n", r"(a|\/)\/", "/", ""])
@pytest.mark.parametrize("is_bound", [False, True])
def test_a_pattern_beside_tools_is_the_same_pattern(roomy: Running, pattern: str, is_bound: bool) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}] if is_bound else []
    held = {"structured_outputs": {"regex": pattern}}
    # the opening of a call cannot be drawn: the answer is the pattern's text
    lead = {str(roomy.llm.tokenizer.encode("<", False)[0]): -100}
    body = {"messages": MESSAGES, "max_tokens": 20, "seed": 1, "logit_bias": lead, "tools": tools, **held}
    with roomy.client() as client:
        reply = client.post(PROTOCOLS["chat"].path, json=body)
    assert reply.status_code == 200, reply.text
    text = reply.json()["choices"][0]["message"]["content"]
    assert text in {
        r"[/]b": ["/b"],
        r"(a|\/)\/": ["a/", "//"],
        r"\\/": ["\\/"],
        "\\\\\n": ["\\\n"],
        "\\\n": ["\n"],
    }.get(pattern, [pattern.replace("\\/", "/")])
