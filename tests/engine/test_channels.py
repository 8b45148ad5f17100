"""Models that answer in messages, each in a channel: what is the answer, what is thinking, and where a turn ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samebits.engine.answer import Answer, Completion, Piece
from samebits.engine.job import Generation
from samebits.engine.sampling import SamplingParams
from samebits.loaders import Tokenizer
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.server.answers.chat import ChatShape
from samebits.server.answers.completions import ChoiceShape, PromptShape
from samebits.server.bodies.openai import CompletionBody
from samebits.server.turns.events import ChoiceAnswer, Step
from samebits.server.turns.reader import TurnReader

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
ENDS = ("<|return|>", "<|call|>")
TURN = (
    "<|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant<|channel|>commentary to=functions.f json"
    "<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>Four \u00e9.<|return|>"
)


def tokenizer_with(*controls: str) -> Tokenizer:
    """Bytes, and these texts as tokens of their own."""
    from gguf_writer import byte_level_vocab, tiny_model

    vocab: dict[str, Any] = byte_level_vocab()
    (kind, tokens), (of_types, types) = (vocab[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
    vocab["tokenizer.ggml.tokens"] = (kind, [*tokens, *controls])
    vocab["tokenizer.ggml.token_type"] = (of_types, [*types, *[3] * len(controls)])
    del vocab["tokenizer.ggml.eos_token_id"]
    file = tiny_model("llama", vocab)
    return tokenizer_from_gguf(parse_gguf(file.build(), Path("x.gguf")).metadata, "x.gguf")


def completion(tokenizer: Tokenizer, text: str, **params: Any) -> tuple[Completion, list[Any]]:
    """The answer whose tokens are those of the text, until it ends."""
    options = SamplingParams(max_tokens=1000, **params)
    answer = Answer(tokenizer, np.zeros(1, np.int32), options, 0, 2000)
    for token in tokenizer.encode(text, add_special=False):
        if answer.push(token, None, None).finish_reason:
            break
    else:
        answer.cut("cancelled")
    return answer.completion(), answer.pieces


def test_a_turn_of_several_messages() -> None:
    tokenizer = tokenizer_with(*MARKS, *ENDS)
    told, pieces = completion(tokenizer, TURN)
    assert (told.text, told.reasoning, told.finish_reason) == ("Four \u00e9.", "Two and two.{}", "stop")
    channels = [piece.channel for piece in pieces if piece.text]
    assert list(dict.fromkeys(channels)) == ["analysis", "commentary", "final"]


def test_the_end_of_a_message_ends_a_turn_only_without_channels() -> None:
    with_channels, without = tokenizer_with(*MARKS, *ENDS), tokenizer_with("<|end|>")
    ends = [[t.token_text(i) for i in sorted(t.special.end_ids)] for t in (with_channels, without)]
    assert [set(texts) - {"<|im_end|>", "<|endoftext|>"} for texts in ends] == [set(ENDS), {"<|end|>"}]
    assert without.special.marks is None
    assert completion(without, "Hi<|end|>there")[0].text == "Hi"


@pytest.mark.parametrize(
    ("text", "shown", "thought"),
    [
        ("Hi there", "Hi there", ""),  # no channel is named
        ("<|channel|>final<|message|>Hi<|end|>", "Hi", ""),
        ("<|channel|>analysis<|message|>Hm", "", "Hm"),  # cut in a message
        ("<|channel|>analysis<|message|>Hm<|end|><|start|>assi", "", "Hm"),  # cut in a name
        ("<|channel|>final<|message|>Stop at STO<|end|>", "Stop at STO", ""),  # held back, and no more to come
        ("<|channel|>analysis<|message|>ST<|end|><|start|>assistant<|channel|>final<|message|>OP!", "OP!", "ST"),
        ("<|channel|>final<|message|>one STOP two", "one ", ""),
    ],
)
def test_marks_cuts_and_stops(text: str, shown: str, thought: str) -> None:
    told, _ = completion(tokenizer_with(*MARKS, *ENDS), text, stop=("STOP",))
    assert (told.text, told.reasoning) == (shown, thought)


def test_half_a_character_before_a_mark() -> None:
    tokenizer = tokenizer_with(*MARKS, *ENDS)
    answer = Answer(tokenizer, np.zeros(1, np.int32), SamplingParams(max_tokens=9), 0, 2000)
    first, _ = tokenizer.encode("\u00e9", add_special=False)
    marks = tokenizer.special.marks
    assert marks is not None
    for token in (first, marks.end, marks.start):
        answer.push(token, None, None)  # nobody asks for its logits
    assert answer.completion().text == "\ufffd"


def choice_of(tokenizer: Tokenizer, pieces: list[Piece]) -> tuple[dict[str, Any], dict[str, str]]:
    """The message of a whole chat answer, and the joined deltas of a stream."""
    shape, reader, answer, streamed = ChatShape(tokenizer, False, False, None), TurnReader(), ChoiceAnswer(), {}
    for piece in pieces:
        step = Step(0, tuple(reader.push(piece)), piece)
        for event in step.events:
            answer.add(event)
        for part in shape.parts(step):
            for name, text in part["delta"].items():
                streamed[name] = streamed.get(name, "") + text
    return shape.choice(0, answer)["message"], streamed


def test_the_servers_answers_keep_thinking_apart() -> None:
    tokenizer = tokenizer_with(*MARKS, *ENDS)
    told, pieces = completion(tokenizer, TURN)
    message, streamed = choice_of(tokenizer, pieces)
    assert (message["content"], message["reasoning_content"]) == ("Four \u00e9.", "Two and two.{}")
    job = Generation(tokenizer, np.zeros(1, np.int32), SamplingParams(), 2000)
    body = CompletionBody.model_validate({"prompt": "x"})
    shape = ChoiceShape(tokenizer, 0, PromptShape(tokenizer, job, body), body, None)
    assert shape.whole(told)["text"] == "Four \u00e9."
    assert streamed == {"content": "Four \u00e9.", "reasoning_content": "Two and two.{}"}
    parts = [shape.part(piece)["text"] for piece in pieces]
    assert "".join(parts) == "Four \u00e9."
    _, plain = completion(tokenizer, "Hi<|return|>")
    assert "reasoning_content" not in choice_of(tokenizer, plain)[0]
