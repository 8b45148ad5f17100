"""Requests of up to 4 MB that are meant to cost: a row is a name, a route and what makes the body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hostile_formats import HOSTILE

MAX_BYTES = 4 << 20
MAX_VALUES = 1 << 18
CHAT, COMPLETE, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
RESPOND, MESSAGE, OLLAMA, GENERATE = "/v1/responses", "/v1/messages", "/api/chat", "/api/generate"
FIELDS = {CHAT: "messages", COMPLETE: "prompt", EMBED: "input", "/tokenize": "text", "/detokenize": "tokens"}
FIELDS |= {RESPOND: "input", MESSAGE: "messages", OLLAMA: "messages", GENERATE: "prompt"}
HELLO = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Row:
    """One request of up to 4 MB: what it is, where it goes, and its bytes."""

    name: str
    path: str
    make: Callable[[], bytes]

    def __str__(self) -> str:
        return f"{self.path[1:]}: {self.name}"


def filled(before: str, item: str, after: str, max_items: int = MAX_BYTES) -> bytes:
    """As many items as fit into the largest body."""
    count = min((MAX_BYTES - len(before) - len(after)) // len(item.encode()), max_items)
    return (before + (item * count).removesuffix(",") + after).encode()


ITEMS = {
    "nulls": "null,",
    "numbers": "1,",
    "fractions": "0.5,",
    "texts": '"",',
    "lists": "[],",
    "lists of a number": "[1],",
    "objects": "{},",
    "objects with a name": '{"":0},',
    "messages": '{"role":"user","content":""},',
    "wrong parts": '{"role":"user","content":[{}]},',
    "numbers of 400 digits": "1" * 400 + ",",
}
RAW = {
    "nothing but braces": "{",
    "nothing but brackets": "[",
    "nothing but quotes": '"',
    "nothing but backslashes": "\\",
    "nothing but blanks": " ",
    "pairs of brackets": "[]",
    "names": '{"a":',
}
TEXTS = {
    "blanks": " ",
    "one letter": "a",
    "words": "hello ",
    "emoji": "\N{GRINNING FACE}",
    "escapes": "\\u0041",
    "line feeds": "\\n",
    "pairs of surrogates": "\\ud83d\\ude00",
    "halves of pairs": "\\ud83d",
    "quotes": '\\"',
}

SHORT: dict[str, dict[str, Any]] = {EMBED: {}, "/tokenize": {}, "/detokenize": {}, RESPOND: {"max_output_tokens": 2}}
SHORT |= {path: {"options": {"num_predict": 2}} for path in (OLLAMA, GENERATE)}


def _plain(path: str) -> dict[str, Any]:
    return {FIELDS[path]: {CHAT: HELLO, MESSAGE: HELLO, OLLAMA: HELLO, "/detokenize": [1]}.get(path, "hi")}


def _with(path: str, **more: Any) -> bytes:
    short = SHORT.get(path, {"max_tokens": 2, "seed": 1})
    return json.dumps({**_plain(path), **short, **more}).encode()


def _of_every_route(path: str) -> Iterator[Row]:
    field = FIELDS[path]
    for name, item in ITEMS.items():
        if path in (CHAT, COMPLETE):
            yield Row(f"a list of {name}", path, lambda i=item: filled(f'{{"{field}":[', i, "]}"))
        yield Row(f"{name}, as many as may be", path, lambda i=item: _most(field, i))
    yield Row("many names", path, lambda: b"{" + b",".join(b'"%d":0' % i for i in range(350_000)) + b"}")
    yield Row("one name many times", path, lambda: filled("{", '"a":0,', "}"))
    yield Row("unknown names", path, lambda: _with(path, **{f"x{i}": 0 for i in range(100_000)}))
    yield Row("deep nesting", path, lambda: filled(f'{{"{field}":', "[", ""))
    yield Row("many digits", path, lambda: filled(f'{{"{field}":', "1", "}"))
    yield Row("many decimals", path, lambda: filled(f'{{"{field}":0.', "1", "}"))
    yield Row("an infinity", path, lambda: filled(f'{{"{field}":', "1", "e999}", 9))
    yield Row("a long text that is no number", path, lambda: filled('{"temperature":"', "x", '"}'))


def _most(field: str, item: str) -> bytes:
    marks = sum(item.count(mark) * weight for mark, weight in {",": 1, ":": 1, "[": 4, "{": 4}.items())
    return filled(f'{{"{field}":[', item, "]}", (MAX_VALUES - 8) // marks)


def _forced(schema: dict[str, Any]) -> bytes:
    function = {"name": "f", "parameters": {"type": "object"} | schema}
    return _with(CHAT, tools=[{"type": "function", "function": function}], tool_choice="required")


def _answers() -> Iterator[Row]:
    yield Row("all log-probabilities", COMPLETE, lambda: _with(COMPLETE, prompt=["hi"] * 8, n=16, logprobs=20))
    yield Row("4096 messages", CHAT, lambda: _with(CHAT, messages=HELLO * 4096))
    parts = [{"type": "text", "text": ""}] * 8192
    yield Row("8192 parts", CHAT, lambda: _with(CHAT, messages=[{"role": "user", "content": parts}]))
    yield Row("too many biases", CHAT, lambda: _with(CHAT, logit_bias={str(i): 1 for i in range(100_000)}))
    yield Row("wrong biases", CHAT, lambda: _with(CHAT, logit_bias={f"x{i}": "" for i in range(100_000)}))
    yield Row("many stops", CHAT, lambda: _with(CHAT, stop=["x"] * 200_000))
    yield Row("empty stops", CHAT, lambda: _with(CHAT, stop=[""] * 200_000))
    yield Row("tools", CHAT, lambda: _with(CHAT, tools=[{"type": "function"}] * 50_000))
    yield Row("a tool of many values", CHAT, lambda: _forced({"properties": {"a": {"enum": ["a"] * 60_000}}}))
    yield Row("a tool of many parameters", CHAT, lambda: _forced({"properties": {f"{i}": {} for i in range(40_000)}}))
    yield Row("128 texts to embed", EMBED, lambda: _with(EMBED, input=["hello hi"] * 128))
    yield Row("ids to embed", EMBED, lambda: _with(EMBED, input=[[5] * 50] * 128))
    yield Row("ids to decode", "/detokenize", lambda: _with("/detokenize", tokens=[5] * (1 << 16)))


def _called(path: str, arguments: list[Any]) -> bytes:
    """Return a conversation in which a function was called with each of these arguments."""
    if path == RESPOND:
        return _with(path, input=[{"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments[0]}])
    calls = [
        {"id": f"{i}", "type": "function", "function": {"name": "f", "arguments": a}} for i, a in enumerate(arguments)
    ]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    return _with(path, messages=[*HELLO, message, *HELLO])


def _other_fields() -> Iterator[Row]:
    """Lists and texts of fields that are not OpenAI's, and of other protocols."""
    ids = list(range(100, 250))
    yield Row("ids allowed many times", CHAT, lambda: _with(CHAT, allowed_token_ids=ids * 1000))
    yield Row("ids that stop", COMPLETE, lambda: _with(COMPLETE, stop_token_ids=ids * 1500))
    yield Row("wrong ids allowed", CHAT, lambda: _with(CHAT, allowed_token_ids=[""] * 200_000))
    yield Row("256 bad words", CHAT, lambda: _with(CHAT, bad_words=["hello " * 170] * 256))
    yield Row("too many bad words", CHAT, lambda: _with(CHAT, bad_words=["a"] * 200_000))
    yield Row("4096 choices", CHAT, lambda: _with(CHAT, guided_choice=[f"choice {i}" for i in range(4096)]))
    yield Row("too many choices", CHAT, lambda: _with(CHAT, guided_choice=["a"] * 200_000))
    yield Row("a long grammar", CHAT, lambda: filled('{"messages":[],"grammar":"', "a", '"}'))
    nested = "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000
    yield Row("a deep grammar", CHAT, lambda: _with(CHAT, grammar=nested))
    rules = "\n".join(f'r{i} ::= r{i + 1} | "a"' for i in range(8000))
    yield Row("a grammar of 8000 rules", CHAT, lambda: _with(CHAT, grammar=f'root ::= r0\n{rules}\nr8000 ::= "b"'))
    yield Row(
        "variables of a template", CHAT, lambda: _with(CHAT, chat_template_kwargs={f"x{i}": 0 for i in range(90_000)})
    )
    yield Row(
        "a prompt to be cut", COMPLETE, lambda: _with(COMPLETE, prompt="a b " * 250_000, truncate_prompt_tokens=9)
    )
    yield Row("too long to be cut", COMPLETE, lambda: _with(COMPLETE, prompt="a" * 3_000_000, truncate_prompt_tokens=9))
    yield Row(
        "an echo with all there is", COMPLETE, lambda: _with(COMPLETE, prompt=[[5] * 250] * 8, echo=True, logprobs=20)
    )
    calls = [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}] * 4096
    yield Row("4096 calls", RESPOND, lambda: _with(RESPOND, input=calls))
    parts = [{"type": "text", "text": ""}] * 8192
    yield Row("8192 blocks", MESSAGE, lambda: _with(MESSAGE, messages=[{"role": "user", "content": parts}]))
    long_parts = [{"type": "text", "text": "a " * 240}] * 8000
    yield Row("8000 long blocks", MESSAGE, lambda: _with(MESSAGE, messages=[{"role": "user", "content": long_parts}]))
    results = [{"role": "tool", "tool_call_id": "a", "content": "a " * 480}] * 4000
    yield Row("4000 results of tools", CHAT, lambda: _with(CHAT, messages=[*HELLO, *results]))
    uses = [{"type": "tool_use", "id": "a", "name": "f", "input": {}}] * 8192
    yield Row("8192 uses of a tool", MESSAGE, lambda: _with(MESSAGE, messages=[{"role": "assistant", "content": uses}]))
    yield Row("arguments of lists", CHAT, lambda: _called(CHAT, ["[" + "[]," * 1_300_000 + "0]"]))
    yield Row("arguments of numbers", CHAT, lambda: _called(CHAT, ['{"a":[' + "1," * 260_000 + "0]}"]))
    yield Row("arguments of many calls", CHAT, lambda: _called(CHAT, ["[" + "[]," * 100 + "0]"] * 1000))
    yield Row("deep arguments", RESPOND, lambda: _called(RESPOND, ["[" * 4_000_000]))
    yield Row("arguments of texts", OLLAMA, lambda: _called(OLLAMA, [{"a": [""] * 250_000}]))
    yield Row("stop sequences", MESSAGE, lambda: _with(MESSAGE, stop_sequences=["x"] * 200_000))
    yield Row("options", OLLAMA, lambda: _with(OLLAMA, options={f"x{i}": 0 for i in range(90_000)}))
    yield Row("a long format", OLLAMA, lambda: _with(OLLAMA, format={"enum": ["a" * 1_000_000]}))


def _formats() -> Iterator[Row]:
    for name, kind in HOSTILE.items():
        yield Row(f"format: {name}", CHAT, lambda k=kind: _with(CHAT, response_format=k))
    head = '{"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"response_format":{"type":'
    schema = head + '"json_schema","json_schema":{"schema":'
    yield Row("format: a long pattern", CHAT, lambda: filled(head + '"regex","pattern":"', "a", '"}}'))
    yield Row("format: a pattern of 200 KB", CHAT, lambda: filled(head + '"regex","pattern":"', "a|", '"}}', 100_000))
    yield Row("format: a long schema", CHAT, lambda: filled(schema + '{"enum":["', "a", '"]}}}}'))
    yield Row("format: many values", CHAT, lambda: filled(schema + '{"enum":[', '"",', "]}}}}", 200_000))
    yield Row("format: 60,000 values", CHAT, lambda: filled(schema + '{"enum":[', '"a",', "]}}}}", 60_000))


TEXT_FIELDS = {  # that are tokenized: what stands before and after a text
    CHAT: ('{"messages":[{"role":"user","content":"', '"}]}'),
    COMPLETE: ('{"prompt":"', '"}'),
    EMBED: ('{"input":"', '"}'),
    "/tokenize": ('{"text":"', '"}'),
    RESPOND: ('{"input":"', '"}'),
    MESSAGE: ('{"max_tokens":2,"messages":[{"role":"user","content":"', '"}]}'),
    GENERATE: ('{"prompt":"', '"}'),
}


def _long_texts(path: str) -> Iterator[Row]:
    """Legal ones."""
    before, after = TEXT_FIELDS[path]
    for name, item in TEXTS.items():
        yield Row(f"a text of {name}", path, lambda i=item: filled(before, i, after))


def _shared(make: Callable[[str], Iterator[Row]], paths: list[str]) -> Iterator[Row]:
    """All rows for the first two routes; the others, which read bodies by the same code, share one set in turn."""
    rows = [list(make(path)) for path in paths]
    yield from (row for of_one in rows[:2] for row in of_one)
    for i, of_others in enumerate(zip(*rows[2:], strict=True)):
        yield of_others[i % len(of_others)]


ROWS = [
    *_shared(_of_every_route, list(FIELDS)),
    *(Row(name, CHAT, lambda i=item: filled("", i, "")) for name, item in RAW.items()),
    *_answers(),
    *_other_fields(),
    *_formats(),
    *_shared(_long_texts, list(TEXT_FIELDS)),
]
