"""Models with forms of their own, over HTTP: marks that are control tokens, channels, reasoning in text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_writer import STRING, byte_level_vocab
from live_server import Running, running
from random_tiny import write_random_tiny
from test_channels import tokenizer_with

from samebits.core.errors import BadInput
from samebits.engine.answer import Answer
from samebits.engine.reasoning import THINK_MARKS, marks_for
from samebits.engine.sampling import SamplingParams
from samebits.loaders import Tokenizer
from samebits.server.tools.forms import FORMS, form_for
from samebits.server.tools.scanner import CallScanner
from samebits.server.turns.events import ChoiceAnswer
from samebits.server.turns.model_forms import FormChoice
from samebits.server.turns.reader import TurnReader

CHAT = "/v1/chat/completions"
CONTROL, USER_DEFINED = 3, 4
MESSAGES = "{% for m in messages %}{{ m.content }}{% endfor %}"
GPT_OSS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
FORCED = {"tools": [TOOL], "tool_choice": "required", "messages": [{"role": "user", "content": "hi"}], "seed": 1}


@contextmanager
def serving(path: Path, template: str, more_tokens: dict[str, int], **options: Any) -> Iterator[Running]:
    """A random model with more tokens in its vocabulary, of the kinds given, behind a server."""
    vocab: dict[str, Any] = byte_level_vocab()
    for key, more in (("tokens", list(more_tokens)), ("token_type", list(more_tokens.values()))):
        kind, values = vocab[f"tokenizer.ggml.{key}"]
        vocab[f"tokenizer.ggml.{key}"] = (kind, [*values, *more])
    vocab["tokenizer.chat_template"] = (STRING, template)
    write_random_tiny(path, vocab=vocab)
    with running(path, llm_options={"context_len": 2048}, **options) as it:
        yield it


def asked(server: Running, **wishes: Any) -> dict[str, Any]:
    with server.client() as client:
        reply = client.post(CHAT, json=FORCED | wishes)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


@pytest.mark.parametrize(
    ("form", "template", "tokens"),
    [
        ("mistral", "{{ '[TOOL_CALLS]' if tools and no }}", ["[TOOL_CALLS]"]),
        ("mistral-args", "{{ '[ARGS]' if tools and no }}", ["[TOOL_CALLS]", "[ARGS]"]),
        ("llama3", "{{ '<|python_tag|>' if tools and no }}", ["<|python_tag|>"]),
        ("gpt_oss", "{{ '<|channel|>' if tools and no }}", GPT_OSS),
        ("gemma", "{{ '<start_function_call>' if tools and no }}", ["<start_function_call>", "<end_function_call>"]),
        ("hermes", "{{ '<tool_call>' if tools and no }}", []),
    ],
)
def test_a_forced_call_in_the_models_own_form(tmp_path: Path, form: str, template: str, tokens: list[str]) -> None:
    with serving(tmp_path / "m.gguf", template + MESSAGES, dict.fromkeys(tokens, CONTROL)) as server:
        assert server.served.forms.call_form is FORMS[form]
        choice = asked(server)
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["a"] in (1, 2)
        assert choice["finish_reason"] == "tool_calls"
        if form == "gpt_oss":  # which may think before it calls
            assert "<|" not in choice["message"].get("reasoning_content", "")
        plain = asked(server, tools=None, tool_choice=None, max_tokens=30)
        assert "tool_calls" not in plain["message"]


@pytest.mark.parametrize("kind", [CONTROL, USER_DEFINED])
@pytest.mark.parametrize("name", sorted(THINK_MARKS))
def test_reasoning_is_apart_from_text_and_calls(tmp_path: Path, kind: int, name: str) -> None:
    """The template opens the reasoning; a bias closes it at once."""
    marks = THINK_MARKS[name]
    template = MESSAGES + marks.opening + "\n{# tools " + marks.closing + " #}"
    with serving(tmp_path / "m.gguf", template, {marks.opening: kind, marks.closing: kind}) as server:
        (closing,) = server.llm.encode(marks.closing, add_special=False)
        thinking = asked(server, tools=None, tool_choice=None, max_tokens=20)
        assert thinking["message"]["content"] == ""
        assert thinking["message"]["reasoning_content"]
        closes = {"logit_bias": {str(closing): 100}}
        choice = asked(server, **closes)
        assert "reasoning_content" not in choice["message"]
        assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["a"] in (1, 2)
        form = {"type": "regex", "pattern": "(ab|c/d)"}
        formatted = asked(server, tools=None, tool_choice=None, response_format=form, **closes)
        assert formatted["message"]["content"] in ("ab", "c/d")
        with server.client() as client:
            wishes = FORCED | {"tools": None, "tool_choice": None, "max_tokens": 20, "stream": True}
            lines = [x[6:] for x in client.post(CHAT, json=wishes).text.splitlines() if x.startswith("data: {")]
        deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
        streamed = "".join(d.get("reasoning_content", "") for d in deltas)
        assert streamed == thinking["message"]["reasoning_content"]
        assert "".join(d.get("content", "") for d in deltas) == ""


def test_forms_may_be_chosen_by_hand(tmp_path: Path) -> None:
    choice = FormChoice("llama3", "none")
    template = MESSAGES + "<think>{# tools </think> <tool_call> #}"
    with serving(tmp_path / "m.gguf", template, {}, form_choice=choice) as server:
        assert server.served.forms.call_form is FORMS["llama3"]
        assert server.served.forms.marks is None
    with pytest.raises(BadInput, match="--tool-form is xml, but must be auto, hermes"):
        FormChoice("xml")
    with pytest.raises(BadInput, match="--reasoning-form is xml, but must be auto, none, think"):
        FormChoice("auto", "xml")


@pytest.mark.parametrize(
    ("template", "tokens", "form", "marks"),
    [
        ("{{ messages }}", (), "hermes", None),
        ("{% if tools %}<tool_call>{% endif %}<think></think>", (), "hermes", "think"),
        ("[TOOL_CALLS]", (), "mistral", None),
        ("[TOOL_CALLS][ARGS]", ("[THINK]", "[/THINK]"), "mistral-args", "mistral"),
        ("<|python_tag|>", (), "llama3", None),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', (), "llama3", None),
        ("<start_function_call>", (), "gemma", None),
        ("", GPT_OSS, "gpt_oss", None),
        ("", ("<think>", "</think>"), "hermes", "think"),
        ("<think>", (), "hermes", None),  # without its end it is no pair
    ],
)
def test_the_table_of_forms(template: str, tokens: tuple[str, ...], form: str, marks: str | None) -> None:
    tokenizer = tokenizer_with(*tokens)
    assert form_for(template, tokenizer) is FORMS[form]
    assert marks_for(template, tokenizer) == (THINK_MARKS[marks] if marks else None)


def read(tokenizer: Tokenizer, text: str, names: frozenset[str] = frozenset("f")) -> ChoiceAnswer:
    """What a choice with the tokens of this text comes to."""
    marks = tokenizer.special.marks
    assert marks is not None
    scanner = CallScanner(FORMS["gpt_oss"], names) if names else None
    reader, told = TurnReader(str, None, scanner, frozenset((marks.end, marks.start))), ChoiceAnswer()
    answer = Answer(tokenizer, np.zeros(1, np.int32), SamplingParams(max_tokens=1000), 0, 2000)
    for token in tokenizer.encode(text, add_special=False):
        piece = answer.push(token, None, None)  # nobody asks for its logits
        for event in reader.push(piece):
            told.add(event)
        if piece.finish_reason:
            return told
    for event in reader.push(answer.cut("cancelled")):
        told.add(event)
    return told


CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("text", "calls", "said", "thought", "reason"),
    [
        (f"{THOUGHT}{CALL}<|call|>", 1, "", "Hm.", "tool_calls"),
        (f"{CALL}<|end|><|start|>assistant{CALL}<|call|>", 2, "", "", "tool_calls"),
        (f"{THOUGHT} to=functions.f<|channel|>commentary<|message|>{{}}<|call|>", 1, "", "Hm.", "tool_calls"),
        (CALL.replace(" <|constrain|>", "<|constrain|>") + "<|call|>", 1, "", "", "tool_calls"),
        (CALL, 1, "", "", "length"),
        (CALL[:-1] + "<|call|>", 0, '{"a": 1', "", "stop"),
        (CALL.replace("functions.f", "functions.g") + "<|call|>", 0, '{"a": 1}', "", "stop"),
        (f"{CALL}<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>", 1, "So.", "", "tool_calls"),
        ("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + CALL, 1, "", "I look.", "length"),
    ],
)
def test_calls_in_channels(text: str, calls: int, said: str, thought: str, reason: str) -> None:
    told = read(tokenizer_with(*GPT_OSS), text)
    assert (len(told.calls), told.text, told.reasoning, told.finish_reason) == (calls, said, thought, reason)
    assert all(json.loads(call.arguments) in ({"a": 1}, {}) and call.name == "f" for call in told.calls)


def test_messages_to_functions_are_reasoning_where_no_tools_were_offered() -> None:
    told = read(tokenizer_with(*GPT_OSS), f"{CALL}<|call|>", frozenset())
    assert (told.calls, told.text, told.reasoning) == ([], "", '{"a": 1}')
