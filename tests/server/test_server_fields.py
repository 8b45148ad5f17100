"""The table of fields: each that is known is honoured, refused by name or without effect, and no other is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import Running
from pydantic import ValidationError

from samebits.cli.request_docs import requests_markdown
from samebits.server.bodies.base import Body
from samebits.server.bodies.fields import accepted_by, refused_by
from samebits.server.bodies.openai import ChatBody, CompletionBody, EmbeddingBody
from samebits.server.bodies.reading import checked_body
from samebits.server.http.errors import ApiError, from_exception
from samebits.server.protocols.messages_body import MessagesBody
from samebits.server.protocols.ollama_body import OllamaChatBody, OllamaGenerateBody, Options
from samebits.server.protocols.rerank import RerankBody
from samebits.server.protocols.responses_body import ResponsesBody

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hello hi"}]
LEAST: dict[type[Body], dict[str, Any]] = {
    ChatBody: {"messages": MESSAGES},
    CompletionBody: {"prompt": "hello hi"},
    EmbeddingBody: {"input": "hello hi"},
    ResponsesBody: {"input": "hello hi"},
    MessagesBody: {"messages": MESSAGES, "max_tokens": 2},
    OllamaChatBody: {"messages": MESSAGES},
    OllamaGenerateBody: {"prompt": "hello hi"},
    Options: {},
    RerankBody: {"query": "hello", "documents": ["hi"]},
}
ODD = [{}]  # what no field takes


def refusal(kind: type[Body], **fields: Any) -> ApiError | None:
    try:
        checked_body(json.dumps({**LEAST[kind], **fields}).encode(), kind)
    except (ApiError, ValidationError) as error:
        return from_exception(error)
    return None


@pytest.mark.parametrize("kind", LEAST)
def test_refused_fields_are_refused_by_name_unless_they_ask_for_nothing(kind: type[Body]) -> None:
    for name, row in refused_by(kind).items():
        found = refusal(kind, **{name: ODD})
        assert found is not None, name
        assert (found.status, found.param, found.code) == (400, name, "unsupported_parameter")
        for harmless in (None, *row.harmless):
            assert refusal(kind, **{name: harmless}) is None, name


def test_a_name_of_any_length_is_cut_short_in_a_refusal() -> None:
    found = refusal(ChatBody, logit_bias={"a" * 100_000: 1})
    assert found is not None
    assert len(str(found)) < 500


def test_truth_is_no_number() -> None:
    assert refusal(ChatBody, typical_p=1.0) is None
    assert refusal(ChatBody, typical_p=True) is not None


@pytest.mark.parametrize("kind", LEAST)
def test_every_name_of_an_honoured_field_is_looked_at(kind: type[Body]) -> None:
    for own, names in kind.names().items():
        for name in names:
            if kind.model_fields[own].annotation is Any:
                continue
            found = refusal(kind, **{name: ODD})
            assert found is not None, name
            assert str(found.param).partition(".")[0] == name


def test_fields_without_effect_are_taken_and_no_name_stands_twice() -> None:
    for kind in LEAST:
        honoured = {name for names in kind.names().values() for name in names}
        for name in accepted_by(kind):
            assert refusal(kind, **{name: "x"}) is None
        assert not honoured & accepted_by(kind).keys()
        assert not honoured & refused_by(kind).keys()
        assert not accepted_by(kind).keys() & refused_by(kind).keys()


@pytest.mark.parametrize("kind", LEAST)
def test_a_field_that_nobody_knows_is_refused(kind: type[Body]) -> None:
    found = refusal(kind, mood="cheerful")
    assert found is not None
    assert (found.status, found.param, found.code) == (400, "mood", "unknown_parameter")
    assert refusal(kind, mood=None) is None


def test_two_names_for_one_field_must_agree() -> None:
    assert refusal(ChatBody, max_tokens=5, max_completion_tokens=5) is None
    found = refusal(ChatBody, max_tokens=5, n_predict=6)
    assert found is not None
    assert found.param == "n_predict"


def test_the_page_of_fields_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "requests.md"
    assert page.read_text() == requests_markdown(), "run make docs"


def ask(server: Running, path: str, **body: Any) -> httpx.Response:
    least = LEAST[ChatBody] if path == CHAT else LEAST[CompletionBody]
    with server.client() as client:
        return client.post(path, json={**least, "seed": 1, **body})


def texts(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [c["text"] if "text" in c else c["message"]["content"] for c in reply.json()["choices"]]


ENUM = {"enum": [1, 2]}
FORMS: list[tuple[dict[str, Any], set[str]]] = [
    ({"guided_choice": ["red", 'a "b"\n', "blau é"]}, {"red", 'a "b"\n', "blau é"}),
    ({"guided_regex": "(ab|cd)"}, {"ab", "cd"}),
    ({"regex": "(ab|cd)"}, {"ab", "cd"}),
    ({"guided_json": ENUM}, {"1", "2"}),
    ({"guided_json": json.dumps(ENUM)}, {"1", "2"}),
    ({"json_schema": ENUM}, {"1", "2"}),
    ({"grammar": 'root ::= ("yes" | "no") [0-9]\n'}, {f"{w}{i}" for w in ("yes", "no") for i in range(10)}),
    ({"ebnf": 'root ::= "x" | "y"'}, {"x", "y"}),
    ({"guided_grammar": 'start: "yes" | "no"'}, {"yes", "no"}),
    ({"structured_outputs": {"choice": ["red", "green"]}}, {"red", "green"}),
    ({"structured_outputs": {"json": ENUM}}, {"1", "2"}),
    ({"structured_outputs": {"regex": "(ab|cd)"}}, {"ab", "cd"}),
    ({"structured_outputs": {"grammar": 'root ::= "x" | "y"'}}, {"x", "y"}),
    ({"response_format": {"type": "grammar", "grammar": 'root ::= "x" | "y"'}}, {"x", "y"}),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize(("form", "wanted"), FORMS, ids=[json.dumps(form)[:50] for form, _ in FORMS])
def test_forms_are_kept_under_every_name(server: Running, path: str, form: dict[str, Any], wanted: set[str]) -> None:
    found = texts(ask(server, path, **form, n=4, temperature=1.5, max_tokens=40))
    assert set(found) <= wanted


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": "("}, "grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_json": "{"}, "guided_json"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
        ({"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, "grammar"),
        ({"response_format": {"type": "text", "schema": {}}}, "response_format.schema"),
    ],
)
def test_forms_that_cannot_be_kept_are_refused(server: Running, form: dict[str, Any], param: str) -> None:
    reply = ask(server, CHAT, **form, max_tokens=4)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_lengths_stops_and_words(server: Running) -> None:
    wishes = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
    (plain,) = texts(ask(server, COMPLETE, **wishes))
    assert texts(ask(server, COMPLETE, temperature=0, ignore_eos=True, n_predict=12)) == [plain]
    stop = plain[3:5]
    end = plain.find(stop)
    assert texts(ask(server, COMPLETE, **wishes, stop=stop)) == [plain[:end]]
    assert texts(ask(server, COMPLETE, **wishes, stop=stop, no_stop_trim=True)) == [plain[: end + 2]]
    assert texts(ask(server, COMPLETE, **wishes, stop=stop, min_tokens=12)) == [plain]
    (letter,) = ask_tokens(server, "q")
    forced = ask(server, CHAT, **wishes, allowed_token_ids=[letter])
    assert texts(forced) == ["q" * 12]
    assert texts(ask(server, CHAT, **wishes, allowed_token_ids=[letter], stop_token_ids=[letter])) == [""]
    assert ask(server, CHAT, **wishes, allowed_token_ids=[letter], bad_words=["q"]).status_code == 500
    repeated = ask(server, COMPLETE, **wishes, repeat_penalty=5.0)
    assert texts(repeated) == texts(ask(server, COMPLETE, **wishes, repetition_penalty=5.0)) != [plain]
    assert ask(server, CHAT, max_tokens=3, min_tokens=4).json()["error"]["param"] == "min_tokens"


def ask_tokens(server: Running, text: str) -> list[int]:
    with server.client() as client:
        return list(client.post("/tokenize", json={"text": text, "add_special": False}).json()["tokens"])


def test_special_tokens_in_an_answers_text(server: Running) -> None:
    tokenizer = server.llm.tokenizer
    special = min(tokenizer.control_ids - tokenizer.special.end_ids)
    wishes = {"allowed_token_ids": [special], "max_tokens": 2}
    assert texts(ask(server, COMPLETE, **wishes)) == [""]
    assert texts(ask(server, COMPLETE, **wishes, skip_special_tokens=False)) == [2 * tokenizer.token_text(special)]


def test_prompts_are_cut_to_their_last_tokens(server: Running) -> None:
    wishes = {"temperature": 0, "max_tokens": 4}
    ids = ask_tokens(server, "hello hi aaaa")
    cut = ask(server, COMPLETE, prompt="hello hi aaaa", truncate_prompt_tokens=3, **wishes)
    assert texts(cut) == texts(ask(server, COMPLETE, prompt=ids[-3:], **wishes))
    assert cut.json()["usage"]["prompt_tokens"] == 3
    long = ask(server, COMPLETE, prompt="hello " * 2000, truncate_prompt_tokens=-1, **wishes)
    assert long.json()["usage"]["prompt_tokens"] == server.llm.engine.max_len - 1
    assert ask(server, COMPLETE, prompt="hello " * 2000, **wishes).status_code == 400
    assert ask(server, CHAT, truncate_prompt_tokens=2, **wishes).json()["usage"]["prompt_tokens"] == 2


def test_salts_keep_prompts_apart(server: Running) -> None:
    prompt = [7] * 200
    scheduler = server.llm.engine.scheduler

    def num_cached(**wishes: Any) -> int:
        before = scheduler.num_cached_tokens
        assert ask(server, COMPLETE, prompt=prompt, max_tokens=1, **wishes).status_code == 200
        return scheduler.num_cached_tokens - before

    num_cached()
    assert num_cached() > 100
    assert num_cached(cache_salt="mine") == 0
    assert num_cached(cache_salt="mine") > 100


def test_the_likeliest_of_several(server: Running) -> None:
    wishes = {"max_tokens": 6, "temperature": 1.0, "ignore_eos": True, "logprobs": 0}
    drawn = ask(server, COMPLETE, **wishes, n=5).json()["choices"]
    by_mean = sorted(drawn, key=lambda c: -sum(c["logprobs"]["token_logprobs"]))
    best = ask(server, COMPLETE, **wishes, n=2, best_of=5).json()
    assert [c["text"] for c in best["choices"]] == [c["text"] for c in by_mean[:2]]
    assert [c["index"] for c in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 30
    for wrong in ({"best_of": 1, "n": 2}, {"best_of": 99}, {"best_of": 3, "stream": True}):
        assert ask(server, COMPLETE, **wrong).json()["error"]["param"] == "best_of"
