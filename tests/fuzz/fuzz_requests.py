"""Fuzzes the server's routes: bodies near and far from valid ones, through the real application in this process.

    python tests/fuzz/fuzz_requests.py --seconds 60 [--seed N]

A finding is an answer that is neither good nor a refusal in one line, an exception in the log, an answer that takes too
long, or pages that stay held.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from driving import drive
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

from gguf_writer import STRING
from hostile_formats import HOSTILE
from random_tiny import write_random_tiny

from samebits import LLM
from samebits.server.app import Door, build_app
from samebits.server.limits import Limits
from samebits.server.metrics import Metrics
from samebits.server.model import ServedModel

MAX_SECONDS = 20.0  # for one answer, on a machine that does other things too
STATUSES = {200, 400, 404, 413, 503}
OWN_FAULTS = re.compile("response_format|none that is allowed")  # of a request, found in the midst of its answer

TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["", "hello hi", "\x00", "<|im_end|>", "{" * 50, "a" * 3000]))
NUMBERS = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([2**31 - 1, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**399]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e-300, 1e308, 5e-324, 0.5]),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)
IDS = st.lists(st.integers(0, 270), max_size=20)
PROMPTS = st.one_of(TEXTS, st.lists(TEXTS, max_size=5), IDS, st.lists(IDS, max_size=5))
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=3)
FUNCTIONS = st.sampled_from(["f", "g", "a.b", ""])
CALLED = st.fixed_dictionaries({"name": FUNCTIONS, "arguments": TEXTS | st.just('{"a": [1]}')})
CALLS = st.lists(st.fixed_dictionaries({"id": TEXTS, "type": st.just("function"), "function": CALLED}), max_size=2)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
            "content": TEXTS | PARTS | st.none(),
        },
        optional={"name": TEXTS, "tool_calls": CALLS, "tool_call_id": TEXTS, "reasoning_content": TEXTS},
    ),
    max_size=4,
)
SCHEMAS = st.sampled_from(
    [
        {},
        {"type": "object"},
        {"enum": ["a", "b"]},
        {"type": "integer"},
        {"type": "string", "maxLength": 5},
        {"$ref": "#"},
    ]
)
FORMATS = st.one_of(
    st.sampled_from([{"type": "text"}, {"type": "json_object"}, HOSTILE["a reference to itself"]]),
    st.builds(lambda s: {"type": "json_schema", "json_schema": {"name": "s", "schema": s}}, SCHEMAS | ANYTHING),
    st.builds(lambda p: {"type": "regex", "pattern": p}, st.sampled_from(["(ab|cd)+", "[0-9]{3}", "("]) | TEXTS),
)
TOOLS = st.lists(
    st.builds(
        lambda name, schema, strict: {
            "type": "function",
            "function": {"name": name, "parameters": schema, "strict": strict},
        },
        FUNCTIONS,
        SCHEMAS | ANYTHING,
        st.booleans(),
    ),
    max_size=3,
)
CHOICES = st.sampled_from(["none", "auto", "required"]) | st.builds(
    lambda name: {"type": "function", "function": {"name": name}}, FUNCTIONS
)
GRAMMARS = st.sampled_from(['root ::= "a" | "b"', 'start: "a"', 'root ::= "\\x41"', "root ::= root"])
SAMPLING = {
    "n": st.integers(1, 4),
    "seed": NUMBERS,
    "stop": TEXTS | st.lists(TEXTS, max_size=4),
    "stream": st.booleans(),
    "stream_options": st.dictionaries(st.sampled_from(["include_usage", "continuous_usage_stats"]), st.booleans()),
    "temperature": NUMBERS,
    "top_p": NUMBERS,
    "top_k": NUMBERS,
    "min_p": NUMBERS,
    "presence_penalty": NUMBERS,
    "frequency_penalty": NUMBERS,
    "repetition_penalty": NUMBERS,
    "logit_bias": st.dictionaries(st.integers(-1, 300).map(str) | TEXTS, NUMBERS, max_size=4),
    "ignore_eos": st.booleans(),
    "priority": NUMBERS,
    "min_tokens": st.integers(0, 9),
    "stop_token_ids": IDS,
    "allowed_token_ids": IDS,
    "bad_words": st.lists(TEXTS, max_size=3),
    "skip_special_tokens": st.booleans(),
    "include_stop_str_in_output": st.booleans(),
    "prompt_logprobs": st.integers(-1, 21),
    "truncate_prompt_tokens": st.integers(-2, 200),
    "logits_sha256": st.booleans(),
    "receipt": st.booleans(),
    "cache_salt": TEXTS,
    "guided_choice": st.lists(TEXTS, max_size=3),
    "grammar": TEXTS
    | st.sampled_from(['root ::= "a" | "b"', 'start: "a"', 'root ::= "' + "\\x41" + '"', "root ::= root"]),
    "structured_outputs": ANYTHING | st.just({"regex": "a+"}),
    "typical_p": NUMBERS,
    "response_format": FORMATS,
    "model": st.sampled_from(["tiny", "other"]),
    "mood": ANYTHING,
}
CHAT = {
    **SAMPLING,
    "max_completion_tokens": st.integers(1, 8),
    "logprobs": st.booleans(),
    "top_logprobs": NUMBERS,
    "tools": TOOLS | ANYTHING,
    "tool_choice": CHOICES,
    "parallel_tool_calls": st.booleans(),
}
# A short one that knows tools: the section that we would write for it does not fit into the context here.
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | length if tools }}"
INPUT_PARTS = st.lists(st.fixed_dictionaries({"type": st.just("input_text"), "text": TEXTS}), max_size=2)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "x"])},
        optional={
            "role": st.sampled_from(["user", "assistant", "developer"]),
            "content": TEXTS
            | st.lists(st.fixed_dictionaries({"type": st.just("input_text"), "text": TEXTS}), max_size=2),
            "call_id": TEXTS,
            "name": FUNCTIONS,
            "arguments": TEXTS,
            "output": TEXTS,
        },
    ),
    max_size=4,
)
BLOCKS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"])},
        optional={
            "text": TEXTS,
            "id": TEXTS,
            "name": FUNCTIONS,
            "input": ANYTHING,
            "tool_use_id": TEXTS,
            "thinking": TEXTS,
        },
    ),
    max_size=3,
)
BLOCK_MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": TEXTS | BLOCKS}), max_size=4
)
OPTIONS = st.fixed_dictionaries({"num_predict": st.integers(-1, 8)}, optional={**SAMPLING, "num_ctx": NUMBERS})
OLLAMA = {"stream": st.booleans(), "format": ANYTHING | st.just("json"), "think": ANYTHING, "logprobs": st.booleans()}
ROUTES = {
    "/v1/chat/completions": ({"messages": MESSAGES, "max_tokens": st.integers(1, 8)}, CHAT),
    "/v1/completions": (
        {"prompt": PROMPTS, "max_tokens": st.integers(1, 8)},
        {**SAMPLING, "logprobs": NUMBERS, "echo": st.booleans(), "suffix": TEXTS, "best_of": NUMBERS},
    ),
    "/v1/responses": (
        {"input": TEXTS | ITEMS, "max_output_tokens": st.integers(0, 8)},
        {**SAMPLING, "instructions": TEXTS, "text": ANYTHING, "reasoning": ANYTHING, "store": st.booleans()},
    ),
    "/v1/messages": (
        {"messages": BLOCK_MESSAGES, "max_tokens": st.integers(0, 8)},
        {
            **SAMPLING,
            "system": TEXTS | PARTS,
            "thinking": ANYTHING,
            "tool_choice": ANYTHING,
            "stop_sequences": st.lists(TEXTS),
        },
    ),
    "/api/chat": ({"messages": MESSAGES, "options": OPTIONS}, OLLAMA),
    "/api/generate": ({"prompt": TEXTS, "options": OPTIONS}, {**OLLAMA, "raw": st.booleans(), "system": TEXTS}),
    "/v1/rerank": ({"query": TEXTS, "documents": st.lists(TEXTS, max_size=3)}, {"top_n": NUMBERS}),
    "/v1/embeddings": (
        {"input": PROMPTS},
        {"encoding_format": st.sampled_from(["float", "base64", "x"]), "pooling": TEXTS, "dimensions": NUMBERS},
    ),
    "/tokenize": ({"text": TEXTS}, {"add_special": st.booleans(), "parse_special": st.booleans()}),
    "/detokenize": ({"tokens": IDS}, {}),
}
EDITS = st.sampled_from(
    [
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
        b'"\\ud800"',
        b"\xff",
        b"[" * 300,
        b'{"a":1,"a":2}',
        b"",
        b"null",
        b'"',
    ],
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A route and a body: valid, with some fields replaced by anything, or with its bytes edited."""
    path = draw(st.sampled_from(sorted(ROUTES)))
    needed, optional = ROUTES[path]
    few = draw(st.lists(st.sampled_from(sorted(optional)), max_size=4, unique=True)) if optional else []
    body: dict[str, Any] = draw(st.fixed_dictionaries({**needed, **{name: optional[name] for name in few}}))
    for name in draw(st.lists(st.sampled_from(sorted(body)), max_size=2, unique=True)):
        body[name] = draw(st.one_of(st.just(body[name]), ANYTHING))
    if draw(st.integers(0, 9)) == 0:
        del body[draw(st.sampled_from(sorted(body)))]
    data = json.dumps(body, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(EDITS) + data[at + draw(st.integers(0, 6)) :]
    return path, data


class Target:
    """The application over a tiny model, on a loop of its own; faults that it logs are kept."""

    def __init__(self, folder: Path) -> None:
        path = write_random_tiny(folder / "random.gguf", **{"tokenizer.chat_template": (STRING, TEMPLATE)})
        limits = Limits(deadline_seconds=3, grammar_seconds=0.3, max_body_bytes=1 << 20)
        self.served, self.loop = ServedModel("tiny", limits, is_deterministic=False), asyncio.new_event_loop()
        self.app = build_app(self.served, Metrics(), Door())
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        options = {"context_len": 128, "max_sequences": 8}
        self.wait(self.served.load(lambda: LLM(path, **options), path, None))
        self.faults: list[str] = []
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self.faults.append(handler.format(record))  # type: ignore[method-assign]
        logging.getLogger("samebits.server").addHandler(handler)
        logging.getLogger("samebits.server").propagate = False

    def close(self) -> None:
        self.served.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(MAX_SECONDS * 3)

    async def post(self, path: str, data: bytes) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(path, content=data, headers={"content-type": "application/json"})

    def check(self, request: tuple[str, bytes]) -> None:
        path, data = request
        self.faults.clear()
        start = time.monotonic()
        reply = self.wait(self.post(path, data))
        assert time.monotonic() - start < MAX_SECONDS, f"{time.monotonic() - start:.1f} s"
        if reply.status_code == 500:  # a format may turn out impossible in the midst of an answer, and nothing else
            assert OWN_FAULTS.search(reply.text), (reply.text, self.faults)
        elif reply.status_code != 200:
            assert reply.status_code in STATUSES, reply.text
            error = reply.json()["error"]
            message = error if isinstance(error, str) else error["message"]
            assert message.isprintable(), error
            assert len(message) < 500, error
        elif reply.headers["content-type"] == "application/x-ndjson":
            assert all(json.loads(line) for line in reply.text.splitlines())
        elif not reply.headers["content-type"].startswith("text/event-stream"):
            assert reply.json()
        elif not reply.text.startswith("event: "):
            assert reply.text.endswith("data: [DONE]\n\n"), reply.text[-200:]
        assert all(OWN_FAULTS.search(fault) for fault in self.faults), self.faults
        pages, deadline = self.served.llm.engine.scheduler.pages, time.monotonic() + 5
        while pages.num_used and time.monotonic() < deadline:
            time.sleep(0.002)
        assert pages.num_used == 0, f"{pages.num_used} pages are held"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        try:
            return drive("fuzz_requests", requests(), target.check)
        finally:
            target.close()


if __name__ == "__main__":
    sys.exit(main())
