"""Ids that the model has and the tokenizer has not, over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_server import running
from random_tiny import write_random_tiny

NUM_EXTRA = 5


@pytest.mark.parametrize("is_chat", [False, True])
def test_ids_without_text_are_served(tmp_path: Path, is_chat: bool) -> None:
    path = write_random_tiny(tmp_path / "padded.gguf", NUM_EXTRA)
    with running(path) as server, server.client() as client:
        num_tokens, num_ids = server.llm.tokenizer.vocab_size, server.llm.runner.vocab_size
        last = num_ids - 1
        wishes = {"max_tokens": 4, "seed": 1, "logit_bias": {str(last): 100}, "temperature": 0, "ignore_eos": True}
        if is_chat:
            messages = [{"role": "user", "content": "hi"}]
            asked = {"messages": messages, "logprobs": True, "top_logprobs": 3, **wishes}
            reply = client.post("/v1/chat/completions", json=asked)
        else:
            reply = client.post("/v1/completions", json={"prompt": [5, num_tokens], "logprobs": 3, **wishes})
        assert reply.status_code == 200, reply.text
        (choice,) = reply.json()["choices"]
        assert (choice["message"]["content"] if is_chat else choice["text"]) == ""
        assert reply.json()["usage"]["completion_tokens"] == 4
        assert client.get("/health").json()["status"] == "ready"
        assert client.post("/detokenize", json={"tokens": [5, last]}).json() == (
            client.post("/detokenize", json={"tokens": [5]}).json()
        )
        assert client.post("/detokenize", json={"tokens": [num_ids]}).status_code == 400
